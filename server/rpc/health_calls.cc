// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/health_calls.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/quote.h"
#include "server/rpc/unary_call.h"

namespace sluice::rpc {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

HealthCheckResponse::ServingStatus HealthStatus(const server::InferenceBackend& backend, const std::string& name) {
  const auto serving = [](bool yes) { return yes ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING; };
  if (name.empty() || name == "inference.GRPCInferenceService") return serving(backend.ready());
  if (name == "liveness") return serving(backend.live());
  const absl::Status found = backend.FindModel(name, "").status();
  return absl::IsNotFound(found) ? HealthCheckResponse::SERVICE_UNKNOWN : serving(found.ok());
}

namespace {

absl::Status AnswerCheck(const server::InferenceBackend& backend, const HealthCheckRequest& request,
                         HealthCheckResponse& response) {
  const HealthCheckResponse::ServingStatus status = HealthStatus(backend, request.service());
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    return absl::NotFoundError(absl::StrCat("unknown service ", Quote(request.service())));
  }
  response.set_status(status);
  return absl::OkStatus();
}

}  // namespace

bool HealthWatches::Add(HealthWatch* watch) {
  MutexLock lock(mutex_);
  if (watches_.size() >= kMaxWatches) return false;
  watches_.push_back(watch);
  return true;
}

void HealthWatches::Remove(HealthWatch* watch) {
  MutexLock lock(mutex_);
  watches_.erase(std::remove(watches_.begin(), watches_.end(), watch), watches_.end());
}

std::vector<HealthWatch*> HealthWatches::Pin() {
  MutexLock lock(mutex_);
  for (HealthWatch* watch : watches_) watch->references_.fetch_add(1, std::memory_order_relaxed);
  return watches_;
}

void HealthWatches::Changed() {
  for (HealthWatch* watch : Pin()) {
    watch->Advance();
    watch->Unref();
  }
}

void HealthWatches::EndAll() {
  ending_.store(true, std::memory_order_seq_cst);
  Changed();
}

HealthWatch::HealthWatch(CallEnvironment& environment, HealthWatches& watches)
    : environment_(environment), watches_(watches), writer_(&context_) {}

void HealthWatch::Arm(CallEnvironment& environment, HealthWatches& watches) {
  auto* const watch = new HealthWatch(environment, watches);
  environment.Began();
  watch->context_.AsyncNotifyWhenDone(ToQueue(watch->done_tag_));
  environment.health_service.RequestWatch(&watch->context_, &watch->request_, &watch->writer_, environment.queue.get(),
                                          environment.queue.get(), ToQueue(watch->arrived_tag_));
}

void HealthWatch::OnArrived(bool ok) {
  if (!ok) {  // the server is stopping; no done event comes for a call that never was
    environment_.Ended();
    Unref();
    return;
  }
  if (!environment_.stopping.load(std::memory_order_acquire)) Arm(environment_, watches_);
  absl::Status status = CheckAccess(environment_.policy.access, server::Protocol::kHealth, context_);
  if (status.ok()) {
    registered_ = watches_.Add(this);
    if (!registered_) status = absl::ResourceExhaustedError("too many watches");
  }
  if (status.ok()) {
    Advance();
  } else {
    Refuse(status);
  }
  OnEventOver();
}

void HealthWatch::Refuse(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    ++events_left_;
  }
  writer_.Finish(ToGrpcStatus(status), ToQueue(finished_tag_));
}

void HealthWatch::Advance() {
  {
    MutexLock lock(mutex_);
    changed_ = true;
    if (busy_ || closed_) return;
    busy_ = true;
  }
  Continue();
}

void HealthWatch::Continue() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (closed_ || (!changed_ && !watches_.ending())) {
        busy_ = false;
        return;
      }
      changed_ = false;
    }
    const Status status = HealthStatus(environment_.backend, request_.service());
    const bool write = !said_any_ || last_ != status;
    if (!write && !watches_.ending()) continue;
    {
      MutexLock lock(mutex_);
      if (closed_) {
        busy_ = false;
        return;
      }
      ++events_left_;
      closed_ = !write;
    }
    if (!write) {
      writer_.Finish(ToGrpcStatus(absl::UnavailableError("the server is shutting down")), ToQueue(finished_tag_));
      return;
    }
    said_any_ = true;
    last_ = status;
    HealthCheckResponse response;
    response.set_status(status);
    writer_.Write(response, ToQueue(written_tag_));
    return;
  }
}

void HealthWatch::OnWritten(bool ok) {
  if (!ok) {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  Continue();
  OnEventOver();
}

void HealthWatch::OnFinished(bool /*ok*/) { OnEventOver(); }

void HealthWatch::OnDone(bool /*ok*/) {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  OnEventOver();
}

void HealthWatch::OnEventOver() {
  {
    MutexLock lock(mutex_);
    if (--events_left_ > 0) return;
  }
  if (registered_) watches_.Remove(this);
  environment_.Ended();
  Unref();
}

void HealthWatch::Unref() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void ArmHealthCalls(CallEnvironment& environment, HealthWatches& watches, int count) {
  for (int i = 0; i < count; ++i) {
    UnaryCall<HealthCheckRequest, HealthCheckResponse>::Arm(
        environment, {[](CallEnvironment& env, grpc::ServerContext* context, HealthCheckRequest* request,
                         grpc::ServerAsyncResponseWriter<HealthCheckResponse>* writer, void* tag) {
                        env.health_service.RequestCheck(context, request, writer, env.queue.get(), env.queue.get(),
                                                        tag);
                      },
                      &AnswerCheck, server::Protocol::kHealth});
    HealthWatch::Arm(environment, watches);
  }
}

}  // namespace sluice::rpc
