// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/request_class.h"
#include "grpcpp/channel.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace sluice::bench {

/// Sends one prebuilt ModelInfer at a time and waits for its answer on its own queue: the same calls for the server
/// that is measured and for the bare echo. Threads: one. Errors: the call's status.
class Caller {
 public:
  /// Connects within 5 s; UNAVAILABLE otherwise.
  static absl::StatusOr<std::unique_ptr<Caller>> Connect(const std::string& address);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  struct Answer {
    absl::Duration latency;  ///< From before the call was started to its completion.
    grpc::ByteBuffer body;
  };
  absl::StatusOr<Answer> Call(const grpc::ByteBuffer& request, std::optional<RequestClass> request_class);

 private:
  explicit Caller(std::shared_ptr<grpc::Channel> channel) : channel_(std::move(channel)), stub_(channel_) {}

  const MonotonicClock clock_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
};

}  // namespace sluice::bench
