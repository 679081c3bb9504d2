// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/request_class.h"
#include "server/served_model.h"

namespace sluice::rpc {

/// What a request says about its class.
struct ClassWishes {
  std::optional<RequestClass> metadata;     ///< `sluice-class`.
  std::optional<uint64_t> priority;         ///< `priority` parameter; 0 is the model's default.
  std::optional<RequestClass> of_the_port;  ///< Class that the port gives to requests that ask for none.
};

struct ClassDecision {
  RequestClass wished = RequestClass::kStandard;  ///< What the rules gave before the model's allowed classes.
  RequestClass used = RequestClass::kStandard;
  bool demoted() const { return wished != used; }
};

/// The class a priority value stands for in this model; nothing when it stands for the default.
std::optional<RequestClass> ClassOfPriority(const server::ClassRules& rules, uint64_t priority);

/// Metadata, then priority, then the port, then the model's default. A class the model does not allow becomes the
/// nearest lower one that is allowed, or the nearest higher one when none is lower.
ClassDecision DecideClass(const server::ClassRules& rules, const ClassWishes& wishes);

/// INVALID_ARGUMENT listing the three words for anything else.
absl::StatusOr<RequestClass> ParseClassMetadata(absl::string_view word);

}  // namespace sluice::rpc
