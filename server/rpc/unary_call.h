// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>

#include "absl/status/status.h"
#include "server/rpc/access_check.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/tag.h"

namespace sluice::rpc {

/// One call of a small method that is answered at once on the I/O thread. Ownership: the queue's, through its tag; it
/// frees itself when its answer is written or when no call will come.
template <class Request, class Response>
class UnaryCall final : public Tag {
 public:
  using Writer = grpc::ServerAsyncResponseWriter<Response>;
  struct Method {
    /// Awaits the next call of this method.
    void (*request)(CallEnvironment&, grpc::ServerContext*, Request*, Writer*, void* tag);
    /// Must not block.
    absl::Status (*answer)(const server::InferenceBackend&, const Request&, Response&);
    server::Protocol protocol;  ///< Whose header it needs, if any.
  };

  static void Arm(CallEnvironment& environment, const Method& method) {
    auto* const call = new UnaryCall(environment, method);
    environment.Began();
    method.request(environment, &call->context_, &call->request_, &call->writer_, ToQueue(*call));
  }

  void OnEvent(bool ok) override {
    if (!ok || answered_) {
      environment_.Ended();
      delete this;
      return;
    }
    if (!environment_.stopping.load(std::memory_order_acquire)) Arm(environment_, method_);
    answered_ = true;
    Response response;
    absl::Status status = CheckAccess(environment_.policy.access, method_.protocol, context_);
    if (status.ok()) status = method_.answer(environment_.backend, request_, response);
    if (status.ok()) {
      writer_.Finish(response, grpc::Status::OK, ToQueue(*this));
    } else {
      writer_.FinishWithError(ToGrpcStatus(status), ToQueue(*this));
    }
  }

 private:
  UnaryCall(CallEnvironment& environment, const Method& method)
      : environment_(environment), method_(method), writer_(&context_) {}
  ~UnaryCall() = default;

  CallEnvironment& environment_;
  const Method method_;
  grpc::ServerContext context_;
  Request request_;
  Writer writer_;
  bool answered_ = false;
};

}  // namespace sluice::rpc
