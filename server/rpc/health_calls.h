// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "health.pb.h"
#include "server/infer_request.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/tag.h"

namespace sluice::rpc {

/// Status of a health name now. "" and "inference.GRPCInferenceService": ready; "liveness": live; anything else is a
/// model's name, SERVICE_UNKNOWN when there is no such model. Any thread; never blocks.
grpc::health::v1::HealthCheckResponse::ServingStatus HealthStatus(const server::InferenceBackend& backend,
                                                                  const std::string& name);

class HealthWatch;

/// The open Watch streams. Bounds: kMaxWatches, more are refused with RESOURCE_EXHAUSTED. Ownership: none; a watch
/// takes itself out before it goes. Threads: any; at most one lock is held at a time, and none while gRPC is called.
class HealthWatches {
 public:
  static constexpr size_t kMaxWatches = 1024;

  /// Something that HealthStatus depends on may have changed: each watch compares and writes.
  void Changed();
  /// Ends every watch, now and later ones: the server is going.
  void EndAll();

 private:
  friend class HealthWatch;
  /// False when there are too many.
  bool Add(HealthWatch* watch);
  void Remove(HealthWatch* watch);
  bool ending() const { return ending_.load(std::memory_order_acquire); }
  std::vector<HealthWatch*> Pin();

  std::atomic<bool> ending_ = false;
  Mutex mutex_;
  std::vector<HealthWatch*> watches_ ABSL_GUARDED_BY(mutex_);
};

/// One Watch call: the status at once, then every change, until the client or the server ends it. A change that comes
/// while a write is under way is seen when that is over; in between only the last status counts. Ownership: counts its
/// references (its call, and threads that look at it through HealthWatches). Threads: any.
class HealthWatch {
 public:
  static void Arm(CallEnvironment& environment, HealthWatches& watches);

 private:
  friend class HealthWatches;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  HealthWatch(CallEnvironment& environment, HealthWatches& watches);
  ~HealthWatch() = default;

  void OnArrived(bool ok);
  void OnDone(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  /// Something may have changed: says so, unless an operation is under way, whose end will.
  void Advance();
  /// Starts the next operation, if there is something to say. The caller has set busy_.
  void Continue();
  void Refuse(const absl::Status& status);
  void OnEventOver();
  void Unref();

  CallEnvironment& environment_;
  HealthWatches& watches_;
  MemberTag<HealthWatch, &HealthWatch::OnArrived> arrived_tag_{*this};
  MemberTag<HealthWatch, &HealthWatch::OnDone> done_tag_{*this};
  MemberTag<HealthWatch, &HealthWatch::OnWritten> written_tag_{*this};
  MemberTag<HealthWatch, &HealthWatch::OnFinished> finished_tag_{*this};
  grpc::ServerContext context_;
  grpc::health::v1::HealthCheckRequest request_;
  grpc::ServerAsyncWriter<grpc::health::v1::HealthCheckResponse> writer_;
  std::atomic<int> references_ = 1;
  bool registered_ = false;  // written by the arrival, read when the last event is over

  // Belong to whoever has set busy_.
  bool said_any_ = false;
  Status last_ = grpc::health::v1::HealthCheckResponse::UNKNOWN;

  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;     // an operation is under way or about to start
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;  // the status has not been looked at since it may have changed
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;   // no operation may start: the client is gone, or Finish was started
  int events_left_ ABSL_GUARDED_BY(mutex_) = 2;   // arrival, done, and the operation under way
};

/// Arms `count` calls of Check and Watch each.
void ArmHealthCalls(CallEnvironment& environment, HealthWatches& watches, int count);

}  // namespace sluice::rpc
