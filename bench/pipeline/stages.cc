// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "bench/common/calls.h"
#include "bench/common/house.h"
#include "bench/common/statistics.h"
#include "bench/pipeline/bare.h"
#include "bench/pipeline/cases.h"
#include "server/execution/chrome_trace.h"
#include "server/execution/micro_batch.h"

namespace sluice::bench {
namespace {

constexpr double kMostTotal = 1.10;  ///< Of the longest stage.
constexpr int kRepeats = 3;          ///< Of everything in a round; 1 in the warm-up.

/// Milliseconds, a number for each time it was run.
struct Measured {
  Numbers total, second_total, request_copy_in;  ///< second_total: the A/A.
  Numbers copies_in, units_one_stream, units_streams, copies_out, host_copy;
};

class Stages {
 public:
  Stages(const Settings& settings, House& house, const HouseModel& model, const Payload& payload, CaseReport& report)
      : settings_(settings), house_(house), model_(model), payload_(payload), report_(report) {}

  absl::Status Run();

 private:
  absl::Status RunRound(bool counts);
  absl::Status AddTotals(Numbers& totals, bool counts);
  absl::Status AddStages(bool counts);
  absl::StatusOr<Sample> Request();
  absl::Duration CopyOnHost(const Parts& parts) const;
  absl::Status WriteTrace();
  void Report(const Parts& parts);

