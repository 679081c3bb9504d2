// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/model_metrics.h"

#include <algorithm>

namespace sluice::metrics {

ModelMetrics::ModelMetrics(ServerCells& server, NameCells& cells, std::string version)
    : server_(server), cells_(cells), version_(std::move(version)) {}

void ModelMetrics::OnRequest(const RequestRecord& record) {
  const size_t class_index = ClassIndex(record.request_class);
  const int64_t duration_ns = server_.Clamp(record.duration);
  NameCells::RequestCells& requests = cells_.requests[server_.CellIndex(class_index, record.device)].Get();
  requests.codes.Add(CodeIndex(record.code), 1);
  if (record.code == absl::StatusCode::kOk) {
    requests.durations[record.contended ? 1 : 0].Get(server_.edges).Observe(duration_ns);
    OnSuccess(record, duration_ns);
    return;
  }
  counters_.Add(kFail, 1);
  counters_.Add(kFailNs, duration_ns);
  counters_.Add(kFirstFailureReason + static_cast<size_t>(FailureReasonOf(record.code)), 1);
}

void ModelMetrics::OnSuccess(const RequestRecord& record, int64_t duration_ns) {
  std::array<int64_t, kStageCount> ns;
  StageCells& stages =
      server_.stages[server_.CellIndex(ClassIndex(record.request_class), record.device)].Get(server_.edges);
  for (size_t i = 0; i < kStageCount; ++i) {
    ns[i] = server_.Clamp(record.stages[i]);
    stages.histograms[i].Observe(ns[i]);
  }
  const auto stage = [&ns](Stage which) { return ns[static_cast<size_t>(which)]; };
  counters_.Add(kSuccess, 1);
  counters_.Add(kSuccessNs, duration_ns);
  counters_.Add(kQueueNs, stage(Stage::kQueue));
  counters_.Add(kInputNs, stage(Stage::kCopyIn) + stage(Stage::kH2d));
  counters_.Add(kInferNs, stage(Stage::kGpuWait) + stage(Stage::kCompute));
  counters_.Add(kOutputNs, stage(Stage::kD2h) + stage(Stage::kRespond));
  counters_.Add(kInferences, record.rows);
}

void ModelMetrics::OnExecution(const ExecutionRecord& record) {
  counters_.Add(kExecutions, 1);
  // Keep the latest: executions may be reported out of order.
  const int64_t finished = record.finished.nanoseconds();
  int64_t last = last_execution_ns_.load(std::memory_order_relaxed);
  while (last < finished && !last_execution_ns_.compare_exchange_weak(last, finished, std::memory_order_relaxed)) {
  }
  if (record.rows < 1 || record.rows > kMostListedRows) return;
  const auto rows = static_cast<size_t>(record.rows);
  const size_t first_rows = std::bit_floor(rows);
  BatchBlock& block = batches_[std::bit_width(rows) - 1].Get(first_rows);
  StripedCounters& batch = block.by_rows[rows - first_rows].Get().counters;
  batch.Add(kBatchExecutions, 1);
  batch.Add(kBatchInputNs, server_.Clamp(record.input));
  batch.Add(kBatchInferNs, server_.Clamp(record.infer));
  batch.Add(kBatchOutputNs, server_.Clamp(record.output));
}

void ModelMetrics::ObserveInterference(int device, absl::Duration measured, absl::Duration alone) {
  if (device < 0 || static_cast<size_t>(device) >= cells_.interference.size()) return;
  // Faster than the profile is ordinary jitter, not a clock error.
  const absl::Duration extra = std::max(absl::ZeroDuration(), measured - alone);
  cells_.interference[static_cast<size_t>(device)].Get(server_.edges).Observe(server_.Clamp(extra));
}

ModelStatistics ModelMetrics::Snapshot(Time now, absl::Time wall_now) const {
  ModelStatistics statistics;
  statistics.name = name();
  statistics.version = version_;
  const int64_t last = last_execution_ns_.load(std::memory_order_relaxed);
  if (last >= 0) statistics.last_inference_ms = absl::ToUnixMillis(wall_now - (now - Time::FromNanoseconds(last)));
  statistics.inference_count = counters_.Sum(kInferences);
  statistics.execution_count = counters_.Sum(kExecutions);
  const int64_t successes = counters_.Sum(kSuccess);
  statistics.success = {successes, counters_.Sum(kSuccessNs)};
  statistics.fail = {counters_.Sum(kFail), counters_.Sum(kFailNs)};
  statistics.queue = {successes, counters_.Sum(kQueueNs)};
  statistics.compute_input = {successes, counters_.Sum(kInputNs)};
  statistics.compute_infer = {successes, counters_.Sum(kInferNs)};
  statistics.compute_output = {successes, counters_.Sum(kOutputNs)};
  for (size_t i = 0; i < kBatchBlockCount; ++i) {
    const BatchBlock* block = batches_[i].get();
    if (block == nullptr) continue;
    for (size_t offset = 0; offset < block->by_rows.size(); ++offset) {
      const BatchCells* batch = block->by_rows[offset].get();
      if (batch == nullptr) continue;
      const int64_t count = batch->counters.Sum(kBatchExecutions);
      statistics.batch_stats.push_back({static_cast<int64_t>((size_t{1} << i) + offset),
                                        {count, batch->counters.Sum(kBatchInputNs)},
                                        {count, batch->counters.Sum(kBatchInferNs)},
                                        {count, batch->counters.Sum(kBatchOutputNs)}});
    }
  }
  return statistics;
}

}  // namespace sluice::metrics
