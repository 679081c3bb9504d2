// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/overhead/one_at_a_time.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "bench/overhead/caller.h"
#include "bench/overhead/echo_process.h"
#include "client/convert.h"
#include "client/pause.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace sluice::bench {
namespace {

absl::StatusOr<client::StageTimings> ReadTimings(grpc::ByteBuffer body) {
  inference::ModelInferResponse response;
  if (!grpc::SerializationTraits<inference::ModelInferResponse>::Deserialize(&body, &response).ok()) {
    return absl::InternalError("the answer is no ModelInferResponse");
  }
  const std::optional<client::StageTimings> timings = client::ReadStageTimings(response);
  if (!timings.has_value()) return absl::FailedPreconditionError("the server sends no stage times");
  return *timings;
}

/// A server and its echo, with a connection to each.
struct Pair {
  static absl::StatusOr<Pair> Make(const OneAtATime& settings, const Target& target, const std::string& model) {
    SLUICE_ASSIGN_OR_RETURN(client::EncodedRequest request, MakeProbe(target.address, model));
    SLUICE_ASSIGN_OR_RETURN(auto caller, Caller::Connect(target.address));
    SLUICE_ASSIGN_OR_RETURN(const Caller::Answer first, caller->Call(request.bytes(), settings.request_class));
    Measured measured;
    measured.server = target.name;
    measured.model = model;
    measured.request_bytes = request.bytes().Length();
    measured.answer_bytes = first.body.Length();
    measured.copy_us = CopyMicroseconds(measured.request_bytes);
    // The echo gives the very bytes that the server gave: the same payload both ways.
    SLUICE_ASSIGN_OR_RETURN(auto echo, EchoProcess::Start(first.body, settings.echo_threads));
    SLUICE_ASSIGN_OR_RETURN(auto echo_caller, Caller::Connect(echo->address()));
    return Pair{target,          std::move(request),     std::move(caller),
                std::move(echo), std::move(echo_caller), std::move(measured)};
  }

  absl::Status AddSample(RequestClass request_class, bool counts) {
    SLUICE_ASSIGN_OR_RETURN(const Caller::Answer served, caller->Call(request.bytes(), request_class));
    SLUICE_ASSIGN_OR_RETURN(const Caller::Answer echoed, echo_caller->Call(request.bytes(), request_class));
    if (!counts) return absl::OkStatus();
    double device_us = 0, total_us = 0;
    if (target.timings) {
      SLUICE_ASSIGN_OR_RETURN(const client::StageTimings timings, ReadTimings(served.body));
      device_us = absl::ToDoubleMicroseconds(timings.h2d + timings.gpu_wait + timings.compute + timings.d2h);
      total_us = absl::ToDoubleMicroseconds(timings.total);
    }
    const double client_us = absl::ToDoubleMicroseconds(served.latency);
    measured.client.push_back(client_us);
    measured.echo.push_back(absl::ToDoubleMicroseconds(echoed.latency));
    measured.device.push_back(device_us);
    measured.total.push_back(total_us);
    measured.front.push_back(client_us - device_us);
    measured.in_server.push_back(total_us - device_us);
    return absl::OkStatus();
  }

  Target target;
  client::EncodedRequest request;
  std::unique_ptr<Caller> caller;
  std::unique_ptr<EchoProcess> echo;
  std::unique_ptr<Caller> echo_caller;
  Measured measured;
};

}  // namespace

absl::StatusOr<std::vector<Measured>> MeasureOneAtATime(const OneAtATime& settings, const std::vector<Target>& targets,
                                                        const std::string& model) {
  std::vector<Pair> pairs;
  for (const Target& target : targets) {
    SLUICE_ASSIGN_OR_RETURN(Pair pair, Pair::Make(settings, target, model));
    pairs.push_back(std::move(pair));
  }
  const MonotonicClock clock;
  for (int i = -settings.warmup; i < settings.requests; ++i) {
    for (Pair& pair : pairs) SLUICE_RETURN_IF_ERROR(pair.AddSample(settings.request_class, i >= 0));
    if (settings.pause_us > 0) client::PauseUntil(clock.Now() + absl::Microseconds(settings.pause_us));
  }
  std::vector<Measured> results;
  for (Pair& pair : pairs) results.push_back(std::move(pair.measured));
  return results;
}

}  // namespace sluice::bench
