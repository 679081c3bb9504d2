// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "server/infer_request.h"

namespace sluice::server {

/// A call as the backend sees it, without gRPC behind it: one row for a model of y = x + x.
class DoublingRequest final : public InferRequest {
 public:
  static constexpr int64_t kColumns = 4;

  DoublingRequest(std::shared_ptr<const ServedModel> served, RequestClass wished, const Clock& clock, float first) {
    model = std::move(served);
    request_class = wished;
    arrival = clock.Now();
    for (int64_t i = 0; i < kColumns; ++i) values_.push_back(first + static_cast<float>(i));
    bytes = values_.size() * sizeof(float);
    inputs.push_back({{1, kColumns}, {std::as_bytes(std::span<const float>(values_))}});
    requested_outputs = {0};
  }
  bool Finish(absl::StatusOr<InferResult> result) override {
    if (finished_.exchange(true)) return false;
    absl::Status status = result.status();
    if (result.ok() && !IsDoubled(result->outputs.at(0).bytes)) status = absl::InternalError("a wrong answer");
    MutexLock lock(mutex_);
    status_ = std::move(status);
    answered_ = true;
    changed_.NotifyAll();
    return true;
  }
  bool answered() const { return finished_; }
  /// OK only with the right numbers.
  absl::Status Wait() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (!answered_) changed_.Wait(mutex_);
    return status_;
  }

 private:
  bool IsDoubled(const std::string& got) const {
    std::vector<float> doubled(values_.size());
    if (got.size() != bytes) return false;
    std::memcpy(doubled.data(), got.data(), bytes);
    for (size_t i = 0; i < values_.size(); ++i) {
      if (doubled[i] != 2 * values_[i]) return false;
    }
    return true;
  }

  std::vector<float> values_;
  std::atomic<bool> finished_ = false;
  Mutex mutex_;
  CondVar changed_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::server
