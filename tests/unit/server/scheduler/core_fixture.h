// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "server/scheduler/core.h"

namespace sluice::scheduler {

inline Time At(absl::Duration since_start) { return Time::FromNanoseconds(1'000'000'000) + since_start; }
inline Time AtMs(int64_t ms) { return At(absl::Milliseconds(ms)); }

/// A core with short words for what the tests do to it.
class CoreTest : public ::testing::Test {
 protected:
  static constexpr ModelId kModel{1};
  static constexpr ModelId kOther{2};

  SchedulerCore& Make(const CoreOptions& options) {
    core_ = std::make_unique<SchedulerCore>(options);
    return *core_;
  }
  SchedulerCore& Make(RequestClass request_class = RequestClass::kStandard) {
    return Make(CoreOptions{.request_class = request_class});
  }

  static ModelLimits Merging(int64_t max_batch_rows) {
    return {.max_batch_rows = max_batch_rows, .merges_requests = true, .max_concurrent_executions = 4};
  }

  static QueuedRequest Request(uint64_t id, Time arrival = AtMs(0)) {
    return {.id = RequestId(id), .model = kModel, .arrival = arrival};
  }

  Refusal SubmitAt(const QueuedRequest& request, Time now) { return core_->Submit(request, now).refusal; }
  Refusal Submit(const QueuedRequest& request) { return SubmitAt(request, request.arrival); }

  /// The ids picked; empty when nothing is.
  std::vector<uint64_t> PickIds(Time now) {
    const std::optional<Pick> pick = core_->PickNext(now);
    std::vector<uint64_t> ids;
    if (!pick.has_value()) return ids;
    last_execution_ = pick->execution;
    last_rows_ = pick->rows;
    for (const RequestId id : pick->requests) ids.push_back(id.value());
    return ids;
  }
  std::vector<RequestId> Complete(Time now, std::optional<absl::Duration> measured = std::nullopt) {
    return core_->OnCompleted(last_execution_, now, measured);
  }
  std::vector<uint64_t> ExpireIds(Time now) {
    std::vector<uint64_t> ids;
    for (const Expired& expired : core_->Expire(now)) ids.push_back(expired.id.value());
    return ids;
  }

  std::unique_ptr<SchedulerCore> core_;
  ExecutionId last_execution_;
  int64_t last_rows_ = 0;
};

}  // namespace sluice::scheduler
