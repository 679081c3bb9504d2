// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "bench/common/phases.h"
#include "bench/common/statistics.h"
#include "bench/pipeline/bare.h"
#include "bench/pipeline/cases.h"

namespace sluice::bench {
namespace {

/// What is asked for at a load.
struct Target {
  double load;
  double most_r99;  ///< 0: printed only.
  double least_w;
};
constexpr Target kTargets[] = {{0.2, 1.04, 0.95}, {0.5, 0, 0.93}};
enum Table { kLatencyTable, kRatioTable, kBatchTable };
constexpr double kMostUnitUs = 20;
constexpr int kCalibrationRequests = 500;
constexpr int64_t kMostQueued = 100'000;
constexpr int kBootstrapDraws = 1000;

Numbers ServerMicroseconds(const std::vector<Sample>& samples) {
  Numbers numbers;
  for (const Sample& sample : samples) numbers.push_back(absl::ToDoubleMicroseconds(sample.server()));
  return numbers;
}

Numbers Joined(Numbers a, const Numbers& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// All rounds at one load.
struct Measured {
  std::vector<Sample> alone, again, mixed;
  std::vector<RoundPair> mixed_over_alone, again_over_alone;
  Numbers batch_alone, batch_mixed;  ///< Rows a second, one a round.
};

class Chain {
 public:
  Chain(const Settings& settings, House& house, const CallSpec& latency, const CallSpec& neighbour, CaseReport& report)
      : settings_(settings), house_(house), latency_(latency), neighbour_(neighbour), report_(report) {}

  /// Median device time of a request alone, one at a time.
  absl::StatusOr<absl::Duration> Calibrate();
  absl::Status RunLoad(double load, absl::Duration device_time, Time end);

 private:
  absl::Status RunRound(const PhaseSpec& both, Measured& measured);
  void AddRow(double load, const char* what, const std::vector<Sample>& samples);
  void Report(double load, double rate, const Measured& measured);

  const Settings& settings_;
  House& house_;
  const CallSpec latency_, neighbour_;
  CaseReport& report_;
};

absl::StatusOr<absl::Duration> Chain::Calibrate() {
  Numbers device_us;
  const int count = settings_.quick ? kCalibrationRequests / 10 : kCalibrationRequests;
  for (int i = 0; i < count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(const Sample sample, CallOnce(house_, latency_));
    report_.CountRequests(1, 1);
    device_us.push_back(absl::ToDoubleMicroseconds(sample.device()));
  }
  return absl::Microseconds(std::max(Median(device_us), 1.0));
}

absl::Status Chain::RunLoad(double load, absl::Duration device_time, Time end) {
  PhaseSpec both;
  both.latency = latency_;
  both.rate = load / absl::ToDoubleSeconds(device_time);
  both.neighbour = neighbour_;
  both.neighbour_requests = settings_.neighbour_requests;
  both.warmup = settings_.warmup;
  both.length = settings_.phase;
  ProgressLine progress(absl::StrFormat("pipeline: chain at %g %%", load * 100));
  Measured measured;
  Rounds rounds(house_.clock(), settings_.rounds, end);
  while (rounds.Next()) {
    progress.Say(absl::StrCat("round ", rounds.number(), " of ", rounds.most()));
    both.seed = settings_.seed + static_cast<uint64_t>(rounds.number());  // The same in all phases of a round.
    SLUICE_RETURN_IF_ERROR(RunRound(both, measured));
  }
  report_.RequireRounds(absl::StrFormat("%g %%: ", load * 100), rounds.number());
  Report(load, both.rate, measured);
  return absl::OkStatus();
}

absl::Status Chain::RunRound(const PhaseSpec& both, Measured& measured) {
  const PhaseSpec latency_only = both.LatencyOnly(), batch_only = both.NeighbourOnly();
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult alone, RunPhase(house_, latency_only, report_));
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult mixed, RunPhase(house_, both, report_));
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult batch, RunPhase(house_, batch_only, report_));
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult again, RunPhase(house_, latency_only, report_));
  const auto append = [](std::vector<Sample>& to, const std::vector<Sample>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(measured.alone, alone.latency);
  append(measured.mixed, mixed.latency);
  append(measured.again, again.latency);
  const Numbers alone_us = ServerMicroseconds(alone.latency);
  const Numbers again_us = ServerMicroseconds(again.latency);
  measured.mixed_over_alone.push_back({ServerMicroseconds(mixed.latency), Joined(alone_us, again_us)});
  measured.again_over_alone.push_back({again_us, alone_us});
  measured.batch_mixed.push_back(mixed.rows_per_second);
  measured.batch_alone.push_back(batch.rows_per_second);
  return absl::OkStatus();
}

