// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/executor.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/slot_pool.h"
#include "server/execution/micro_batch.h"
#include "server/execution/stage_records.h"

namespace sluice::server {
namespace {

/// The rows of one request within the execution.
struct RequestRows {
  int64_t first_row = 0;
  int64_t row_count = 0;
};

struct InFlight {
  gpu::SlotLease lease;
  gpu::Execution execution;
  MicroBatch part;
  uint32_t index = 0;  ///< Of the part in its execution.
  Time copy_in_start, copy_in_end;
};

class Run {
 public:
  Run(const ExecutableModel& model, const ExecutionPlace& place, const std::vector<QueuedInfer>& requests, Time taken,
      ResponseReservation reservation)
      : instance_(*model.instance),
        lane_(place.lane),
        gate_(place.gate),
        clock_(place.clock),
        timeline_(place.timeline),
        slot_wait_(place.slot_wait),
        requests_(requests),
        taken_(taken),
        reservation_(std::move(reservation)) {
    for (const QueuedInfer& queued : requests_) {
      rows_.push_back({.first_row = total_rows_, .row_count = queued.request->rows});
      total_rows_ += queued.request->rows;
    }
    plans_ = instance_.plans(requests_.front().request->shape_bucket);
  }

  ExecutionOutcome Go();

 private:
  /// Empty when there was none in time, or an older part failed meanwhile: the outcome has the reason.
  gpu::SlotLease TakeSlot(gpu::SlotPool& pool);
  gpu::SlotLease AwaitSlot(gpu::SlotPool& pool);
  void Begin(const MicroBatch& part);
  void FinishOldest();
  void CopyIn(const MicroBatch& part, const gpu::Slot& slot);
  void CopyOut(const MicroBatch& part, const gpu::Slot& slot);
  void WriteOut(size_t request_index, size_t requested_index, size_t offset, std::span<const std::byte> bytes);
  /// The request has its answer, for something that is its client's; the first one counts.
  void Fail(size_t request_index, absl::string_view tensor_kind, absl::string_view tensor, const absl::Status& status);
  bool Failed(size_t request_index) const {
    return !outcome_.failures.empty() && !outcome_.failures[request_index].ok();
  }
  absl::Status PrepareResults();
  bool AllStopped() const;
  void ReleaseTokens(size_t from);
  void FillTimings();
  void RecordStages(const InFlight& finished, const gpu::StageTimes& times);

  template <class F>
  void ForEachOverlap(const MicroBatch& part, F&& f) const {
    for (size_t i = 0; i < requests_.size(); ++i) {
      const int64_t begin = std::max(part.first_row, rows_[i].first_row);
      const int64_t end = std::min(part.first_row + part.row_count, rows_[i].first_row + rows_[i].row_count);
      if (begin < end) f(i, begin - rows_[i].first_row, begin - part.first_row, end - begin);
    }
  }

