// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "bench/common/phases.h"
#include "bench/common/statistics.h"
#include "bench/pipeline/bare.h"
#include "bench/pipeline/cases.h"

namespace sluice::bench {
namespace {

constexpr double kLeastKept = 0.97;
constexpr absl::Duration kLongestUnit = absl::Microseconds(60);
/// A GPU may change between two speeds, some per cent apart, every few seconds (seen on an H200): so there are as many
/// times more and shorter rounds as of other cases, and what is compared is compared within a round.
constexpr int kShorter = 4;
constexpr absl::Duration kWarmup = absl::Milliseconds(100);

/// Rows a second, a number for each round; the last two for some of them.
struct Rates {
  Numbers units, units_again, uncut_lane, uncut_one_stream, uncut_streams, largest_one_stream;

  /// How much of `uncut` units give: the middle of the rounds' ratios, units being measured before and after it.
  double UnitsOver(const Numbers& uncut) const {
    Numbers ratios;
    for (size_t i = 0; i < uncut.size(); ++i) ratios.push_back(Ratio((units[i] + units_again[i]) / 2, uncut[i]));
    return Median(ratios);
  }
};

class Cut {
 public:
  Cut(const Settings& settings, House& house, const ModelRows& wanted, CaseReport& report)
      : settings_(settings), house_(house), wanted_(wanted), phase_(settings.phase / kShorter), report_(report) {}

  absl::Status Run(absl::Duration limit);

 private:
  absl::Status Load();
  absl::Status RunRound();
  /// What is printed only.
  absl::Status RunOthers();
  absl::Status AddLane(const HouseModel& model, Numbers& rates);
  /// Whole plans back to back for as long as a phase.
  absl::Status AddBare(BareRunner& runner, const Parts& parts, Numbers& rates);
  void AddRow(const char* what, const HouseModel& model, int64_t plan_rows, const Numbers& rates,
              std::optional<double> units_over_it);
  void Report();

  const Settings& settings_;
  House& house_;
  const ModelRows& wanted_;
  const absl::Duration phase_;
  CaseReport& report_;
  HouseModel units_, uncut_;
  std::optional<HouseModel>
      largest_;                     ///< Uncut, for more rows than the lane runs at once, if the model has such a plan.
  std::vector<int64_t> lane_rows_;  ///< Of the plans that the lane runs the requests in, ascending.
  std::optional<Payload> payload_;
  std::unique_ptr<BareRunner> one_stream_, streams_;
  Rates rates_;
};

absl::Status Cut::Load() {
  SLUICE_ASSIGN_OR_RETURN(units_, house_.Load(wanted_.model));
  {
    SLUICE_ASSIGN_OR_RETURN(const Parts parts, CutLikeTheLane(units_, wanted_.rows));
    lane_rows_ = parts.plan_rows;
  }
  SLUICE_ASSIGN_OR_RETURN(uncut_, house_.Load(wanted_.model, {.uncut = true, .buckets = lane_rows_}));
  if (const int64_t most = units_.instance->plans(0).back().rows; most > lane_rows_.back()) {
    SLUICE_ASSIGN_OR_RETURN(largest_, house_.Load(wanted_.model, {.uncut = true, .buckets = {most}}));
  }
  payload_.emplace(Payload::Repeated(units_, wanted_.rows));
  return absl::OkStatus();
}

absl::Status Cut::Run(absl::Duration limit) {
  SLUICE_RETURN_IF_ERROR(Load());
  SLUICE_ASSIGN_OR_RETURN(one_stream_, BareRunner::Create(house_, 1));
  SLUICE_ASSIGN_OR_RETURN(streams_, BareRunner::Create(house_, house_.config().batch_streams));
  ProgressLine progress(absl::StrCat("pipeline: cut, ", units_.served->name));
  Rounds rounds(house_.clock(), settings_.rounds * kShorter, house_.clock().Now() + limit);
  while (rounds.Next()) {
    progress.Say(absl::StrCat("round ", rounds.number(), " of ", rounds.most()));
    SLUICE_RETURN_IF_ERROR(RunRound());
    if (rounds.number() % kShorter == 1) SLUICE_RETURN_IF_ERROR(RunOthers());
  }
  report_.RequireRounds(absl::StrCat(units_.served->name, ": "), rounds.number());
  Report();
  return absl::OkStatus();
}

absl::Status Cut::RunRound() {
  SLUICE_RETURN_IF_ERROR(AddLane(units_, rates_.units));
  SLUICE_RETURN_IF_ERROR(AddLane(uncut_, rates_.uncut_lane));
  {
    SLUICE_ASSIGN_OR_RETURN(const Parts parts, CutLikeTheLane(uncut_, wanted_.rows));
    SLUICE_RETURN_IF_ERROR(AddBare(*one_stream_, parts, rates_.uncut_one_stream));
  }
  return AddLane(units_, rates_.units_again);
}

absl::Status Cut::RunOthers() {
  {
    SLUICE_ASSIGN_OR_RETURN(const Parts parts, CutLikeTheLane(uncut_, wanted_.rows));
    SLUICE_RETURN_IF_ERROR(AddBare(*streams_, parts, rates_.uncut_streams));
  }
  if (!largest_.has_value()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const Parts parts, CutLikeTheLane(*largest_, largest_->instance->plans(0).back().rows));
  return AddBare(*one_stream_, parts, rates_.largest_one_stream);
}

absl::Status Cut::AddLane(const HouseModel& model, Numbers& rates) {
  PhaseSpec phase;
  phase.neighbour = CallSpec{.model = model, .payload = &*payload_, .request_class = RequestClass::kBatch};
  phase.neighbour_requests = settings_.cut_requests;
  phase.warmup = std::min(settings_.warmup, kWarmup);
  phase.length = phase_;
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult result, RunPhase(house_, phase, report_));
  rates.push_back(result.rows_per_second);
  return absl::OkStatus();
}

absl::Status Cut::AddBare(BareRunner& runner, const Parts& parts, Numbers& rates) {
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration once, runner.Run(parts, Stage::kUnits));  // The warm-up, too.
  // In one go as long as half a phase, so that the pauses between goes do not show.
  const int64_t copies = std::clamp<int64_t>((phase_ / 2) / std::max(once, absl::Microseconds(1)), 1, 1000);
  absl::Duration took;
  int64_t rows = 0;
  while (took < phase_) {
    SLUICE_ASSIGN_OR_RETURN(const absl::Duration go, runner.Run(parts, Stage::kUnits, copies));
    took += go;
    rows += parts.rows() * copies;
  }
  rates.push_back(static_cast<double>(rows) / absl::ToDoubleSeconds(took));
  return absl::OkStatus();
}

