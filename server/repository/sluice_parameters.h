// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/request_class.h"
#include "model/precision.h"
#include "model_config.pb.h"

namespace sluice::server {

inline constexpr int kMaxSlots = 64;
inline constexpr int64_t kMaxBatchSize = 4096;
inline constexpr size_t kMaxBatchBuckets = 16;

/// The parameters of config.pbtxt whose keys begin with "sluice.", parsed.
struct SluiceParameters {
  std::optional<RequestClass> default_class;
  std::vector<RequestClass> allowed_classes;  ///< Empty: all.
  std::vector<int64_t> buckets;               ///< Batch sizes, ascending; empty: not given.
  std::optional<int64_t> batch_rows;          ///< The bucket that standard and batch work runs in.
  std::array<std::optional<int>, kRequestClassCount> slots;
  model::Precision precision = model::Precision::kFp32;
  std::vector<std::string> warnings;  ///< Keys of other servers, which change nothing.
};

/// INVALID_ARGUMENT naming the key, what it takes and what came; an unknown key beginning "sluice." is one.
absl::StatusOr<SluiceParameters> ParseSluiceParameters(const inference::ModelConfig& config);

}  // namespace sluice::server
