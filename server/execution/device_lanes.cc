// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/device_lanes.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/kernels/library.h"
#include "server/execution/stage_records.h"
#include "server/execution/transfer_tuning.h"

namespace sluice::server {
namespace {

/// Batch request threads only copy in and answer; they give way to everything else that wants a CPU.
constexpr int kBatchNice = 5;

metrics::RejectReason RejectReasonOf(scheduler::Refusal refusal) {
  switch (refusal) {
    case scheduler::Refusal::kQueueFull:
    case scheduler::Refusal::kModelQueueFull:
      return metrics::RejectReason::kQueueFull;
    case scheduler::Refusal::kBytesFull:
      return metrics::RejectReason::kQueueBytes;
    case scheduler::Refusal::kDeadlinePassed:
    case scheduler::Refusal::kDeadlineUnreachable:
    case scheduler::Refusal::kQueueTimeoutPassed:
      return metrics::RejectReason::kDeadline;
    case scheduler::Refusal::kDraining:
      return metrics::RejectReason::kDraining;
    default:
      return metrics::RejectReason::kUnknownModel;
  }
}

bool IsOverload(scheduler::Refusal refusal) {
  return refusal == scheduler::Refusal::kQueueFull || refusal == scheduler::Refusal::kModelQueueFull ||
         refusal == scheduler::Refusal::kBytesFull;
}

/// Tells clients that retry by themselves when there may be room: after what waits now, or a little later while nothing
/// has been measured.
void AddRetryHint(absl::Duration predicted_delay, absl::Status& status) {
  const absl::Duration hint = std::clamp(predicted_delay, absl::Milliseconds(50), absl::Seconds(10));
  status.SetPayload(kRetryPushbackUrl, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(hint))));
}

metrics::Phase PhaseOf(scheduler::RequestPlace place) {
  return place == scheduler::RequestPlace::kExecuting ? metrics::Phase::kExecuting : metrics::Phase::kQueue;
}

}  // namespace

DeviceLanes::DeviceLanes(std::unique_ptr<gpu::Device> device, size_t device_index, const ServerConfig& config,
                         const Clock& clock, metrics::Metrics& metrics)
    : device_(std::move(device)),
      device_index_(device_index),
      clock_(clock),
      metrics_(metrics),
      slot_wait_(config.slot_wait),
      strict_class_(config.strict_class),
      latency_share_(config.max_latency_share) {}

absl::StatusOr<std::unique_ptr<DeviceLanes>> DeviceLanes::Create(std::unique_ptr<gpu::Device> device,
                                                                 size_t device_index, const ServerConfig& config,
                                                                 const Clock& clock, metrics::Metrics& metrics,
                                                                 scheduler::ExpiryThread& expiry,
                                                                 std::shared_ptr<ResponsePool> responses,
                                                                 const SpinBudget& spin) {
  std::unique_ptr<DeviceLanes> lanes(new DeviceLanes(std::move(device), device_index, config, clock, metrics));
  lanes->responses_ = std::move(responses);
  lanes->timeline_ = std::make_unique<gpu::Timeline>(static_cast<size_t>(config.trace_records), clock);
  SLUICE_ASSIGN_OR_RETURN(lanes->transfer_tuning_, TuneTransfers(*lanes->device_, config, clock));
  lanes->gate_ = std::make_unique<gpu::Gate>(gpu::GateOptions{.compute_window = config.compute_window,
                                                              .handover = config.unit_handover,
                                                              .copy_window = lanes->transfer_tuning_.copy_window,
                                                              .batch_min_share = config.batch_min_share,
                                                              .enabled = config.gate});
  lanes->gate_->SetTimeline(lanes->timeline_.get());
  lanes->load_turns_ = std::make_unique<gpu::GateTurns>(*lanes->gate_, clock);
  lanes->device_->kernels().SetLoadTurns(lanes->load_turns_.get());
  SLUICE_RETURN_IF_ERROR(lanes->CreateLanes(config, expiry, spin));
  lanes->StartThreads(spin);
  return lanes;
}

