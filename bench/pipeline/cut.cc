// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "bench/pipeline/bare.h"
#include "bench/pipeline/cases.h"
#include "bench/pipeline/phases.h"
#include "bench/pipeline/statistics.h"

namespace sluice::bench {
namespace {

constexpr double kLeastKept = 0.97;
constexpr absl::Duration kLongestUnit = absl::Microseconds(60);

/// Rows a second, a number for each round.
struct Rates {
  Numbers units, units_again, uncut_lane, uncut_one_stream, uncut_streams, largest_one_stream;
};

class Cut {
 public:
  Cut(const Settings& settings, House& house, const HouseModel& units, const HouseModel& uncut, const Payload& payload,
      CaseReport& report)
      : settings_(settings), house_(house), units_(units), uncut_(uncut), payload_(payload), report_(report) {}

  absl::Status Run(Time end);

 private:
  absl::Status RunRound();
  absl::Status AddLane(const HouseModel& model, Numbers& rates);
  /// Whole plans back to back for as long as a phase.
  absl::Status AddBare(BareRunner& runner, const Parts& parts, Numbers& rates);
  bool HasLarger(const Parts& parts) const { return uncut_.instance->plan_rows().back() > parts.plan_rows.back(); }
  void Report(const Parts& parts);
  void ReportLongestUnit(const Parts& parts);

  const Settings& settings_;
  House& house_;
  const HouseModel& units_;
  const HouseModel& uncut_;
  const Payload& payload_;
  CaseReport& report_;
  std::unique_ptr<BareRunner> one_stream_, streams_;
  Rates rates_;
};

absl::Status Cut::Run(Time end) {
  SLUICE_ASSIGN_OR_RETURN(one_stream_, BareRunner::Create(house_.device(), house_.clock(), 1));
  SLUICE_ASSIGN_OR_RETURN(streams_, BareRunner::Create(house_.device(), house_.clock(), house_.config().batch_streams));
  ProgressLine progress(absl::StrCat("cut, ", units_.served->name));
  Rounds rounds(house_.clock(), settings_.rounds, end);
  while (rounds.Next()) {
    progress.Say(absl::StrCat("round ", rounds.number(), " of ", rounds.most()));
    SLUICE_RETURN_IF_ERROR(RunRound());
  }
  report_.RequireRounds(absl::StrCat(units_.served->name, ": "), rounds.number());
  SLUICE_ASSIGN_OR_RETURN(const Parts parts, CutLikeTheLane(units_, payload_.rows()));
  Report(parts);
  return absl::OkStatus();
}

absl::Status Cut::RunRound() {
  SLUICE_RETURN_IF_ERROR(AddLane(units_, rates_.units));
  SLUICE_RETURN_IF_ERROR(AddLane(uncut_, rates_.uncut_lane));
  {
    SLUICE_ASSIGN_OR_RETURN(const Parts parts, CutLikeTheLane(uncut_, payload_.rows()));
    SLUICE_RETURN_IF_ERROR(AddBare(*one_stream_, parts, rates_.uncut_one_stream));
    SLUICE_RETURN_IF_ERROR(AddBare(*streams_, parts, rates_.uncut_streams));
    if (HasLarger(parts)) {
      SLUICE_ASSIGN_OR_RETURN(const Parts largest, LargestOnly(uncut_, 1));
      SLUICE_RETURN_IF_ERROR(AddBare(*one_stream_, largest, rates_.largest_one_stream));
    }
  }
  return AddLane(units_, rates_.units_again);
}

absl::Status Cut::AddLane(const HouseModel& model, Numbers& rates) {
  PhaseSpec phase;
  phase.neighbour = CallSpec{.model = model, .payload = &payload_, .request_class = RequestClass::kBatch};
  phase.neighbour_requests = settings_.cut_requests;
  phase.warmup = settings_.warmup;
  phase.length = settings_.phase;
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult result, RunPhase(house_, phase, report_));
  rates.push_back(result.rows_per_second);
  return absl::OkStatus();
}

absl::Status Cut::AddBare(BareRunner& runner, const Parts& parts, Numbers& rates) {
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration once, runner.Run(parts, Stage::kUnits));  // The warm-up, too.
  // In one go as long as half a phase, so that the pauses between goes do not show.
  const int64_t copies = std::clamp<int64_t>((settings_.phase / 2) / std::max(once, absl::Microseconds(1)), 1, 1000);
  absl::Duration took;
  int64_t rows = 0;
  while (took < settings_.phase) {
    SLUICE_ASSIGN_OR_RETURN(const absl::Duration go, runner.Run(parts, Stage::kUnits, copies));
    took += go;
    rows += parts.rows() * copies;
  }
  rates.push_back(static_cast<double>(rows) / absl::ToDoubleSeconds(took));
  return absl::OkStatus();
}

