// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/infer_request.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/convert.h"
#include "server/rpc/infer_parser.h"

namespace sluice::rpc {

/// Metadata sluice-class of a call, which lives in `context`. INVALID_ARGUMENT when it is given more than once.
absl::StatusOr<std::optional<absl::string_view>> ReadClassMetadata(const grpc::ServerContext& context);

/// The deadline of a call whose message was complete at `arrival`, on our clock.
Time ReadDeadline(const grpc::ServerContext& context, Time arrival);

/// A request that came as a message of ModelInfer's type, whatever RPC it came in: read, checked, handed to the
/// backend, cancelled, answered once. Bounds: the message's size, and what ParseInferRequest allows beside it. Threads:
/// Read and Submit on the I/O thread that has the message, then as server::InferRequest; CancelByClient on any I/O
/// thread. Ownership: the derived class's; it keeps the environment valid until Deliver has returned.
class MessageRequest : public server::InferRequest {
 public:
  bool Finish(absl::StatusOr<server::InferResult> result) final;
  /// The client is gone: tells the backend, if it has the request, and answers in case that it does not.
  void CancelByClient();

 protected:
  /// Takes the message's bytes; `arrival` and `deadline` are set. An error is the answer.
  absl::Status Read(grpc::ByteBuffer& message, std::optional<absl::string_view> class_word);
  /// Hands the request to the backend by `handle`, whose deleter must call OnHandleGone.
  void Submit(std::shared_ptr<server::InferRequest> handle);
  void OnHandleGone();
  /// The backend needs the inputs no more: they go now, since a client may take for ever to read the answer. What an
  /// answer under way on another thread reads stays.
  void DropMessage();
  /// Everything of the last request, so that the object can serve another.
  void Clear();

  const std::string& message_id() const { return parsed_.id; }
  Time answered_at() const { return answered_at_; }

  CallEnvironment* environment_ = nullptr;

 private:
  /// The one answer: an encoded ModelInferResponse, or an error. The object may be gone when this returns.
  virtual void Deliver(const absl::Status& status, std::vector<grpc::Slice> response) = 0;

  /// Whether a cancellation at `now` is the deadline's doing.
  bool IsAtDeadline(Time now) const;
  void EndCancelled();
  absl::StatusOr<std::vector<grpc::Slice>> Encode(absl::StatusOr<server::InferResult> result);

  // The message's slices must not move once it is parsed: short ones keep their bytes inside themselves.
  std::vector<grpc::Slice> slices_;
  std::vector<Bytes> chunks_;
  size_t message_bytes_ = 0;

  ParsedRequest parsed_;
  Conversion conversion_;
  Time answered_at_;

  std::atomic<bool> answered_ = false;
  bool accepted_ = false;                  // written before the backend gets the handle
  std::atomic<bool> submitted_ = false;    // the request is complete: other threads may read it, and handle_
  std::atomic<bool> cancelled_ = false;    // the client is gone
  std::atomic<bool> cancel_sent_ = false;  // the backend knows
  std::weak_ptr<server::InferRequest> handle_;
};

}  // namespace sluice::rpc