absl::Status DeviceLanes::CreateLanes(const ServerConfig& config, scheduler::ExpiryThread& expiry,
                                      const SpinBudget& spin) {
  const bool on_gpu = device_->info().backend == gpu::Backend::kCuda;
  launcher_polls_ = on_gpu && spin.launchers;
  request_threads_ = config.request_threads;
  latency_threads_ = on_gpu ? LatencyThreads(spin, request_threads_) : request_threads_;
  standard_polls_ = on_gpu && spin.standard_threads;
  latency_polls_ = on_gpu && spin.latency_threads >= latency_threads_;
  SLUICE_ASSIGN_OR_RETURN(launcher_, gpu::Launcher::Create(*device_, *gate_, clock_,
                                                           {.stream_count = config.batch_streams,
                                                            .spin = launcher_polls_,
                                                            .timeline = timeline_.get(),
                                                            .chunk_bytes = transfer_tuning_.chunk_bytes}));
  const gpu::LaneOptions lane_options = {.latency_streams = latency_threads_,
                                         .polling_threads = on_gpu ? spin.latency_threads : 0,
                                         .timeline = timeline_.get(),
                                         .chunk_bytes = transfer_tuning_.chunk_bytes};
  for (const RequestClass request_class : kRequestClasses) {
    LaneState& state = lanes_[Index(request_class)];
    SLUICE_ASSIGN_OR_RETURN(state.lane,
                            gpu::Lane::Create(request_class, *device_, *gate_, *launcher_, clock_, lane_options));
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int> priorities, state.lane->ReadPriorities());
    if (priorities.empty()) return absl::InternalError("a lane without streams");
    const auto [lowest, highest] = std::minmax_element(priorities.begin(), priorities.end());
    state.lowest_number = *lowest;
    state.highest_number = *highest;
    Log(Severity::kInfo, "stream priority read back",
        {{"device", device_->info().name},
         {"class", RequestClassName(request_class)},
         {"streams", priorities.size()},
         {"priority", *highest}});
    scheduler::CoreOptions options;
    options.request_class = request_class;
    options.max_requests = static_cast<size_t>(config.queue_requests);
    options.max_bytes = static_cast<size_t>(config.queue_bytes);
    options.max_concurrent_executions = ThreadCount(request_class);
    options.response_wait =
        request_class == RequestClass::kLatency ? config.latency_response_wait : config.response_wait;
    state.memory = std::make_unique<LaneMemory>(responses_, request_class, [&state] { state.queue->MemoryFreed(); });
    state.queue = std::make_unique<InferQueue>(options, clock_, &expiry, state.memory.get());
    state.expiry_id = expiry.Register([queue = state.queue.get()] { return queue->NextExpiry(); },
                                      [this, request_class](Time now) { Expire(request_class, now); });
  }
  expiry_ = &expiry;
  queue_limit_ = static_cast<size_t>(config.queue_requests);
  return CheckPriorities();
}

void DeviceLanes::CompletePlanOptions(model::PlanOptions& options) const {
  options.max_transfer_bytes = transfer_tuning_.kernel_bytes;
  const auto wait = [](bool polls) { return polls ? gpu::WaitMode::kSpin : gpu::WaitMode::kBlock; };
  options.waits[Index(RequestClass::kLatency)] = wait(latency_polls_);
  options.waits[Index(RequestClass::kStandard)] = wait(standard_polls_);
  options.waits[Index(RequestClass::kBatch)] = wait(launcher_polls_);
}

absl::Status DeviceLanes::CheckPriorities() const {
  // A lane without its priority is a promise that is silently broken (DESIGN.md 3), so it does not start.
  const int latency = lanes_[Index(RequestClass::kLatency)].highest_number;
  for (const RequestClass request_class : {RequestClass::kStandard, RequestClass::kBatch}) {
    const int other = lanes_[Index(request_class)].lowest_number;
    if (latency < other) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(device_->info().name, ": the latency lane's streams must have a smaller priority number than the ",
                     RequestClassName(request_class), " lane's, got ", latency, " and ", other));
  }
  return absl::OkStatus();
}