  ModelInstance& instance_;
  gpu::Lane& lane_;
  gpu::Gate& gate_;
  const Clock& clock_;
  gpu::Timeline& timeline_;
  const absl::Duration slot_wait_;
  const std::vector<QueuedInfer>& requests_;
  const Time taken_;
  ResponseReservation reservation_;
  std::vector<RequestRows> rows_;
  int64_t total_rows_ = 0;
  std::span<const PreparedPlan> plans_;
  std::deque<InFlight> in_flight_;
  absl::Duration copy_in_, h2d_, gpu_wait_, compute_, d2h_;
  bool first_finished_ = false;
  size_t begun_ = 0;
  ExecutionOutcome outcome_;
};

ExecutionOutcome Run::Go() {
  outcome_.rows = total_rows_;
  for (const QueuedInfer& queued : requests_) RecordQueue(timeline_, *queued.request, taken_);
  // A token that waited in the queue may have lapsed; from now the work is as near as when it was first announced.
  gate_.Reannounce(requests_.front().token, taken_ + instance_.copy_in_time().value());
  outcome_.status = PrepareResults();
  Time first_begin = Time::Infinite();
  const std::span<const int64_t> plan_rows =
      instance_.plan_rows(requests_.front().request->shape_bucket, lane_.request_class());
  for (const MicroBatch& part : CutRows(total_rows_, plan_rows, lane_.request_class())) {
    if (!outcome_.status.ok()) break;
    if (AllStopped()) {
      outcome_.status = absl::CancelledError("nobody waits for this request any more");
      break;
    }
    if (first_begin.is_infinite()) first_begin = clock_.Now();
    Begin(part);
  }
  while (!in_flight_.empty()) FinishOldest();
  if (begun_ == 0) ReleaseTokens(0);
  if (!first_begin.is_infinite()) outcome_.device_time = clock_.Now() - first_begin;
  // Parts overlap, each counting the other's time while it waits between its units; together they take no longer than
  // the execution did.
  compute_ = std::min(compute_, outcome_.device_time);
  FillTimings();
  return std::move(outcome_);
}

gpu::SlotLease Run::TakeSlot(gpu::SlotPool& pool) {
  // A slot that is free now, else the one that the oldest part in flight gives back, else wait for another thread's:
  // it holds one and finishes without needing more, so this wait ends.
  while (outcome_.status.ok()) {
    if (gpu::SlotLease lease = pool.TryAcquire()) return lease;
    if (in_flight_.empty()) return AwaitSlot(pool);
    FinishOldest();
  }
  return {};
}

gpu::SlotLease Run::AwaitSlot(gpu::SlotPool& pool) {
  ++outcome_.slot_waits;
  Time last_deadline = Time::Zero();
  for (const QueuedInfer& queued : requests_) last_deadline = std::max(last_deadline, queued.request->deadline);
  const Time bound = clock_.Now() + slot_wait_;
  gpu::SlotLease lease = pool.Acquire(clock_, std::min(bound, last_deadline),
                                      requests_.size() == 1 ? &requests_.front().request->stopped : nullptr);
  if (lease) return lease;
  if (AllStopped()) {
    outcome_.status = absl::CancelledError("nobody waits for this request any more");
  } else if (last_deadline <= bound) {
    outcome_.status = absl::DeadlineExceededError("the deadline passed before a slot was free");
  } else {
    outcome_.slot_timeout = true;
    outcome_.status = absl::UnavailableError(
        absl::StrCat("Request timeout expired: waited ", absl::ToInt64Milliseconds(slot_wait_),
                     " ms (--slot-wait-ms) for one of the ", pool.size(), " slots of model '", instance_.served().name,
                     "' in class ", RequestClassName(lane_.request_class())));
  }
  return lease;
}

void Run::Begin(const MicroBatch& part) {
  // A standard execution returns its units' room at the gate on this very thread, so the next one would wait for
  // itself.
  while (lane_.request_class() == RequestClass::kStandard && !in_flight_.empty()) FinishOldest();
  const auto class_index = static_cast<size_t>(lane_.request_class());
  gpu::SlotLease lease = TakeSlot(*plans_[part.plan_index].slots[class_index]);
  if (!lease || !outcome_.status.ok()) return;  // an older part may have failed while this one waited

  const Time copy_start = clock_.Now();
  CopyIn(part, *lease);
  const Time copy_end = clock_.Now();
  copy_in_ += copy_end - copy_start;
  if (!outcome_.failures.empty() && AllStopped()) {
    outcome_.status = absl::CancelledError("no request of this execution has its inputs");
    return;
  }
  outcome_.profile += plans_[part.plan_index].plan->profile();

  InFlight& started = in_flight_.emplace_back();
  started.part = part;
  started.index = static_cast<uint32_t>(begun_);
  started.copy_in_start = copy_start;
  started.copy_in_end = copy_end;
  started.execution.request = requests_.front().request->id.value();
  started.execution.slot = lease.get();
  started.lease = std::move(lease);
  if (begun_ == 0) started.execution.token = requests_.front().token;
  if (requests_.size() == 1) started.execution.stop = &requests_.front().request->stopped;
  lane_.Begin(started.execution);
  // From here the first request's token speaks for those merged with it.
  if (begun_++ == 0) ReleaseTokens(1);
}

void Run::FinishOldest() {
  InFlight& oldest = in_flight_.front();  // not moved: the launcher knows the execution by its address
  const absl::StatusOr<gpu::StageTimes> times = lane_.Finish(oldest.execution);
  if (!times.ok()) {
    if (outcome_.status.ok()) outcome_.status = times.status();
    in_flight_.pop_front();
    return;
  }
  h2d_ += times->h2d;
  compute_ += times->compute;
  d2h_ += times->d2h;
  // Later parts wait for the earlier ones of the same request, which is not waiting for the device.
  if (!first_finished_) gpu_wait_ = times->gpu_wait;
  first_finished_ = true;
  outcome_.device_end = std::max(outcome_.device_end, times->d2h_start + times->d2h);
  RecordStages(oldest, *times);
  if (outcome_.status.ok()) CopyOut(oldest.part, *oldest.lease);
  in_flight_.pop_front();
}

void Run::RecordStages(const InFlight& finished, const gpu::StageTimes& times) {
  if (!timeline_.recording()) return;
  const PartTimes part_times{finished.copy_in_start, finished.copy_in_end, times};
  ForEachOverlap(finished.part, [&](size_t i, int64_t, int64_t, int64_t count) {
    RecordPart(timeline_, *requests_[i].request, finished.index, count, part_times);
  });
}

void Run::CopyIn(const MicroBatch& part, const gpu::Slot& slot) {
  const PreparedPlan& plan = plans_[part.plan_index];
  for (size_t input = 0; input < slot.inputs.size(); ++input) {
    const size_t row_bytes = instance_.InputRowBytes(plan, input);
    std::byte* const base = slot.inputs[input].pinned.data;
    ForEachOverlap(part, [&](size_t i, int64_t request_row, int64_t part_row, int64_t count) {
      const size_t bytes = static_cast<size_t>(count) * row_bytes;
      std::byte* const to = base + static_cast<size_t>(part_row) * row_bytes;
      const absl::Status status =
          CopyFromInput(requests_[i].request->inputs[input], static_cast<size_t>(request_row) * row_bytes, bytes, to);
      if (status.ok()) return;
      std::memset(to, 0, bytes);  // as padding
      Fail(i, "input", instance_.served().inputs[input].name, status);
    });
    const auto filled = static_cast<size_t>(part.row_count);
    const auto rows = static_cast<size_t>(plan.rows);
    // Padding is zeroed: a NaN left there by an earlier request could slow kernels down.
    if (filled < rows) std::memset(base + filled * row_bytes, 0, (rows - filled) * row_bytes);
  }
}

absl::Status Run::PrepareResults() {
  outcome_.results.resize(requests_.size());
  for (size_t i = 0; i < requests_.size(); ++i) {
    const InferRequest& request = *requests_[i].request;
    for (size_t j = 0; j < request.requested_outputs.size(); ++j) {
      const size_t output = request.requested_outputs[j];
      ResponseOutput& response = outcome_.results[i].outputs.emplace_back();
      response.output_index = output;
      response.shape = plans_.front().plan->output_shapes()[output];
      if (request.model->max_batch_size >= 1) response.shape[0] = request.rows;
      if (request.OutputRegion(j) != nullptr) continue;
      const size_t bytes = instance_.OutputRowBytes(plans_.front(), output) * static_cast<size_t>(request.rows);
      if (bytes <= ResponsePool::kSmallBytes) {
        response.bytes.resize(bytes);
        continue;
      }
      response.pooled = reservation_.Take(bytes);
      if (!response.pooled) return absl::InternalError("less response memory was reserved than the outputs take");
    }
  }
  return absl::OkStatus();
}

void Run::CopyOut(const MicroBatch& part, const gpu::Slot& slot) {
  const PreparedPlan& plan = plans_[part.plan_index];
  ForEachOverlap(part, [&](size_t i, int64_t request_row, int64_t part_row, int64_t count) {
    for (size_t j = 0; j < outcome_.results[i].outputs.size(); ++j) {
      ResponseOutput& response = outcome_.results[i].outputs[j];
      const size_t row_bytes = instance_.OutputRowBytes(plan, response.output_index);
      const size_t bytes = static_cast<size_t>(count) * row_bytes;
      const size_t offset = static_cast<size_t>(request_row) * row_bytes;
      const std::byte* const from =
          slot.outputs[response.output_index].pinned.data + static_cast<size_t>(part_row) * row_bytes;
      if (requests_[i].request->OutputRegion(j) != nullptr) {
        WriteOut(i, j, offset, {from, bytes});
        continue;
      }
      std::byte* const base =
          response.pooled ? response.pooled.bytes().data() : reinterpret_cast<std::byte*>(response.bytes.data());
      std::memcpy(base + offset, from, bytes);
    }
  });
}

void Run::WriteOut(size_t request_index, size_t requested_index, size_t offset, std::span<const std::byte> bytes) {
  const InferRequest& request = *requests_[request_index].request;
  // Who has been answered may be using the memory for something else by now.
  if (Failed(request_index) || request.stopped.load(std::memory_order_acquire)) return;
  const SharedMemorySlice& slice = *request.OutputRegion(requested_index);
  const absl::Status status = slice.region->Write(slice.offset + offset, bytes);
  if (status.ok()) return;
  const size_t output = request.requested_outputs[requested_index];
  Fail(request_index, "output", instance_.served().outputs[output].name, status);
}

void Run::Fail(size_t request_index, absl::string_view tensor_kind, absl::string_view tensor,
               const absl::Status& status) {
  if (Failed(request_index)) return;
  outcome_.failures.resize(requests_.size());
  outcome_.failures[request_index] =
      absl::Status(status.code(), absl::StrCat(tensor_kind, " '", tensor, "': ", status.message()));
}

bool Run::AllStopped() const {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (!Failed(i) && !requests_[i].request->stopped.load(std::memory_order_acquire)) return false;
  }
  return true;
}

void Run::ReleaseTokens(size_t from) {
  for (size_t i = from; i < requests_.size(); ++i) {
    if (requests_[i].token) gate_.Release(requests_[i].token, /*entered_device=*/false);
  }
}

void Run::FillTimings() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    RequestTimings& timings = outcome_.results[i].timings;
    timings.queue = std::max(absl::ZeroDuration(), taken_ - requests_[i].request->arrival);
    timings.copy_in = copy_in_;
    timings.h2d = h2d_;
    timings.gpu_wait = gpu_wait_;
    timings.compute = compute_;
    timings.d2h = d2h_;
  }
}

}  // namespace

