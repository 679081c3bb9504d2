// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/isolation/ladder.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "bench/common/output.h"
#include "bench/common/statistics.h"

namespace sluice::bench {
namespace {

constexpr absl::string_view kProduct = "product";
constexpr absl::string_view kPriority = "priority";
/// An open loop sends whatever waits already.
constexpr int64_t kMostQueued = 100'000;

RequestClass LatencyClassOf(const Rung& rung) {
  return rung.one_class ? RequestClass::kStandard : RequestClass::kLatency;
}

RequestClass NeighbourClassOf(const Rung& rung, const CellSpec& cell) {
  return rung.one_class ? RequestClass::kStandard : cell.neighbour_class;
}

/// Phases of batch work alone: of the product, and of whole plans launched as they come.
bool RunsBatchAlone(const Rung& rung) { return rung.name == kProduct || rung.name == kPriority; }

}  // namespace

Ladder::Ladder(const Options& options) : options_(options), end_(clock_.Now() + options.limit) {}

absl::StatusOr<Ladder::Home*> Ladder::HomeOf(const Rung& rung) {
  const std::string key = absl::StrCat(rung.window, rung.gate, rung.transfers);
  Home& home = homes_[key];
  for (const auto& [other_key, other] : homes_) {
    if (other.house != nullptr) other.house->SetPolling(other_key == key);
  }
  if (home.house != nullptr) return &home;
  server::ServerConfig config = ConfigOf(rung, options_.server);
  config.queue_requests = kMostQueued;
  SLUICE_ASSIGN_OR_RETURN(home.house, House::Create(config));
  cuda_ = home.house->cuda();
  if (cuda_ && options_.monitor && monitor_ == nullptr) {
    absl::string_view device = config.devices;
    int ordinal = 0;
    if (absl::ConsumePrefix(&device, "cuda:") && absl::SimpleAtoi(device, &ordinal)) {
      monitor_ = GpuMonitor::Start(ordinal, clock_);
    }
  }
  return &home;
}

absl::StatusOr<HouseModel> Ladder::ModelOf(Home& home, const std::string& name, bool uncut) {
  const auto found = home.models.find({name, uncut});
  if (found != home.models.end()) return found->second;
  ProgressLine progress("isolation");
  progress.Say(absl::StrCat("load ", name, uncut ? ", uncut" : ""));
  SLUICE_ASSIGN_OR_RETURN(const HouseModel model, home.house->Load(name, {.uncut = uncut}));
  home.models[{name, uncut}] = model;
  return model;
}

absl::StatusOr<PhaseSpec> Ladder::MakePhase(Home& home, const CellSpec& cell, const Rung& rung) {
  SLUICE_ASSIGN_OR_RETURN(const HouseModel latency, ModelOf(home, cell.latency, false));
  SLUICE_ASSIGN_OR_RETURN(const HouseModel neighbour, ModelOf(home, cell.neighbour, rung.uncut || cell.uncut));
  const auto payload = [this](const HouseModel& model, int64_t rows) {
    const std::string key = absl::StrCat(model.served->name, ":", rows);
    const auto found = payloads_.find(key);
    if (found != payloads_.end()) return &found->second;
    return &payloads_.emplace(key, Payload::Repeated(model, rows)).first->second;
  };
  PhaseSpec phase;
  phase.latency = CallSpec{.model = latency, .payload = payload(latency, 1), .request_class = LatencyClassOf(rung)};
  phase.arrivals = cell.arrivals;
  phase.neighbour = CallSpec{
      .model = neighbour, .payload = payload(neighbour, cell.rows), .request_class = NeighbourClassOf(rung, cell)};
  phase.neighbour_requests = cell.in_flight;
  phase.warmup = options_.warmup;
  return phase;
}

absl::StatusOr<double> Ladder::Calibrate(Home& home, const CellSpec& cell, CaseReport& report) {
  if (cell.rate > 0) return cell.rate;
  SLUICE_ASSIGN_OR_RETURN(const PhaseSpec phase, MakePhase(home, cell, *FindRung(kProduct)));
  Numbers device_us;
  for (int i = 0; i < options_.calibration_requests; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const Sample sample, CallOnce(*home.house, *phase.latency));
    report.CountRequests(1, 1);
    device_us.push_back(absl::ToDoubleMicroseconds(sample.device()));
  }
  return cell.load / (std::max(Median(device_us), 1.0) * 1e-6);
}