void DeviceLanes::StartThreads(const SpinBudget& spin) {
  const int polling = device_->info().backend == gpu::Backend::kCuda ? spin.latency_threads : 0;
  for (const RequestClass request_class : kRequestClasses) {
    for (int i = 0; i < ThreadCount(request_class); ++i) {
      lanes_[Index(request_class)].threads.emplace_back(
          absl::StrCat(RequestClassName(request_class), "-", device_index_, "-", i),
          [this, request_class, polls = i < polling && request_class == RequestClass::kLatency] {
            RunRequestThread(request_class, polls);
          },
          request_class == RequestClass::kBatch ? kBatchNice : 0);
    }
  }
}

DeviceLanes::~DeviceLanes() { Stop(); }

absl::Status DeviceLanes::AddModel(const std::shared_ptr<const ExecutableModel>& model,
                                   const std::array<int, kRequestClassCount>& slot_counts) {
  const ServedModel& served = model->instance->served();
  const bool latency_capable = slot_counts[Index(RequestClass::kLatency)] > 0;
  for (const RequestClass request_class : kRequestClasses) {
    const int slots = slot_counts[Index(request_class)];
    if (slots == 0) continue;
    scheduler::ModelLimits limits;
    const QueueRules& rules = served.RulesFor(request_class);
    limits.max_queue_size = rules.max_queue_size;
    limits.max_batch_rows = std::max<int64_t>(1, served.max_batch_size);
    limits.merges_requests = rules.merges_requests && served.max_batch_size >= 1;
    limits.max_queue_delay = rules.max_queue_delay;
    limits.preferred_batch_sizes = rules.preferred_batch_sizes;
    limits.max_concurrent_executions = slots;
    if (!lanes_[Index(request_class)].queue->AddModel(served.id, limits)) {
      return absl::InternalError(absl::StrCat("model id ", served.id.value(), " was used twice"));
    }
  }
  {
    MutexLock lock(models_mutex_);
    models_[served.id] = Entry{model, latency_capable};
  }
  if (latency_capable) gate_->SetLatencyCapable(true);
  return absl::OkStatus();
}

void DeviceLanes::RemoveModel(ModelId id) {
  // Each request that waits holds its model, so there is none.
  for (LaneState& state : lanes_) state.queue->RemoveModel(id);
  bool latency_capable = false;
  {
    MutexLock lock(models_mutex_);
    models_.erase(id);
    for (const auto& [other, entry] : models_) latency_capable = latency_capable || entry.latency_capable;
  }
  gate_->SetLatencyCapable(latency_capable);
}

std::shared_ptr<const ExecutableModel> DeviceLanes::FindModel(ModelId model) const {
  MutexLock lock(models_mutex_);
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : found->second.model.lock();
}

std::vector<std::shared_ptr<const ExecutableModel>> DeviceLanes::Models() const {
  std::vector<std::shared_ptr<const ExecutableModel>> models;
  MutexLock lock(models_mutex_);
  models.reserve(models_.size());
  for (const auto& [id, entry] : models_) {
    if (auto model = entry.model.lock()) models.push_back(std::move(model));
  }
  return models;
}

absl::Duration DeviceLanes::PredictedDelay(RequestClass request_class) const {
  return lanes_[Index(request_class)].queue->PredictedDelay();
}

