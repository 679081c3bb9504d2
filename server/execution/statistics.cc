// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/statistics.h"

#include "inference.pb.h"

namespace sluice::server {
namespace {

void Fill(const metrics::CountedTime& from, inference::StatisticDuration& to) {
  to.set_count(static_cast<uint64_t>(from.count));
  to.set_ns(static_cast<uint64_t>(from.nanoseconds));
}

}  // namespace

void AppendStatistics(const metrics::ModelStatistics& statistics, inference::ModelStatisticsResponse& response) {
  inference::ModelStatistics& model = *response.add_model_stats();
  model.set_name(statistics.name);
  model.set_version(statistics.version);
  model.set_last_inference(static_cast<uint64_t>(statistics.last_inference_ms));
  model.set_inference_count(static_cast<uint64_t>(statistics.inference_count));
  model.set_execution_count(static_cast<uint64_t>(statistics.execution_count));
  inference::InferStatistics& infer = *model.mutable_inference_stats();
  Fill(statistics.success, *infer.mutable_success());
  Fill(statistics.fail, *infer.mutable_fail());
  Fill(statistics.queue, *infer.mutable_queue());
  Fill(statistics.compute_input, *infer.mutable_compute_input());
  Fill(statistics.compute_infer, *infer.mutable_compute_infer());
  Fill(statistics.compute_output, *infer.mutable_compute_output());
  infer.mutable_cache_hit();
  infer.mutable_cache_miss();
  for (const metrics::BatchStatistics& batch : statistics.batch_stats) {
    inference::InferBatchStatistics& entry = *model.add_batch_stats();
    entry.set_batch_size(static_cast<uint64_t>(batch.rows));
    Fill(batch.compute_input, *entry.mutable_compute_input());
    Fill(batch.compute_infer, *entry.mutable_compute_infer());
    Fill(batch.compute_output, *entry.mutable_compute_output());
  }
}

}  // namespace sluice::server
