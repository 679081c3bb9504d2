// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/data_type.h"
#include "base/ids.h"
#include "base/request_class.h"
#include "model_config.pb.h"

namespace sluice::metrics {
class ModelMetrics;
}

namespace sluice::server {

/// One input or output as clients see it: dims include the leading -1 of the batch dimension when max_batch_size >= 1.
struct ServedTensor {
  std::string name;
  DataType type = DataType::kInvalid;
  std::vector<int64_t> dims;
};

/// How a request's class follows from its priority and the model's config (DESIGN.md 8).
struct ClassRules {
  RequestClass default_class = RequestClass::kStandard;
  bool default_class_is_explicit = false;  ///< sluice.default_class was given.
  uint64_t priority_levels = 0;            ///< 0: v = 1 latency, 2 standard, 3 and above batch.
  uint64_t default_priority_level = 0;
  std::vector<RequestClass> allowed;  ///< Empty: all. Others are demoted to the nearest lower allowed class.

  /// The nearest class below that is allowed; nothing when there is none.
  std::optional<RequestClass> LowerAllowed(RequestClass request_class) const {
    for (int lower = static_cast<int>(request_class) + 1; lower < kRequestClassCount; ++lower) {
      const auto candidate = static_cast<RequestClass>(lower);
      if (allowed.empty() || std::find(allowed.begin(), allowed.end(), candidate) != allowed.end()) return candidate;
    }
    return std::nullopt;
  }
};

/// Queue policy of one class of one model (config.pbtxt; DESIGN.md 7).
struct QueueRules {
  uint32_t max_queue_size = 0;  ///< 0: only the class queue's bound.
  absl::Duration default_timeout = absl::InfiniteDuration();
  bool allow_timeout_override = true;
  absl::Duration max_queue_delay = absl::ZeroDuration();
  std::vector<int64_t> preferred_batch_sizes;
  bool merges_requests = false;  ///< dynamic_batching is present.
};

/// What the wire and the scheduler know of one ready model version: the immutable snapshot that requests in flight
/// hold.
struct ServedModel {
  ModelId id;
  std::string name;
  int64_t version = 0;
  std::vector<ServedTensor> inputs;
  std::vector<ServedTensor> outputs;
  int64_t max_batch_size = 0;  ///< 0: no batch dimension.
  /// The closed list of input shapes that are served, batch dimension left out when max_batch_size >= 1; one entry per
  /// input each. Batches of 1 to max_batch_size are all served.
  std::vector<std::vector<std::vector<int64_t>>> shape_buckets;
  inference::ModelConfig config;  ///< Auto-completed.
  ClassRules class_rules;
  QueueRules queue_rules;
  /// priority_queue_policy, by class; unset: queue_rules.
  std::array<std::optional<QueueRules>, kRequestClassCount> class_queue_rules;

  std::vector<size_t> devices;  ///< Indices of the server's devices that run it.

  metrics::ModelMetrics* metrics = nullptr;  ///< Its counters, which live as long as the process; null in tests.

  const QueueRules& RulesFor(RequestClass request_class) const {
    const std::optional<QueueRules>& own = class_queue_rules[static_cast<size_t>(request_class)];
    return own ? *own : queue_rules;
  }
};

}  // namespace sluice::server