bool DeviceLanes::AdmitToLatencyClass(InferRequest& request, absl::Duration predicted, QueuedInfer& queued) {
  const Time now = clock_.Now();
  if (latency_share_.TryTake(predicted, now)) {
    queued.latency_share = predicted;
    return true;
  }
  // The ceiling is there for others; alone, the class may have everything.
  if (!others_.Contended(now)) return true;
  const std::optional<RequestClass> lower = request.model->class_rules.LowerAllowed(RequestClass::kLatency);
  if (lower.has_value() && !strict_class_) {
    request.request_class = *lower;
    queued.demoted = true;
    return true;
  }
  metrics_.OnRejected(RequestClass::kLatency, metrics::RejectReason::kLatencyShare);
  absl::Status status = absl::UnavailableError(
      absl::StrCat("class latency has asked for more than its share of ", device_->info().name,
                   " (--max-latency-share) while other work is there, and ",
                   lower.has_value() ? "--strict-class refuses a lower class" : "the model allows no lower class"));
  AddRetryHint(scheduler::LatencyShare::kAhead, status);
  request.Finish(std::move(status));
  return false;
}

void DeviceLanes::Submit(std::shared_ptr<InferRequest> request) {
  const std::shared_ptr<const ExecutableModel> model = FindModel(request->model->id);
  if (model == nullptr) {
    metrics_.OnRejected(request->request_class, metrics::RejectReason::kUnknownModel);
    request->Finish(absl::UnavailableError(absl::StrCat("model '", request->model->name, "' is not on this device")));
    return;
  }
  request->device_index = device_index_;
  // From here the queue's handle keeps the model. The request outlives its execution by however long its client takes
  // to read the answer, and must not keep a model's memory as long.
  request->model = model->instance->served_model();
  if (absl::Status status = CheckOutputRegions(*model->instance, *request); !status.ok()) {
    request->Finish(std::move(status));
    return;
  }
  QueuedInfer queued{.request = request, .model = model, .token = {}};
  if (request->request_class == RequestClass::kLatency &&
      !AdmitToLatencyClass(
          *request, model->instance->PredictedCompute(request->shape_bucket, request->rows, RequestClass::kLatency),
          queued)) {
    return;
  }
  const RequestClass request_class = request->request_class;
  const size_t response_bytes = PooledResponseBytes(*model->instance, *request);
  if (response_bytes > responses_->limit(request_class)) {
    metrics_.OnRejected(request_class, metrics::RejectReason::kNoMemory);
    latency_share_.GiveBack(queued.latency_share);
    request->Finish(absl::ResourceExhaustedError(
        absl::StrCat("the response would take ", response_bytes, " bytes of response memory, more than class ",
                     RequestClassName(request_class), " may ever hold (", responses_->limit(request_class),
                     " of --response-pool-bytes); ask for a smaller batch or fewer outputs")));
    return;
  }
  if (request_class == RequestClass::kLatency) {
    // Announced before it is queued, so that batch work drains while the request is still being prepared.
    const Time now = clock_.Now();
    queued.token = gate_->Announce(now, now + model->instance->copy_in_time().value());
  } else {
    neighbours_.Enter();
    if (!queued.demoted) others_.Enter();
  }
  scheduler::QueuedRequest facts;
  facts.id = request->id;
  facts.model = request->model->id;
  facts.shape_bucket = static_cast<uint32_t>(request->shape_bucket);
  facts.rows = request->rows;
  facts.bytes = request->bytes;
  facts.response_bytes = response_bytes;
  facts.arrival = request->arrival;
  facts.deadline = request->deadline;
  facts.queue_deadline = request->queue_deadline;
  scheduler::Prediction prediction;
  prediction.execution = model->instance->PredictedCompute(request->shape_bucket, request->rows, request_class);
  model->metrics->AddPending(1);
  auto submission = lanes_[Index(request_class)].queue->Submit(queued, facts, prediction);
  if (submission.admission.admitted()) return;
  model->metrics->AddPending(-1);
  metrics_.OnRejected(request_class, RejectReasonOf(submission.admission.refusal));
  Leave(queued);
  absl::Status status = scheduler::RefusalStatus(submission.admission.refusal);
  if (IsOverload(submission.admission.refusal)) AddRetryHint(PredictedDelay(request_class), status);
  request->Finish(std::move(status));
}