void Cut::ReportLongestUnit(const Parts& parts) {
  absl::Duration longest;
  std::string kernel;
  for (const server::PreparedPlan& plan : units_.instance->plans(0)) {
    if (std::count(parts.plan_rows.begin(), parts.plan_rows.end(), plan.rows) == 0) continue;
    if (plan.plan->longest_unit() <= longest) continue;
    longest = plan.plan->longest_unit();
    kernel = plan.plan->longest_unit_kernel();
  }
  report_.AddNote(absl::StrCat(units_.served->name, ": longest unit ", absl::ToDoubleMicroseconds(longest), " us, ",
                               longest <= kLongestUnit ? "within " : "longer than ",
                               absl::ToInt64Microseconds(kLongestUnit), " us: ", kernel));
}

void Cut::Report(const Parts& parts) {
  const std::string& name = units_.served->name;
  const double kept_by = Median(rates_.units);
  const auto add = [&](const char* what, const HouseModel* model, const std::vector<int64_t>& plan_rows,
                       const Numbers& rates) {
    if (rates.empty()) return;
    nlohmann::ordered_json row = {
        {"model", name}, {"row", what}, {"plan rows", absl::StrJoin(plan_rows, ",")}, {"n", rates.size()}};
    size_t units = 0;
    for (const server::PreparedPlan& plan : model->instance->plans(0)) {
      if (plan.rows == plan_rows.back()) units = plan.plan->unit_count();
    }
    row["units"] = units;
    row["rows/s p50"] = Median(rates);
    row["rows/s least"] = Quantile(rates, 1e-9);
    row["rows/s most"] = Quantile(rates, 1);
    row["units over it"] = Ratio(kept_by, Median(rates));
    report_.AddRow(std::move(row));
  };
  add("units, lane", &units_, parts.plan_rows, rates_.units);
  add("units, lane again (A/A)", &units_, parts.plan_rows, rates_.units_again);
  add("uncut, lane", &uncut_, parts.plan_rows, rates_.uncut_lane);
  add("uncut, one stream, no copies", &uncut_, parts.plan_rows, rates_.uncut_one_stream);
  add("uncut, several streams, no copies", &uncut_, parts.plan_rows, rates_.uncut_streams);
  add("largest uncut, one stream, no copies", &uncut_, {uncut_.instance->plan_rows().back()},
      rates_.largest_one_stream);
  ReportLongestUnit(parts);
  const double uncut = std::max(Median(rates_.uncut_lane), Median(rates_.uncut_one_stream));
  report_.AddVerdict(absl::StrCat(name, ": units over uncut back to back"), Ratio(kept_by, uncut), kLeastKept,
                     /*at_most=*/false);
}

}  // namespace

absl::StatusOr<CaseReport> RunCut(const Settings& settings) {
  absl::StatusOr<CaseReport> report = absl::InvalidArgumentError("the case cut needs a model");
  for (size_t i = 0; i < settings.cut.size(); ++i) {
    // A house each, so that nothing of the other model is in memory.
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<House> house, House::Create(settings.server));
    if (i == 0) report.emplace("cut", house->cuda() && !settings.quick);
    SLUICE_ASSIGN_OR_RETURN(const HouseModel units, house->Load(settings.cut[i].model));
    SLUICE_ASSIGN_OR_RETURN(const HouseModel uncut, house->Load(settings.cut[i].model, {.uncut = true}));
    const Payload payload = Payload::Repeated(units, settings.cut[i].rows);
    const Time end = house->clock().Now() + settings.limit / static_cast<int64_t>(settings.cut.size());
    SLUICE_RETURN_IF_ERROR(Cut(settings, *house, units, uncut, payload, *report).Run(end));
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
