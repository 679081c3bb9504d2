// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Metrics::Collect: what every family is called and which cells it is summed from.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/metrics/metrics.h"
#include "server/metrics/process.h"

namespace sluice::metrics {
namespace {

class Builder {
 public:
  Builder(absl::string_view name, absl::string_view help, FamilyType type)
      : family_{std::string(name), std::string(help), type, {}, {}} {}
  void Add(LabelList labels, double value) { family_.series.push_back({std::move(labels), value, {}}); }
  void Add(LabelList labels, HistogramReading histogram) {
    family_.series.push_back({std::move(labels), 0, std::move(histogram)});
  }
  /// A family without series would be an unfinished line in the exposition, so it is left out.
  void Finish(std::vector<Family>& families) && {
    if (!family_.series.empty()) families.push_back(std::move(family_));
  }
  Family& family() { return family_; }

 private:
  Family family_;
};

std::string DeviceLabel(const ServerCells& cells, size_t column) {
  return column < cells.devices.size() ? SanitizeLabel(cells.devices[column]) : "_none";
}

/// Calls visit(cell index, class label, device label) for every (class, device).
template <class Visit>
void ForEachCell(const ServerCells& cells, Visit visit) {
  const size_t columns = cells.devices.size() + 1;
  for (size_t class_index = 0; class_index < kClassLabelCount; ++class_index) {
    for (size_t column = 0; column < columns; ++column) {
      visit(class_index * columns + column, std::string(ClassLabel(class_index)), DeviceLabel(cells, column));
    }
  }
}

void CollectRequests(const ServerCells& cells, const std::vector<const NameCells*>& names,
                     std::vector<Family>& families) {
  Builder durations(
      "sluice_request_duration_seconds",
      "Time from the complete request message to its answer, successful requests. contended: the device's "
      "standard or batch lane was in use from 100 ms before arrival to completion.",
      FamilyType::kHistogram);
  durations.family().edges = cells.edges.seconds();
  Builder totals("sluice_requests_total", "Answered requests by gRPC status code.", FamilyType::kCounter);
  for (const NameCells* name : names) {
    ForEachCell(cells, [&](size_t index, const std::string& class_label, const std::string& device) {
      const NameCells::RequestCells* requests = name->requests[index].get();
      if (requests == nullptr) return;
      const LabelList labels = {{"model", name->name}, {"class", class_label}, {"device", device}};
      for (size_t contended = 0; contended < 2; ++contended) {
        const DurationHistogram* histogram = requests->durations[contended].get();
        if (histogram == nullptr) continue;
        LabelList with_contended = labels;
        with_contended.emplace_back("contended", contended != 0 ? "true" : "false");
        durations.Add(std::move(with_contended), histogram->Read());
      }
      for (size_t code = 0; code < kStatusCodeCount; ++code) {
        const int64_t count = requests->codes.Sum(code);
        if (count == 0) continue;
        LabelList with_code = labels;
        with_code.emplace_back("code", std::string(CodeName(code)));
        totals.Add(std::move(with_code), static_cast<double>(count));
      }
    });
  }
  std::move(durations).Finish(families);
  std::move(totals).Finish(families);
}

void CollectStages(const ServerCells& cells, std::vector<Family>& families) {
  Builder stages("sluice_stage_duration_seconds",
                 "Where the time of successful requests went. gpu_wait: from submission to the first kernel's start.",
                 FamilyType::kHistogram);
  stages.family().edges = cells.edges.seconds();
  ForEachCell(cells, [&](size_t index, const std::string& class_label, const std::string& device) {
    const StageCells* cell = cells.stages[index].get();
    if (cell == nullptr) return;
    for (size_t i = 0; i < kStageCount; ++i) {
      stages.Add({{"class", class_label}, {"device", device}, {"stage", std::string(StageName(static_cast<Stage>(i)))}},
                 cell->histograms[i].Read());
    }
  });
  std::move(stages).Finish(families);
}

void CollectInterference(const ServerCells& cells, const std::vector<const NameCells*>& names,
                         std::vector<Family>& families) {
  Builder interference("sluice_interference_seconds",
                       "How much longer a latency request was on the device than its plan alone takes.",
                       FamilyType::kHistogram);
  interference.family().edges = cells.edges.seconds();
  for (const NameCells* name : names) {
    for (size_t device = 0; device < name->interference.size(); ++device) {
      const DurationHistogram* histogram = name->interference[device].get();
      if (histogram == nullptr) continue;
      interference.Add({{"model", name->name}, {"device", DeviceLabel(cells, device)}}, histogram->Read());
    }
  }
  std::move(interference).Finish(families);
}

/// A counter over (class, word). The known classes are shown from the start, so that a rate sees the first increase.
void CollectByClass(absl::string_view name, absl::string_view help, absl::string_view word_label,
                    const StripedCounters& counters, size_t word_count, absl::string_view (*word)(size_t),
                    std::vector<Family>& families) {
  Builder family(name, help, FamilyType::kCounter);
  for (size_t class_index = 0; class_index < kClassLabelCount; ++class_index) {
    for (size_t i = 0; i < word_count; ++i) {
      const int64_t count = counters.Sum(class_index * word_count + i);
      if (count == 0 && class_index >= static_cast<size_t>(kRequestClassCount)) continue;
      family.Add({{"class", std::string(ClassLabel(class_index))}, {std::string(word_label), std::string(word(i))}},
                 static_cast<double>(count));
    }
  }
  std::move(family).Finish(families);
}

void CollectOutcomes(const ServerCells& cells, std::vector<Family>& families) {
  const auto reason = [](size_t i) { return RejectReasonName(static_cast<RejectReason>(i)); };
  const auto phase = [](size_t i) { return PhaseName(static_cast<Phase>(i)); };
  CollectByClass("sluice_rejected_total", "Requests turned away before they were queued.", "reason", cells.rejected,
                 kRejectReasonCount, reason, families);
  const auto demotion = [](size_t i) { return DemotionReasonName(static_cast<DemotionReason>(i)); };
  CollectByClass("sluice_demoted_total", "Requests that ran in another class than the one they asked for, by that one.",
                 "reason", cells.demoted, kDemotionReasonCount, demotion, families);
  CollectByClass("sluice_expired_total", "Requests whose deadline or queue limit passed.", "at", cells.expired,
                 kPhaseCount, phase, families);
  CollectByClass("sluice_cancelled_total", "Requests whose client went away.", "at", cells.cancelled, kPhaseCount,
                 phase, families);
  Builder errors("sluice_clock_errors_total", "Measured durations outside 0 to 24 h, clamped: two clocks were mixed.",
                 FamilyType::kCounter);
  errors.Add({}, static_cast<double>(cells.clock_errors.Sum(0)));
  std::move(errors).Finish(families);
}

void CollectModels(const std::vector<const ModelMetrics*>& models, std::vector<Family>& families) {
  Builder ready("sluice_model_ready", "1 while this version answers requests.", FamilyType::kGauge);
  Builder load("sluice_model_load_duration_seconds", "How long the last load of this version took.",
               FamilyType::kGauge);
  for (const ModelMetrics* model : models) {
    const LabelList labels = {{"model", model->name()}, {"version", model->version()}};
    ready.Add(labels, model->ready() ? 1 : 0);
    load.Add(labels, absl::ToDoubleSeconds(model->load_duration()));
  }
  std::move(ready).Finish(families);
  std::move(load).Finish(families);
}

/// Triton's names, so that dashboards made for it keep working. Microseconds, as there.
void CollectTriton(const std::vector<const ModelMetrics*>& models, std::vector<Family>& families) {
  struct Column {
    absl::string_view name, help;
    int64_t (*value)(const ModelStatistics&);
  };
  static constexpr Column kColumns[] = {
      {"nv_inference_request_success", "Successful requests.",
       [](const ModelStatistics& s) { return s.success.count; }},
      {"nv_inference_count", "Inferences: rows of successful requests.",
       [](const ModelStatistics& s) { return s.inference_count; }},
      {"nv_inference_exec_count", "Executions; merged requests count once.",
       [](const ModelStatistics& s) { return s.execution_count; }},
      {"nv_inference_request_duration_us", "Cumulative request time of successful requests.",
       [](const ModelStatistics& s) { return s.success.nanoseconds / 1000; }},
      {"nv_inference_queue_duration_us", "Cumulative queue time of successful requests.",
       [](const ModelStatistics& s) { return s.queue.nanoseconds / 1000; }},
      {"nv_inference_compute_input_duration_us", "Cumulative time to copy inputs to the device.",
       [](const ModelStatistics& s) { return s.compute_input.nanoseconds / 1000; }},
      {"nv_inference_compute_infer_duration_us", "Cumulative time on the device's compute engine, waiting included.",
       [](const ModelStatistics& s) { return s.compute_infer.nanoseconds / 1000; }},
      {"nv_inference_compute_output_duration_us", "Cumulative time to copy outputs back and answer.",
       [](const ModelStatistics& s) { return s.compute_output.nanoseconds / 1000; }},
  };
  std::vector<ModelStatistics> statistics;
  for (const ModelMetrics* model : models) statistics.push_back(model->Snapshot(Time::Zero(), absl::UnixEpoch()));
  for (const Column& column : kColumns) {
    Builder family(column.name, column.help, FamilyType::kCounter);
    for (const ModelStatistics& s : statistics) {
      family.Add({{"model", s.name}, {"version", s.version}}, static_cast<double>(column.value(s)));
    }
    std::move(family).Finish(families);
  }
  Builder failures("nv_inference_request_failure", "Failed requests by reason.", FamilyType::kCounter);
  Builder pending("nv_inference_pending_request_count", "Requests enqueued and not started.", FamilyType::kGauge);
  for (const ModelMetrics* model : models) {
    const LabelList labels = {{"model", model->name()}, {"version", model->version()}};
    for (size_t i = 0; i < kFailureReasonCount; ++i) {
      const auto reason = static_cast<FailureReason>(i);
      LabelList with_reason = labels;
      with_reason.emplace_back("reason", std::string(FailureReasonName(reason)));
      failures.Add(std::move(with_reason), static_cast<double>(model->failures(reason)));
    }
    pending.Add(labels, static_cast<double>(model->pending()));
  }
  std::move(failures).Finish(families);
  std::move(pending).Finish(families);
}

void CollectProcess(const std::string& version, std::vector<Family>& families) {
  Builder build("sluice_build_info", "Always 1; the version is a label.", FamilyType::kGauge);
  build.Add({{"version", SanitizeLabel(version)}}, 1);
  std::move(build).Finish(families);
  const ProcessReading process = ReadProcess();
  const auto gauge = [&families](absl::string_view name, absl::string_view help, std::optional<double> value) {
    if (!value) return;
    Builder family(name, help, FamilyType::kGauge);
    family.Add({}, *value);
    std::move(family).Finish(families);
  };
  gauge("process_start_time_seconds", "Start of the process, seconds since 1970.", process.start_time_seconds);
  gauge("process_open_fds", "Open file descriptors.", process.open_fds);
  gauge("process_max_fds", "Limit of open file descriptors.", process.max_fds);
  gauge("process_resident_memory_bytes", "Resident memory.", process.resident_bytes);
}

}  // namespace

std::vector<Family> Metrics::Collect() const {
  const std::vector<const ModelMetrics*> models = Models();
  std::vector<const NameCells*> names = Names();
  names.push_back(&unknown_name_);
  std::vector<Family> families;
  CollectRequests(cells_, names, families);
  CollectStages(cells_, families);
  CollectInterference(cells_, names, families);
  CollectOutcomes(cells_, families);
  CollectReadings(families);
  CollectModels(models, families);
  CollectTriton(models, families);
  CollectProcess(options_.version, families);
  return families;
}

}  // namespace sluice::metrics
