// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/isolation/bare_loop.h"

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/cpu_relax.h"
#include "base/status_macros.h"
#include "bench/common/output.h"
#include "bench/common/statistics.h"
#include "gpu/slot.h"
#include "gpu/transfer.h"

namespace sluice::bench {
namespace {

constexpr double kMostAddedUs = 15;
constexpr int kWarmup = 200;
/// Looks at the end stamp between two questions to the driver, which alone knows of errors; as the latency lane.
constexpr int kLooksPerQuery = 1024;

/// Where the time of each call went, in us.
struct Stages {
  Numbers total, queue, copy_in, device, rest;

  void Add(absl::Duration all, absl::Duration queued, absl::Duration copied_in, absl::Duration on_device) {
    total.push_back(absl::ToDoubleMicroseconds(all));
    queue.push_back(absl::ToDoubleMicroseconds(queued));
    copy_in.push_back(absl::ToDoubleMicroseconds(copied_in));
    device.push_back(absl::ToDoubleMicroseconds(on_device));
    rest.push_back(absl::ToDoubleMicroseconds(all - queued - copied_in - on_device));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<BareLoop>> BareLoop::Create(House& house, const HouseModel& model,
                                                           const Payload& payload) {
  const server::PreparedPlan& plan = model.instance->plans(0).front();
  gpu::SlotPool* const slots = plan.slots[static_cast<size_t>(RequestClass::kLatency)].get();
  gpu::SlotLease slot = slots == nullptr || plan.rows != payload.rows() ? gpu::SlotLease() : slots->TryAcquire();
  if (!slot) {
    return absl::UnavailableError(
        absl::StrCat("model '", model.served->name, "' has no free latency slot for ", payload.rows(), " rows"));
  }
  std::unique_ptr<BareLoop> loop(new BareLoop(house, payload, std::move(slot)));
  SLUICE_ASSIGN_OR_RETURN(loop->stream_, house.device().CreateStream(gpu::StreamPriority::kHigh));
  for (const gpu::SlotTensor& output : loop->slot_->outputs) loop->outputs_.emplace_back(output.pinned.size_bytes);
  return loop;
}

absl::Status BareLoop::Issue() {
  gpu::Slot& slot = *slot_;
  if (slot.graph_copies) {
    slot.end_stamp().store(0, std::memory_order_relaxed);
  } else {
    SLUICE_RETURN_IF_ERROR(gpu::CopyInputs(device_, stream_, slot));
  }
  SLUICE_RETURN_IF_ERROR(device_.LaunchGraph(stream_, slot.graph));
  if (!slot.graph_copies) SLUICE_RETURN_IF_ERROR(gpu::CopyOutputs(device_, stream_, slot));
  return device_.Record(stream_, slot.done);
}

absl::Status BareLoop::Await() {
  while (true) {
    for (int looks = slot_->graph_copies ? kLooksPerQuery : 0; looks > 0; --looks) {
      if (slot_->end_stamp().load(std::memory_order_acquire) != 0) return absl::OkStatus();
      CpuRelax();
    }
    SLUICE_ASSIGN_OR_RETURN(const bool over, device_.Query(slot_->done));
    if (over) return absl::OkStatus();
    CpuRelax();
  }
}

absl::StatusOr<BareLoop::Took> BareLoop::Call() {
  const Time begin = clock_.Now();
  for (size_t i = 0; i < slot_->inputs.size(); ++i) {
    std::byte* to = slot_->inputs[i].pinned.data;
    for (const server::Bytes& piece : payload_.inputs()[i].pieces) {
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
  }
  const Time copied = clock_.Now();
  absl::Status status = Issue();
  if (status.ok()) status = Await();
  const Time over = clock_.Now();
  if (!status.ok()) {
    device_.Synchronize(stream_).IgnoreError();  // Nothing is running when the slot is given back.
    return status;
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!outputs_[i].empty()) std::memcpy(outputs_[i].data(), slot_->outputs[i].pinned.data, outputs_[i].size());
  }
  return Took{copied - begin, over - copied, clock_.Now() - over};
}

absl::StatusOr<CaseReport> CompareWithBareLoop(const server::ServerConfig& config, const std::string& name,
                                               int requests, bool judges) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<House> house, House::Create(config));
  CaseReport report(absl::StrCat("bare loop, ", name), judges && house->cuda());
  SLUICE_ASSIGN_OR_RETURN(const HouseModel model, house->Load(name));
  const Payload payload = Payload::Repeated(model, 1);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<BareLoop> loop, BareLoop::Create(*house, model, payload));
  const CallSpec call = {.model = model, .payload = &payload, .request_class = RequestClass::kLatency};
  ProgressLine progress(absl::StrCat("isolation: bare loop, ", name));
  Stages bare_us, lanes_us;
  for (int i = -kWarmup; i < requests; ++i) {
    if (i % 1000 == 0) progress.Say(absl::StrCat(i, " of ", requests));
    SLUICE_ASSIGN_OR_RETURN(const BareLoop::Took bare, loop->Call());
    SLUICE_ASSIGN_OR_RETURN(const Sample sample, CallOnce(*house, call));
    report.CountRequests(1, 1);
    if (i < 0) continue;
    bare_us.Add(bare.total(), absl::ZeroDuration(), bare.copy_in, bare.device);
    lanes_us.Add(sample.server(), sample.timings.queue, sample.timings.copy_in,
                 sample.timings.gpu_wait + sample.device());
  }
  for (const auto& [row, stages] : {std::pair("bare loop", &bare_us), std::pair("lanes", &lanes_us)}) {
    report.AddRow({{"row", row},
                   {"n", stages->total.size()},
                   {"p50 us", Quantile(stages->total, 0.5)},
                   {"p99", Quantile(stages->total, 0.99)},
                   {"max", Quantile(stages->total, 1)},
                   {"queue p50", Quantile(stages->queue, 0.5)},
                   {"copy in p50", Quantile(stages->copy_in, 0.5)},
                   {"device p50", Quantile(stages->device, 0.5)},
                   {"rest p50", Quantile(stages->rest, 0.5)},
                   {"rest p99", Quantile(stages->rest, 0.99)}});
  }
  report.AddNote(
      "bare loop: copy into the slot, one graph with its copies, copy out of it, on one thread; lanes: from submission "
      "to "
      "answer, through queue, gate and request thread; one request at a time, in turns; device: until the host has "
      "seen the end (bare loop), by the "
      "device's own clock (lanes), so the rest of the lanes has the launch and the look at its end");
  report.AddVerdict("p99 above the bare loop, us", Quantile(lanes_us.total, 0.99) - Quantile(bare_us.total, 0.99),
                    kMostAddedUs, true);
  return report;
}

}  // namespace sluice::bench
