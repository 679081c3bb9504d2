// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "bench/common/phases.h"
#include "bench/common/statistics.h"
#include "bench/pipeline/cases.h"

namespace sluice::bench {
namespace {

constexpr double kMostCopyUs = 65;                ///< p99 of a latency request's copy.
constexpr int64_t kMostBytes = int64_t{1} << 49;  ///< That may wait: all requests share theirs.
constexpr double kLeastKept = 0.85;               ///< Of the batch copies' bandwidth alone.

/// Of all rounds.
struct Measured {
  std::vector<Sample> alone, mixed;
  Numbers batch_alone, batch_again, batch_mixed;  ///< Rows a second.
};

class Direction {
 public:
  Direction(const Settings& settings, bool in, CaseReport& report)
      : settings_(settings), in_(in), wanted_(in ? settings.copies_in : settings.copies_out), report_(report) {}

  absl::Status Run(House& house, Time end);

 private:
  absl::Status RunRound(House& house, const PhaseSpec& both);
  absl::Duration CopyOf(const Sample& sample) const { return in_ ? sample.timings.h2d : sample.timings.d2h; }
  void AddRow(const char* what, const std::vector<Sample>& latency, const Numbers& rows_per_second);
  void Report(bool copies);

  const Settings& settings_;
  const bool in_;
  const ModelRows& wanted_;
  CaseReport& report_;
  size_t row_bytes_ = 0;
  Measured measured_;
};

absl::Status Direction::Run(House& house, Time end) {
  SLUICE_ASSIGN_OR_RETURN(const HouseModel model,
                          house.Load(wanted_.model, {.batch_slots = 2 * house.config().request_threads}));
  const server::PreparedPlan& plan = model.instance->plans(0).front();
  const size_t tensors = in_ ? model.served->inputs.size() : model.served->outputs.size();
  for (size_t i = 0; i < tensors; ++i) {
    row_bytes_ += in_ ? model.instance->InputRowBytes(plan, i) : model.instance->OutputRowBytes(plan, i);
  }
  // The threads that copy into the slots read the same bytes again and again, and what a batch request brings out of
  // the device stays in the slot: the copy engine is to be the limit, not the host's memory.
  const Payload one = Payload::Repeated(model, 1);
  const Payload many = Payload::Repeated(model, wanted_.rows);
  PhaseSpec both;
  both.latency = CallSpec{.model = model, .payload = &one, .request_class = RequestClass::kLatency};
  both.rate = settings_.copies_rate;
  both.neighbour =
      CallSpec{.model = model, .payload = &many, .request_class = RequestClass::kBatch, .wants_outputs = in_};
  both.neighbour_requests = settings_.copies_requests;
  both.warmup = settings_.warmup;
  both.length = settings_.phase;
  ProgressLine progress(in_ ? "pipeline: copies in" : "pipeline: copies out");
  Rounds rounds(house.clock(), settings_.rounds, end);
  while (rounds.Next()) {
    progress.Say(absl::StrCat("round ", rounds.number(), " of ", rounds.most()));
    both.seed = settings_.seed + static_cast<uint64_t>(rounds.number());
    SLUICE_RETURN_IF_ERROR(RunRound(house, both));
  }
  report_.RequireRounds(in_ ? "in: " : "out: ", rounds.number());
  Report(!house.device().info().unified_memory);
  return absl::OkStatus();
}

absl::Status Direction::RunRound(House& house, const PhaseSpec& both) {
  const PhaseSpec latency_only = both.LatencyOnly(), batch_only = both.NeighbourOnly();
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult batch, RunPhase(house, batch_only, report_));
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult latency, RunPhase(house, latency_only, report_));
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult mixed, RunPhase(house, both, report_));
  SLUICE_ASSIGN_OR_RETURN(const PhaseResult again, RunPhase(house, batch_only, report_));
  measured_.batch_alone.push_back(batch.rows_per_second);
  measured_.batch_mixed.push_back(mixed.rows_per_second);
  measured_.batch_again.push_back(again.rows_per_second);
  measured_.alone.insert(measured_.alone.end(), latency.latency.begin(), latency.latency.end());
  measured_.mixed.insert(measured_.mixed.end(), mixed.latency.begin(), mixed.latency.end());
  return absl::OkStatus();
}

void Direction::AddRow(const char* what, const std::vector<Sample>& latency, const Numbers& rows_per_second) {
  nlohmann::ordered_json row = {{"direction", in_ ? "in" : "out"}, {"row", what}};
  if (!latency.empty()) {
    Numbers copies, server;
    for (const Sample& sample : latency) {
      copies.push_back(absl::ToDoubleMicroseconds(CopyOf(sample)));
      server.push_back(absl::ToDoubleMicroseconds(sample.server()));
    }
    row["n"] = latency.size();
    row["copy us p50"] = Quantile(copies, 0.5);
    row["copy us p99"] = Quantile(copies, 0.99);
    row["copy us max"] = Quantile(copies, 1);
    row["server us p99"] = Quantile(server, 0.99);
  }
  if (!rows_per_second.empty()) {
    row["batch GB/s"] = Mean(rows_per_second) * static_cast<double>(row_bytes_) / 1e9;
  }
  report_.AddRow(std::move(row));
}

void Direction::Report(bool copies) {
  AddRow("latency alone", measured_.alone, {});
  AddRow("batch alone", {}, measured_.batch_alone);
  AddRow("batch alone again (A/A)", {}, measured_.batch_again);
  AddRow("both", measured_.mixed, measured_.batch_mixed);
  const std::string direction = in_ ? "in" : "out";
  if (!copies) {
    return report_.AddNote(absl::StrCat(direction, ": this device's memory is the host's, nothing is copied"));
  }
  Numbers mixed_us;
  for (const Sample& sample : measured_.mixed) mixed_us.push_back(absl::ToDoubleMicroseconds(CopyOf(sample)));
  Numbers alone = measured_.batch_alone;
  alone.insert(alone.end(), measured_.batch_again.begin(), measured_.batch_again.end());
  report_.AddNote(absl::StrCat(direction, ": ", row_bytes_, " bytes a row"));
  report_.AddVerdict(absl::StrCat(direction, ": copy of a latency request beside batch copies, p99 us"),
                     Quantile(mixed_us, 0.99), kMostCopyUs, /*at_most=*/true);
  report_.AddVerdict(absl::StrCat(direction, ": batch bandwidth kept"), Ratio(Mean(measured_.batch_mixed), Mean(alone)),
                     kLeastKept, /*at_most=*/false);
}

}  // namespace

absl::StatusOr<CaseReport> RunCopies(const Settings& settings) {
  server::ServerConfig config = settings.server;
  config.request_threads = settings.copies_threads;
  config.queue_bytes = kMostBytes;
  absl::StatusOr<CaseReport> report = absl::UnknownError("not run");
  for (const bool in : {true, false}) {
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<House> house, House::Create(config));
    if (in) report.emplace("copies", house->cuda() && !settings.quick);
    const Time end = house->clock().Now() + settings.limit / 2;
    SLUICE_RETURN_IF_ERROR(Direction(settings, in, *report).Run(*house, end));
  }
  return report;
}

}  // namespace sluice::bench
