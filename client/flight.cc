// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/flight.h"

#include <utility>

#include "client/convert.h"
#include "client/errors.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/impl/codegen/serialization_traits.h"

namespace sluice::client {
namespace {

absl::StatusOr<InferReply> Decode(grpc::ByteBuffer body) {
  inference::ModelInferResponse response;
  const grpc::Status status = grpc::SerializationTraits<inference::ModelInferResponse>::Deserialize(&body, &response);
  if (!status.ok()) return FromGrpc(status);
  return ReadInferResponse(std::move(response));
}

}  // namespace

std::future<absl::StatusOr<InferReply>> Flight::Start(AsyncClient& client, const Clock& clock, FlightPlan plan) {
  const auto flight = std::make_shared<Flight>(client, clock, std::move(plan));
  std::future<absl::StatusOr<InferReply>> future = flight->promise_.get_future();
  flight->SendAttempt();
  if (flight->plan_.hedge_after.has_value()) {
    flight->Keep(client.StartTimer(clock.Now() + *flight->plan_.hedge_after, [flight](bool expired) {
      if (expired) flight->SendHedge();
    }));
  }
  return future;
}

Flight::Flight(AsyncClient& client, const Clock& clock, FlightPlan plan)
    : client_(client), clock_(clock), plan_(std::move(plan)) {}

void Flight::SendAttempt() {
  {
    MutexLock lock(mutex_);
    if (resolved_) return;
    ++attempts_;
    ++under_way_;
  }
  Send();
}

void Flight::Send() {
  Keep(client_.StartInfer(plan_.request, plan_.deadline - clock_.Now(), plan_.request_class,
                          [flight = shared_from_this()](AsyncAnswer answer) { flight->OnAnswer(std::move(answer)); }));
}

void Flight::SendHedge() {
  {
    MutexLock lock(mutex_);
    // Between two attempts the server has asked for patience, not for more.
    if (resolved_ || under_way_ == 0) return;
    ++under_way_;
  }
  Send();
}

void Flight::OnAnswer(AsyncAnswer answer) {
  if (answer.status.ok()) {
    Resolve(Decode(std::move(answer.body)));
    return;
  }
  std::optional<Time> again;
  {
    MutexLock lock(mutex_);
    // The other one may still succeed.
    if (--under_way_ > 0 || resolved_) return;
    again = NextAttempt(plan_.retry, attempts_, answer.status, clock_.Now(), plan_.deadline);
  }
  if (!again.has_value()) {
    Resolve(std::move(answer.status));
    return;
  }
  Keep(client_.StartTimer(*again, [flight = shared_from_this(), status = std::move(answer.status)](bool expired) {
    expired ? flight->SendAttempt() : flight->Resolve(status);  // cancelled: the client is going
  }));
}

void Flight::Resolve(absl::StatusOr<InferReply> reply) {
  std::vector<Operation> operations;
  {
    MutexLock lock(mutex_);
    if (resolved_) return;
    resolved_ = true;
    operations.swap(operations_);
  }
  promise_.set_value(std::move(reply));
  for (const Operation& operation : operations) operation->Cancel();
}

void Flight::Keep(Operation operation) {
  {
    MutexLock lock(mutex_);
    if (!resolved_) {
      operations_.push_back(std::move(operation));
      return;
    }
  }
  operation->Cancel();
}

}  // namespace sluice::client