absl::StatusOr<RungRound> Ladder::RunRung(const CellResults& results, const Rung& rung, int number,
                                          CaseReport& report) {
  const CellSpec& cell = results.spec();
  SLUICE_ASSIGN_OR_RETURN(Home* const home, HomeOf(rung));
  SLUICE_ASSIGN_OR_RETURN(PhaseSpec phase, MakePhase(*home, cell, rung));
  phase.rate = results.rate();
  phase.seed = options_.seed * 1'000'000 + static_cast<uint64_t>(number);  // The same in all phases of a round.
  RungRound round{.number = number, .alone = {}, .again = {}, .mixed = {}, .gpu = {}};
  const auto run = [&](PhaseSpec spec, absl::Duration length) -> absl::StatusOr<PhaseResult> {
    spec.length = length;
    return RunPhase(*home->house, spec, report);
  };
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult alone, run(phase.LatencyOnly(), cell.alone));
  round.alone.Add(alone.latency);
  const Time begin = clock_.Now();
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult mixed, run(phase, cell.mixed));
  if (monitor_ != nullptr) round.gpu = monitor_->Between(begin, clock_.Now());
  round.mixed.Add(mixed.latency);
  round.batch_mixed = mixed.rows_per_second;
  if (RunsBatchAlone(rung)) {
    SLUICE_ASSIGN_OR_RETURN(const PhaseResult batch, run(phase.NeighbourOnly(), cell.batch));
    round.batch_alone = batch.rows_per_second;
  }
  if (rung.name == kProduct) {
    SLUICE_ASSIGN_OR_RETURN(const PhaseResult again, run(phase.LatencyOnly(), cell.alone));
    round.again.Add(again.latency);
  }
  return round;
}

std::string Ladder::DescribeNeighbour(const Home& home, const CellSpec& cell, const Rung& rung) {
  const HouseModel& model = home.models.at({cell.neighbour, rung.uncut || cell.uncut});
  const server::PreparedPlan& micro_batch = model.instance->micro_batch(0);
  return absl::StrCat(cell.neighbour, rung.uncut || cell.uncut ? ", whole plans" : "", ": requests of ", cell.rows,
                      " rows in micro-batches of ", micro_batch.rows, ", ", micro_batch.plan->unit_count(),
                      " units, the longest ", absl::ToDoubleMicroseconds(micro_batch.plan->longest_unit()), " us (",
                      micro_batch.plan->longest_unit_kernel(), ")");
}

absl::Status Ladder::Run(CellResults& results, CaseReport& report) {
  const CellSpec& cell = results.spec();
  const Rung& product = *FindRung(kProduct);
  SLUICE_ASSIGN_OR_RETURN(Home* const home, HomeOf(product));
  if (results.rate() == 0) {
    SLUICE_ASSIGN_OR_RETURN(const double rate, Calibrate(*home, cell, report));
    results.SetRate(rate);
  }
  // Everything is loaded before anything is measured.
  for (const Rung* rung : cell.rungs) {
    SLUICE_ASSIGN_OR_RETURN(Home* const own, HomeOf(*rung));
    SLUICE_RETURN_IF_ERROR(MakePhase(*own, cell, *rung).status());
  }
  ProgressLine progress(absl::StrCat("isolation: ", cell.Key()));
  const int first = results.last_round() + 1;
  Rounds rounds(clock_, cell.rounds, end_);
  while (rounds.Next()) {
    for (size_t i = 0; i < cell.rungs.size(); ++i) {  // Each round begins with another rung.
      const Rung& rung = *cell.rungs[(i + static_cast<size_t>(rounds.number())) % cell.rungs.size()];
      progress.Say(absl::StrCat("round ", rounds.number(), " of ", rounds.most(), ", ", rung.name));
      SLUICE_ASSIGN_OR_RETURN(RungRound round, RunRung(results, rung, first + rounds.number() - 1, report));
      results.Add(rung, std::move(round));
    }
  }
  bool described[2] = {false, false};
  for (const Rung* rung : cell.rungs) {
    if (std::exchange(described[rung->uncut ? 1 : 0], true)) continue;
    SLUICE_ASSIGN_OR_RETURN(Home* const own, HomeOf(*rung));
    report.AddNote(DescribeNeighbour(*own, cell, *rung));
  }
  return absl::OkStatus();
}

}  // namespace sluice::bench
