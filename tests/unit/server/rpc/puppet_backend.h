// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/infer_request.h"

namespace sluice::rpc {

/// A model snapshot with one bucket per entry of `buckets`.
std::shared_ptr<server::ServedModel> MakeModel(const std::string& name, std::vector<server::ServedTensor> inputs,
                                               std::vector<server::ServedTensor> outputs, int64_t max_batch_size,
                                               std::vector<std::vector<std::vector<int64_t>>> buckets);

/// Input `x` FP32 [-1,-1], output `y` of the same type; batches up to 8 of 4 elements, or of 1 Mi elements.
std::shared_ptr<server::ServedModel> MakeEchoModel();

/// The request's first input as the first requested output.
server::InferResult EchoResult(const server::InferRequest& request);

/// A load or an unload that a client asked for.
struct ControlCall {
  bool load = false;
  std::string name;
  server::GivenModel given;
  server::RepositoryControl::Abandoned abandoned;
  server::RepositoryControl::Done done;
};

/// A backend that does what the test says. Requests are handed to `on_submit`, or kept until the test takes them, as
/// are loads and unloads.
class PuppetBackend : public server::InferenceBackend {
 public:
  void AddModel(std::shared_ptr<const server::ServedModel> model);
  void RemoveModel(const std::string& name);
  void SetReady(bool ready) { ready_ = ready; }
  void SetLive(bool live) { live_ = live; }
  /// Before the server starts.
  void OnSubmit(std::function<void(std::shared_ptr<server::InferRequest>)> handler) { on_submit_ = std::move(handler); }
  /// What Cancel answers the request with; OK: Cancel leaves the request alone. Before the server starts.
  void OnCancelAnswer(absl::Status status) { cancel_answer_ = std::move(status); }

  /// Waits for the next request that was kept; null when there is none and Close was called.
  std::shared_ptr<server::InferRequest> Take();
  void Close();
  /// Waits for the next load or unload.
  ControlCall TakeControl();
  /// Null: not served. Before the server starts, as long as it lives.
  void SetSharedMemory(server::SharedMemoryRegions* regions) { shared_memory_ = regions; }
  void AllowModelControl(bool allow) { allows_model_control_ = allow; }
  /// What ReadIndex answers, and what it was asked last.
  void SetIndex(absl::StatusOr<std::vector<server::ModelIndexEntry>> index);
  std::string last_index_question();
  /// Waits until so many requests were cancelled.
  void AwaitCancelled(int count);
  int cancelled_count();

  bool live() const override { return live_; }
  bool ready() const override { return ready_; }
  absl::StatusOr<std::shared_ptr<const server::ServedModel>> FindModel(const std::string& name,
                                                                       const std::string& version) const override;
  absl::StatusOr<std::vector<int64_t>> ReadyVersions(const std::string& name) const override;
  std::vector<std::shared_ptr<const server::ServedModel>> ReadyModels() const override;
  server::SharedMemoryRegions* shared_memory() const override { return shared_memory_; }
  void Submit(std::shared_ptr<server::InferRequest> request) override;
  void Cancel(const std::shared_ptr<server::InferRequest>& request) override;
  bool allows_model_control() const override { return allows_model_control_; }
  void ReadIndex(const std::string& repository, bool only_ready, IndexDone done) override;
  void LoadModel(std::string name, server::GivenModel given, Abandoned abandoned, Done done) override;
  void UnloadModel(std::string name, Abandoned abandoned, Done done) override;
  absl::Status FillStatistics(const std::string& name, const std::string& version,
                              inference::ModelStatisticsResponse& response) const override;

 private:
  std::atomic<bool> ready_ = true;
  std::atomic<bool> live_ = true;
  std::atomic<bool> allows_model_control_ = false;
  server::SharedMemoryRegions* shared_memory_ = nullptr;
  std::function<void(std::shared_ptr<server::InferRequest>)> on_submit_;
  absl::Status cancel_answer_ = absl::CancelledError("cancelled in the queue");
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::shared_ptr<const server::ServedModel>> models_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<server::InferRequest>> kept_ ABSL_GUARDED_BY(mutex_);
  std::vector<ControlCall> control_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<std::vector<server::ModelIndexEntry>> index_ ABSL_GUARDED_BY(mutex_) =
      std::vector<server::ModelIndexEntry>();
  std::string last_index_question_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int cancelled_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::rpc