void Chain::AddRow(double load, const char* what, const std::vector<Sample>& samples) {
  Numbers intended_us, wait_us, device_us;
  for (const Sample& sample : samples) {
    intended_us.push_back(absl::ToDoubleMicroseconds(sample.answered - sample.intended));
    wait_us.push_back(absl::ToDoubleMicroseconds(sample.timings.gpu_wait));
    device_us.push_back(absl::ToDoubleMicroseconds(sample.device()));
  }
  const Numbers server_us = ServerMicroseconds(samples);
  report_.AddRow({{"load", absl::StrFormat("%g %%", load * 100)},
                  {"row", what},
                  {"n", samples.size()},
                  {"server us p50", Quantile(server_us, 0.5)},
                  {"p99", Quantile(server_us, 0.99)},
                  {"max", Quantile(server_us, 1)},
                  {"from intended start p99", Quantile(intended_us, 0.99)},
                  {"gpu wait p99", Quantile(wait_us, 0.99)},
                  {"device p50", Quantile(device_us, 0.5)}},
                 kLatencyTable);
}

void Chain::Report(double load, double rate, const Measured& measured) {
  AddRow(load, "alone", measured.alone);
  AddRow(load, "alone again (A/A)", measured.again);
  AddRow(load, "beside batch", measured.mixed);
  Numbers device_seconds;
  for (const std::vector<Sample>* samples : {&measured.alone, &measured.again}) {
    for (const Sample& sample : *samples) device_seconds.push_back(absl::ToDoubleSeconds(sample.device()));
  }
  const double share = Mean(device_seconds) * rate;
  const double kept = Ratio(Mean(measured.batch_mixed), Mean(measured.batch_alone));
  const double w = Ratio(kept, 1 - share);
  const std::string label = absl::StrFormat("%g %%", load * 100);
  const auto add_r99 = [&](const char* what, const std::vector<RoundPair>& rounds, double most) {
    const double r99 = PooledRatio(rounds, 0.99);
    const auto [low, high] = BootstrapInterval(rounds, 0.99, kBootstrapDraws, settings_.seed);
    report_.AddRow({{"load", label}, {"row", what}, {"R99", r99}, {"95 % from", low}, {"to", high}}, kRatioTable);
    if (most > 0) report_.AddVerdict(absl::StrCat(label, ": ", what), r99, most, /*at_most=*/true);
  };
  double most_r99 = 0;
  double least_w = 0;
  for (const Target& target : kTargets) {
    if (target.load != load) continue;
    most_r99 = target.most_r99;
    least_w = target.least_w;
  }
  add_r99("R99, A/A", measured.again_over_alone, 0);
  add_r99("R99", measured.mixed_over_alone, most_r99);
  report_.AddRow({{"load", label},
                  {"row", "batch"},
                  {"rows/s alone", Mean(measured.batch_alone)},
                  {"rows/s beside", Mean(measured.batch_mixed)},
                  {"kept", kept},
                  {"U", share},
                  {"W", w}},
                 kBatchTable);
  if (least_w > 0) report_.AddVerdict(absl::StrCat(label, ": W"), w, least_w, /*at_most=*/false);
}

/// Rows of the largest plan that the lane cuts `rows` into.
absl::StatusOr<int64_t> LargestLanePlan(const HouseModel& model, int64_t rows) {
  SLUICE_ASSIGN_OR_RETURN(const Parts parts, CutLikeTheLane(model, rows));
  return parts.plan_rows.back();
}

}  // namespace

absl::StatusOr<CaseReport> RunChain(const Settings& settings) {
  server::ServerConfig config = settings.server;
  config.queue_requests = kMostQueued;  // An open loop sends whatever waits already.
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<House> house, House::Create(config));
  CaseReport report("chain", house->cuda() && !settings.quick);
  SLUICE_ASSIGN_OR_RETURN(const HouseModel chain, house->Load(settings.chain));
  SLUICE_ASSIGN_OR_RETURN(const HouseModel batch, house->Load(settings.neighbour.model));
  const Payload one = Payload::Repeated(chain, 1);
  const Payload many = Payload::Repeated(batch, settings.neighbour.rows);
  const CallSpec latency = {.model = chain, .payload = &one, .request_class = RequestClass::kLatency};
  const CallSpec neighbour = {.model = batch, .payload = &many, .request_class = RequestClass::kBatch};
  Chain runs(settings, *house, latency, neighbour, report);
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration device_time, runs.Calibrate());
  SLUICE_ASSIGN_OR_RETURN(const int64_t lane_rows, LargestLanePlan(batch, settings.neighbour.rows));
  const model::Plan& plan = PlanFor(batch, lane_rows);
  const double unit_us = absl::ToDoubleMicroseconds(plan.longest_unit());
  report.AddNote(absl::StrCat(settings.chain, ": ", one.bytes(), " bytes in, ", absl::ToDoubleMicroseconds(device_time),
                              " us of the device alone; ", settings.neighbour.model, ": ", plan.unit_count(),
                              " units, the longest ", unit_us, " us (", plan.longest_unit_kernel(), ")"));
  report.AddNote(
      "R99: p99 beside batch over p99 alone, from submission to answer; U: mean device time alone times the rate; "
      "W: batch kept over 1 - U");
  report.AddVerdict("longest batch unit, us", unit_us, kMostUnitUs, true, /*judged=*/false);
  for (const double load : settings.loads) {
    const Time end = house->clock().Now() + settings.limit / static_cast<int64_t>(settings.loads.size());
    SLUICE_RETURN_IF_ERROR(runs.RunLoad(load, device_time, end));
  }
  return report;
}

}  // namespace sluice::bench
