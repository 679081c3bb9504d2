// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "health.grpc.pb.h"
#include "inference.grpc.pb.h"
#include "server/infer_request.h"
#include "server/rpc/convert.h"
#include "server/rpc/rpc_observer.h"

namespace sluice::rpc {

/// Every declared method is served asynchronously, the inferring ones as raw bytes. A method that is mixed in must
/// always have a call armed, or its callers hang.
using InferService = inference::GRPCInferenceService;
using AsyncSharedMemoryService =
    InferService::WithAsyncMethod_SystemSharedMemoryStatus<InferService::WithAsyncMethod_SystemSharedMemoryRegister<
        InferService::WithAsyncMethod_SystemSharedMemoryUnregister<InferService::Service>>>;
using AsyncInferService = InferService::WithRawMethod_ModelInfer<
    InferService::WithRawMethod_ModelStreamInfer<InferService::WithAsyncMethod_ServerLive<
        InferService::WithAsyncMethod_ServerReady<InferService::WithAsyncMethod_ModelReady<
            InferService::WithAsyncMethod_ServerMetadata<InferService::WithAsyncMethod_ModelMetadata<
                InferService::WithAsyncMethod_ModelConfig<InferService::WithAsyncMethod_ModelStatistics<
                    InferService::WithAsyncMethod_TraceSetting<InferService::WithAsyncMethod_LogSettings<
                        InferService::WithAsyncMethod_RepositoryIndex<InferService::WithAsyncMethod_RepositoryModelLoad<
                            InferService::WithAsyncMethod_RepositoryModelUnload<AsyncSharedMemoryService>>>>>>>>>>>>>>;
using AsyncHealthService = grpc::health::v1::Health::AsyncService;

/// What all calls of one server share. Outlives every call's RPC: the server shuts the queue down only after
/// WaitUntilNone.
class CallEnvironment {
 public:
  CallEnvironment(server::InferenceBackend& backend_in, RpcObserver& observer_in, const Clock& clock_in,
                  RequestPolicy policy_in, int stream_requests_in)
      : backend(backend_in),
        observer(observer_in),
        clock(clock_in),
        policy(policy_in),
        stream_requests(stream_requests_in) {}

  server::InferenceBackend& backend;
  RpcObserver& observer;
  const Clock& clock;
  const RequestPolicy policy;
  const int stream_requests;  ///< Of one ModelStreamInfer call, read and not yet answered and written.
  AsyncInferService infer_service;
  AsyncHealthService health_service;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;

  /// One more call is armed or under way. Only while another one is, or before the server is shut down.
  void Began() { outstanding_.fetch_add(1, std::memory_order_relaxed); }
  /// A call will start no further operation. I/O threads only.
  void Ended() {
    if (outstanding_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    MutexLock lock(mutex_);
    none_left_.NotifyAll();
  }
  void WaitUntilNone() {
    MutexLock lock(mutex_);
    while (outstanding_.load(std::memory_order_acquire) > 0) none_left_.Wait(mutex_);
  }

  /// Set once, when the server stops taking calls: nothing is armed again.
  std::atomic<bool> stopping = false;

 private:
  std::atomic<int64_t> outstanding_ = 0;
  Mutex mutex_;  // only for the condition: outstanding_ is atomic so that calls take no lock
  CondVar none_left_;
};

}  // namespace sluice::rpc