size_t PooledResponseBytes(const ModelInstance& instance, const InferRequest& request) {
  const PreparedPlan& plan = instance.plans(request.shape_bucket).front();
  size_t sum = 0;
  for (size_t i = 0; i < request.requested_outputs.size(); ++i) {
    if (request.OutputRegion(i) != nullptr) continue;
    const size_t output = request.requested_outputs[i];
    sum += ResponsePool::PooledBytes(instance.OutputRowBytes(plan, output) * static_cast<size_t>(request.rows));
  }
  return sum;
}

absl::Status CheckOutputRegions(const ModelInstance& instance, const InferRequest& request) {
  for (size_t i = 0; i < request.output_regions.size(); ++i) {
    const SharedMemorySlice* const slice = request.OutputRegion(i);
    if (slice == nullptr) continue;
    const size_t output = request.requested_outputs[i];
    const size_t bytes = instance.OutputRowBytes(instance.plans(request.shape_bucket).front(), output) *
                         static_cast<size_t>(request.rows);
    if (bytes <= slice->byte_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("shared memory size specified with the request for output '",
                                                   request.model->outputs[output].name, "' (", slice->byte_size,
                                                   " bytes) should be at least ", bytes, " bytes to hold the results"));
  }
  return absl::OkStatus();
}

ExecutionOutcome RunExecution(const ExecutableModel& model, const ExecutionPlace& place,
                              const std::vector<QueuedInfer>& requests, Time taken, ResponseReservation reservation) {
  return Run(model, place, requests, taken, std::move(reservation)).Go();
}

}  // namespace sluice::server