void Cut::AddRow(const char* what, const HouseModel& model, int64_t plan_rows, const Numbers& rates,
                 std::optional<double> units_over_it) {
  if (rates.empty()) return;
  report_.AddRow({{"model", wanted_.model},
                  {"row", what},
                  {"plan rows", plan_rows},
                  {"n", rates.size()},
                  {"units", PlanFor(model, plan_rows).unit_count()},
                  {"rows/s p50", Median(rates)},
                  {"rows/s least", Quantile(rates, 1e-9)},
                  {"rows/s most", Quantile(rates, 1)},
                  {"units over it", units_over_it.value_or(Ratio(Median(rates_.units), Median(rates)))}});
}

void Cut::Report() {
  const int64_t rows = lane_rows_.back();
  const double over_lane = rates_.UnitsOver(rates_.uncut_lane);
  const double over_one_stream = rates_.UnitsOver(rates_.uncut_one_stream);
  AddRow("units, lane", units_, rows, rates_.units, {});
  AddRow("units, lane again (A/A)", units_, rows, rates_.units_again, {});
  AddRow("uncut, lane", uncut_, rows, rates_.uncut_lane, over_lane);
  AddRow("uncut, one stream, no copies", uncut_, rows, rates_.uncut_one_stream, over_one_stream);
  AddRow("uncut, several streams, no copies", uncut_, rows, rates_.uncut_streams, {});
  if (largest_.has_value()) {
    AddRow("largest uncut, one stream, no copies", *largest_, largest_->instance->plans(0).back().rows,
           rates_.largest_one_stream, {});
  }
  const model::Plan& plan = PlanFor(units_, rows);
  report_.AddNote(absl::StrCat(wanted_.model, ": requests of ", wanted_.rows, " rows in plans for ",
                               absl::StrJoin(lane_rows_, ", "), "; the longest unit takes ",
                               absl::ToDoubleMicroseconds(plan.longest_unit()), " us, ",
                               plan.longest_unit() <= kLongestUnit ? "within " : "longer than ",
                               absl::ToInt64Microseconds(kLongestUnit), " us: ", plan.longest_unit_kernel()));
  report_.AddVerdict(absl::StrCat(wanted_.model, ": units over uncut back to back"),
                     std::min(over_lane, over_one_stream), kLeastKept, /*at_most=*/false);
}

}  // namespace

absl::StatusOr<CaseReport> RunCut(const Settings& settings) {
  absl::StatusOr<CaseReport> report = absl::InvalidArgumentError("the case cut needs a model");
  for (size_t i = 0; i < settings.cut.size(); ++i) {
    // A house each, so that nothing of the other model is in memory.
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<House> house, House::Create(settings.server));
    if (i == 0) report.emplace("cut", house->cuda() && !settings.quick);
    const absl::Duration limit = settings.limit / static_cast<int64_t>(settings.cut.size());
    SLUICE_RETURN_IF_ERROR(Cut(settings, *house, settings.cut[i], *report).Run(limit));
  }
  if (report.ok()) {
    report->AddNote(
        "lane: requests in a closed loop through lane, gate and launcher, copies included; the others: whole plans as "
        "one graph each on bare streams, inputs left where they are; judged against the faster of the rows that run "
        "one plan after the other (lane, one stream): several streams run two plans at once");
  }
  return report;
}

}  // namespace sluice::bench