  const Settings& settings_;
  House& house_;
  const HouseModel& model_;
  const Payload& payload_;
  CaseReport& report_;
  std::unique_ptr<BareRunner> one_stream_, streams_;
  Measured measured_;
};

absl::Status Stages::Run() {
  SLUICE_ASSIGN_OR_RETURN(one_stream_, BareRunner::Create(house_, 1));
  SLUICE_ASSIGN_OR_RETURN(streams_, BareRunner::Create(house_, house_.config().batch_streams));
  ProgressLine progress("pipeline: stages");
  progress.Say("warm-up");
  SLUICE_RETURN_IF_ERROR(RunRound(/*counts=*/false));
  Rounds rounds(house_.clock(), settings_.rounds, house_.clock().Now() + settings_.limit);
  while (rounds.Next()) {
    progress.Say(absl::StrCat("round ", rounds.number(), " of ", rounds.most()));
    SLUICE_RETURN_IF_ERROR(RunRound(/*counts=*/true));
  }
  report_.RequireRounds("", rounds.number());
  if (!settings_.trace_file.empty()) SLUICE_RETURN_IF_ERROR(WriteTrace());
  SLUICE_ASSIGN_OR_RETURN(const Parts parts, CutLikeTheLane(model_, payload_.rows()));
  Report(parts);
  return absl::OkStatus();
}

absl::Status Stages::RunRound(bool counts) {
  SLUICE_RETURN_IF_ERROR(AddTotals(measured_.total, counts));
  SLUICE_RETURN_IF_ERROR(AddStages(counts));
  return AddTotals(measured_.second_total, counts);
}

absl::StatusOr<Sample> Stages::Request() {
  absl::StatusOr<Sample> sample =
      CallOnce(house_, {.model = model_, .payload = &payload_, .request_class = RequestClass::kBatch});
  report_.CountRequests(1, sample.ok() ? 1 : 0);
  return sample;
}

absl::Status Stages::AddTotals(Numbers& totals, bool counts) {
  for (int i = 0; i < (counts ? kRepeats : 1); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const Sample sample, Request());
    if (!counts) continue;
    totals.push_back(absl::ToDoubleMilliseconds(sample.server()));
    measured_.request_copy_in.push_back(absl::ToDoubleMilliseconds(sample.timings.copy_in));
  }
  return absl::OkStatus();
}

absl::Status Stages::AddStages(bool counts) {
  SLUICE_ASSIGN_OR_RETURN(const Parts parts, CutLikeTheLane(model_, payload_.rows()));
  const auto add = [&](BareRunner& runner, Stage stage, Numbers& numbers) -> absl::Status {
    SLUICE_ASSIGN_OR_RETURN(const absl::Duration took, runner.Run(parts, stage));
    if (counts) numbers.push_back(absl::ToDoubleMilliseconds(took));
    return absl::OkStatus();
  };
  for (int i = 0; i < (counts ? kRepeats : 1); ++i) {
    const absl::Duration copied = CopyOnHost(parts);
    if (counts) measured_.host_copy.push_back(absl::ToDoubleMilliseconds(copied));
    SLUICE_RETURN_IF_ERROR(add(*streams_, Stage::kCopiesIn, measured_.copies_in));
    SLUICE_RETURN_IF_ERROR(add(*one_stream_, Stage::kUnits, measured_.units_one_stream));
    SLUICE_RETURN_IF_ERROR(add(*streams_, Stage::kUnits, measured_.units_streams));
    SLUICE_RETURN_IF_ERROR(add(*streams_, Stage::kCopiesOut, measured_.copies_out));
  }
  return absl::OkStatus();
}

/// The product's single copy on the way in, as its request thread makes it.
absl::Duration Stages::CopyOnHost(const Parts& parts) const {
  const Time begin = house_.clock().Now();
  for (const Parts::Part& part : parts.parts) {
    const gpu::Slot& slot = *parts.slots[part.slot];
    for (size_t input = 0; input < slot.inputs.size(); ++input) {
      const size_t row_bytes = model_.instance->InputRowBytes(model_.instance->plans(0).front(), input);
      server::CopyFromPieces(payload_.inputs()[input].pieces, static_cast<size_t>(part.first_row) * row_bytes,
                             static_cast<size_t>(part.row_count) * row_bytes, slot.inputs[input].pinned.data);
    }
  }
  return house_.clock().Now() - begin;
}

absl::Status Stages::WriteTrace() {
  gpu::Timeline& timeline = house_.timeline();
  timeline.Start();
  const absl::StatusOr<Sample> sample = Request();
  timeline.Stop();
  SLUICE_RETURN_IF_ERROR(sample.status());
  const server::DeviceTrace trace{house_.device().info().name, timeline.Read()};
  const absl::flat_hash_map<uint64_t, std::string> names = {{model_.served->id.value(), model_.served->name}};
  std::ofstream file(settings_.trace_file);
  file << server::ToChromeTrace({trace}, names);
  if (!file.flush()) return absl::UnavailableError(absl::StrCat("cannot write '", settings_.trace_file, "'"));
  report_.AddNote(absl::StrCat("trace of one request: ", trace.snapshot.records.size(), " spans, ",
                               trace.snapshot.lost_count, " lost, ", absl::ToDoubleMilliseconds(sample->server()),
                               " ms"));
  return absl::OkStatus();
}

void Stages::Report(const Parts& parts) {
  size_t bytes_in = payload_.bytes();
  size_t bytes_out = 0;
  for (size_t i = 0; i < model_.served->outputs.size(); ++i) {
    bytes_out +=
        model_.instance->OutputRowBytes(model_.instance->plans(0).front(), i) * static_cast<size_t>(payload_.rows());
  }
  const auto add = [&](const char* what, const Numbers& numbers, size_t bytes) {
    const double ms = Median(numbers);
    nlohmann::ordered_json row = {{"row", what},
                                  {"n", numbers.size()},
                                  {"ms p50", ms},
                                  {"ms least", Quantile(numbers, 1e-9)},
                                  {"ms most", Quantile(numbers, 1)}};
    if (bytes > 0 && ms > 0) row["GB/s"] = static_cast<double>(bytes) / ms / 1e6;
    report_.AddRow(std::move(row));
    return ms;
  };
  const bool copies = !house_.device().info().unified_memory;
  const double total = add("request", measured_.total, 0);
  const double second_total = add("request again (A/A)", measured_.second_total, 0);
  const double copies_in = copies ? add("all chunks in alone", measured_.copies_in, bytes_in) : 0;
  const double units = add("all units alone", measured_.units_one_stream, 0);
  add("all units alone, lane's streams", measured_.units_streams, 0);
  const double copies_out = copies ? add("all chunks out alone", measured_.copies_out, bytes_out) : 0;
  add("host copy alone", measured_.host_copy, bytes_in);
  add("host copy within a request", measured_.request_copy_in, bytes_in);
  const double longest = std::max({copies_in, units, copies_out});
  report_.AddRow({{"row", "request over its longest stage"}, {"ratio", Ratio(total, longest)}}, 1);
  report_.AddRow({{"row", "request over request again (A/A)"}, {"ratio", Ratio(total, second_total)}}, 1);
  report_.AddNote(absl::StrCat(model_.served->name, ", ", payload_.rows(), " rows in ", parts.parts.size(),
                               " micro-batches of plans for ", absl::StrJoin(parts.plan_rows, ", "), " rows"));
  report_.AddNote(
      "the input lies in page-locked memory; the host copy is the product's own, one thread for a request, and no "
      "stage of the device; on several streams, without a gate, units of two micro-batches run at once");
  if (!copies) report_.AddNote("this device's memory is the host's: nothing is copied to it or from it");
  report_.AddVerdict("request over its longest stage", Ratio(total, longest), kMostTotal, /*at_most=*/true);
}

}  // namespace

absl::StatusOr<CaseReport> RunStages(const Settings& settings) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<House> house, House::Create(settings.server));
  CaseReport report("stages", house->cuda() && !settings.quick);
  SLUICE_ASSIGN_OR_RETURN(const HouseModel model, house->Load(settings.stages.model));
  SLUICE_ASSIGN_OR_RETURN(const Payload payload, Payload::Pinned(model, settings.stages.rows, house->device()));
  SLUICE_RETURN_IF_ERROR(Stages(settings, *house, model, payload, report).Run());
  return report;
}

}  // namespace sluice::bench