void DeviceLanes::Cancel(const std::shared_ptr<InferRequest>& request) {
  request->stopped.store(true, std::memory_order_release);
  auto cancellation = lanes_[Index(request->request_class)].queue->Cancel(request->id);
  if (!cancellation.request.has_value()) return;
  metrics_.OnCancelled(request->request_class, PhaseOf(cancellation.place));
  AnswerEarly(*cancellation.request, cancellation.place, absl::CancelledError("the client cancelled the request"));
}

void DeviceLanes::Expire(RequestClass request_class, Time now) {
  for (auto& expiry : lanes_[Index(request_class)].queue->Expire(now)) {
    expiry.request.request->stopped.store(true, std::memory_order_release);
    metrics_.OnExpired(request_class, PhaseOf(expiry.expired.place));
    absl::Status status = scheduler::ExpiryStatus(expiry.expired.reason);
    if (expiry.expired.reason == scheduler::ExpiryReason::kResponseWait) {
      responses_->CountTimeout(request_class);
      AddRetryHint(PredictedDelay(request_class), status);
    }
    AnswerEarly(expiry.request, expiry.expired.place, std::move(status));
  }
}

void DeviceLanes::AnswerEarly(QueuedInfer& queued, scheduler::RequestPlace place, absl::Status status) {
  if (place == scheduler::RequestPlace::kQueued) {
    RecordQueue(*timeline_, *queued.request, clock_.Now(), status.code());
    // It never starts, so nobody else releases its token or counts it out.
    CountStarted(queued);
    Leave(queued);
  }
  queued.request->Finish(std::move(status));
}

void DeviceLanes::CountStarted(const QueuedInfer& queued) { queued.model->metrics->AddPending(-1); }

void DeviceLanes::Leave(const QueuedInfer& queued) {
  latency_share_.GiveBack(queued.latency_share);
  if (queued.token) gate_->Release(queued.token, /*entered_device=*/false);
  if (queued.request->request_class != RequestClass::kLatency) LeaveNeighbours(queued);
}

void DeviceLanes::LeaveNeighbours(const QueuedInfer& queued) {
  const Time now = clock_.Now();
  neighbours_.Leave(now);
  if (!queued.demoted) others_.Leave(now);
}

void DeviceLanes::RunRequestThread(RequestClass request_class, bool polls) {
  LaneState& state = lanes_[Index(request_class)];
  const ExecutionPlace place{*state.lane, *gate_, clock_, *timeline_, slot_wait_};
  while (auto execution = state.queue->Take(polls)) {
    const Time taken = clock_.Now();
    const std::shared_ptr<const ExecutableModel> model = execution->requests.front().model;
    for (const QueuedInfer& queued : execution->requests) CountStarted(queued);
    ExecutionOutcome outcome =
        RunExecution(*model, place, execution->requests, taken, state.memory->Adopt(execution->pick.response_bytes));
    const Time device_end = std::max(outcome.device_end, taken);
    state.slot_waits.fetch_add(outcome.slot_waits, std::memory_order_relaxed);
    if (outcome.slot_timeout) {
      state.slot_timeouts.fetch_add(1, std::memory_order_relaxed);
      AddRetryHint(PredictedDelay(request_class), outcome.status);
    }
    Record(*model, request_class, outcome);
    const auto measured = outcome.status.ok() ? std::optional(outcome.device_time) : std::nullopt;
    const std::vector<QueuedInfer> unanswered = state.queue->OnCompleted(execution->pick.execution, measured);
    if (request_class == RequestClass::kLatency) {
      GiveBackMerged(*execution, outcome);
    } else {
      for (const QueuedInfer& queued : execution->requests) LeaveNeighbours(queued);
    }
    Answer(*execution, unanswered, outcome, device_end);
  }
}

