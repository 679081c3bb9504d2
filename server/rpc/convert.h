// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/request_class.h"
#include "server/infer_request.h"
#include "server/listen_options.h"
#include "server/rpc/class_rules.h"
#include "server/rpc/infer_parser.h"

namespace sluice::rpc {

/// What is the same for every request of a server.
struct RequestPolicy {
  std::optional<RequestClass> class_of_the_port;
  bool strict_class = false;  ///< Refuse a class the model does not allow, instead of demoting.
  server::ParseLimits limits = {};
  server::ProtocolAccess access = {};
};

/// What the rpc layer keeps of a request besides server::InferRequest.
struct Conversion {
  ClassDecision decision;
  bool timings = false;
  std::deque<std::string> decoded;  ///< Typed contents in raw form; pieces of the inputs point into it.
};

/// Checks a parsed request against the model it names and fills `request`: model, class, queue deadline (from
/// request.arrival, which must be set), rows, bytes, bucket, inputs, outputs. `class_word` is the metadata
/// sluice-class. Moves the raw pieces out of `parsed`. Regions of shared memory are the backend's. The only place that
/// answers INVALID_ARGUMENT for a request's content; messages name the tensor, what was expected and what came. Never
/// blocks.
absl::Status ConvertRequest(ParsedRequest& parsed, std::optional<absl::string_view> class_word,
                            const RequestPolicy& policy, const server::InferenceBackend& backend,
                            server::InferRequest& request, Conversion& conversion);

}  // namespace sluice::rpc
