// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/call_metrics.h"

#include <algorithm>

namespace sluice::server {
namespace {

metrics::RejectReason RejectReasonOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kNotFound:
      return metrics::RejectReason::kUnknownModel;
    case absl::StatusCode::kUnavailable:
      return metrics::RejectReason::kModelNotReady;
    default:
      return metrics::RejectReason::kInvalid;
  }
}

}  // namespace

void CallMetrics::OnAnswered(const rpc::AnsweredCall& call) {
  // What the backend refuses after submission is counted there, by its own reason.
  const bool class_known = call.submitted || call.code == absl::StatusCode::kOk;
  if (!call.submitted) metrics_.OnRejected(std::nullopt, RejectReasonOf(call.code));
  if (class_known && call.wished_class != call.request_class) {
    metrics_.OnDemoted(call.wished_class, call.over_latency_share ? metrics::DemotionReason::kLatencyShare
                                                                  : metrics::DemotionReason::kNotAllowed);
  }

  metrics::ModelMetrics* const model =
      call.model == nullptr || call.model->metrics == nullptr ? metrics_.unknown_model() : call.model->metrics;
  metrics::RequestRecord record;
  if (class_known) record.request_class = call.request_class;
  record.device = call.submitted ? static_cast<int>(call.device_index) : metrics::kNoDevice;
  record.code = call.code;
  record.contended = call.submitted && serving_.neighbours(call.device_index).Contended(call.arrival);
  record.rows = call.rows;
  record.duration = call.duration;
  const RequestTimings& timings = call.timings;
  absl::Duration& respond = record.stages[static_cast<size_t>(metrics::Stage::kRespond)];
  respond = call.duration;
  const auto set = [&](metrics::Stage stage, absl::Duration duration) {
    record.stages[static_cast<size_t>(stage)] = duration;
    respond -= duration;
  };
  set(metrics::Stage::kQueue, timings.queue);
  set(metrics::Stage::kCopyIn, timings.copy_in);
  set(metrics::Stage::kH2d, timings.h2d);
  set(metrics::Stage::kGpuWait, timings.gpu_wait);
  set(metrics::Stage::kCompute, timings.compute);
  set(metrics::Stage::kD2h, timings.d2h);
  // Stages of micro-batches overlap, so what is left may be nothing.
  respond = std::max(respond, absl::ZeroDuration());
  model->OnRequest(record);
}

}  // namespace sluice::server