void DeviceLanes::GiveBackMerged(const InferQueue::Execution& execution, const ExecutionOutcome& outcome) {
  absl::Duration taken;
  for (const QueuedInfer& queued : execution.requests) taken += queued.latency_share;
  // Less than the parts alone. Nothing ran when the profile is not there.
  latency_share_.GiveBack(std::max(taken - outcome.profile, absl::ZeroDuration()));
}

void DeviceLanes::Answer(const InferQueue::Execution& execution, const std::vector<QueuedInfer>& unanswered,
                         ExecutionOutcome& outcome, Time device_end) {
  for (const QueuedInfer& queued : unanswered) {
    const auto index =
        static_cast<size_t>(std::find_if(execution.requests.begin(), execution.requests.end(),
                                         [&](const QueuedInfer& other) { return other.request == queued.request; }) -
                            execution.requests.begin());
    absl::Status status = outcome.failures.empty() ? absl::OkStatus() : outcome.failures[index];
    if (status.ok() && !outcome.status.ok()) status = OutcomeStatus(outcome);
    const absl::StatusCode code = status.code();
    if (status.ok()) {
      queued.request->Finish(std::move(outcome.results[index]));
    } else {
      queued.request->Finish(std::move(status));
    }
    RecordRespond(*timeline_, *queued.request, device_end, code);
  }
}

absl::Status DeviceLanes::OutcomeStatus(const ExecutionOutcome& outcome) const {
  // Whatever the device said first, the client is to try elsewhere.
  if (!device_->lost() || absl::IsCancelled(outcome.status)) return outcome.status;
  return absl::UnavailableError(absl::StrCat(device_->info().name, " is lost: ", outcome.status.message()));
}

void DeviceLanes::Record(const ExecutableModel& model, RequestClass request_class, const ExecutionOutcome& outcome) {
  if (!outcome.status.ok()) {
    const Severity severity = absl::IsCancelled(outcome.status) ? Severity::kInfo
                              : outcome.slot_timeout            ? Severity::kWarning
                                                                : Severity::kError;
    Log(severity, "execution did not complete",
        {{"model", model.instance->served().name},
         {"device", device_->info().name},
         {"class", RequestClassName(request_class)},
         {"error", outcome.status.ToString()}});
    return;
  }
  const RequestTimings& timings = outcome.results.front().timings;
  metrics::ExecutionRecord record;
  record.rows = outcome.rows;
  record.input = timings.copy_in + timings.h2d;
  record.infer = timings.gpu_wait + timings.compute;
  record.output = timings.d2h;
  record.finished = clock_.Now();
  model.metrics->OnExecution(record);
  if (request_class == RequestClass::kLatency) {
    model.instance->copy_in_time().Add(timings.copy_in + timings.h2d);
    model.metrics->ObserveInterference(static_cast<int>(device_index_), timings.compute, outcome.profile);
  }
}

void DeviceLanes::SetPolling(bool polls) {
  for (LaneState& state : lanes_) state.queue->SetPolling(polls);
}

void DeviceLanes::Drain() {
  for (LaneState& state : lanes_) state.queue->SetDraining(true);
}

bool DeviceLanes::Idle() const {
  for (const LaneState& state : lanes_) {
    const scheduler::CoreCounts counts = state.queue->counts();
    if (counts.queued + counts.executions > 0) return false;
  }
  return true;
}

void DeviceLanes::Stop() {
  if (stopped_.exchange(true)) return;
  for (LaneState& state : lanes_) {
    if (state.queue == nullptr) continue;
    for (QueuedInfer& queued : state.queue->Stop()) {
      AnswerEarly(queued, scheduler::RequestPlace::kQueued, absl::UnavailableError("the server is shutting down"));
    }
  }
  // The launcher first: it settles what it has, so that no request thread waits for the gate any more.
  if (launcher_ != nullptr) launcher_->Stop();
  for (LaneState& state : lanes_) state.threads.clear();  // joins
  for (LaneState& state : lanes_) {
    if (expiry_ != nullptr && state.queue != nullptr) expiry_->Unregister(state.expiry_id);
  }
}

}  // namespace sluice::server
