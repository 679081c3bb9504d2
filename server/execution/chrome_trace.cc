// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/chrome_trace.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::server {
namespace {

using gpu::SpanClock;
using gpu::SpanKind;
using gpu::TimelineRecord;
using ModelNames = absl::flat_hash_map<uint64_t, std::string>;

constexpr std::array<absl::string_view, 3> kEngineWords = {"units", "copies in", "copies out"};

absl::string_view NameOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::kQueue:
      return "queue";
    case SpanKind::kCopyIn:
      return "copy in";
    case SpanKind::kGpuWait:
      return "gpu wait";
    case SpanKind::kH2d:
      return "h2d";
    case SpanKind::kCompute:
      return "compute";
    case SpanKind::kD2h:
      return "d2h";
    case SpanKind::kRespond:
      return "respond";
    case SpanKind::kGraph:
      return "graph";
    case SpanKind::kUnit:
      return "unit";
    case SpanKind::kChunkIn:
      return "chunk in";
    case SpanKind::kChunkOut:
      return "chunk out";
    case SpanKind::kGateClosed:
      return "gate closed";
  }
  return "unknown";
}

absl::string_view CategoryOf(SpanKind kind) {
  if (gpu::IsStage(kind)) return "stage";
  switch (kind) {
    case SpanKind::kGraph:
      return "graph";
    case SpanKind::kUnit:
      return "unit";
    case SpanKind::kChunkIn:
    case SpanKind::kChunkOut:
      return "chunk";
    default:
      return "gate";
  }
}

absl::string_view ClockWord(SpanClock clock) {
  switch (clock) {
    case SpanClock::kDevice:
      return "device";
    case SpanClock::kMixed:
      return "mixed";
    case SpanClock::kDeviceLength:
      return "device length";
    case SpanClock::kHost:
      return "host";
  }
  return "host";
}

size_t EngineOf(SpanKind kind) {
  if (kind == SpanKind::kChunkIn) return 1;
  return kind == SpanKind::kChunkOut ? 2 : 0;
}

std::string Quoted(absl::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Nanoseconds as microseconds with three digits, exact.
std::string Microseconds(int64_t ns) { return absl::StrCat(ns / 1000, ".", absl::Dec(ns % 1000, absl::kZeroPad3)); }

/// Spans of one request that follow each other: all but the later ones of several micro-batches, which overlap and make
/// a bar each.
struct Bar {
  std::vector<const TimelineRecord*> spans;
  Time start = Time::Infinite(), end;
  bool whole_request = false;
};

class Writer {
 public:
  explicit Writer(const ModelNames& models) : models_(models) {}
  std::string Write(const std::vector<DeviceTrace>& devices);

 private:
  void WriteDevice(const DeviceTrace& device);
  void WriteGate(const std::vector<const TimelineRecord*>& records);
  void WriteRequests(const std::vector<const TimelineRecord*>& records, RequestClass request_class);
  void WriteStreams(const std::vector<const TimelineRecord*>& records, RequestClass request_class);
  void WriteBar(const Bar& bar, int tid);
  /// In order of start; what would begin before its predecessor ended is cut.
  void WriteRow(std::vector<const TimelineRecord*> records, int tid);
  int NewThread(const std::string& name);
  void Span(absl::string_view name, absl::string_view category, int tid, Time start, Time end, const std::string& args);
  void Metadata(absl::string_view what, int tid, absl::string_view value);
  std::string Args(const TimelineRecord& record) const;
  std::string RequestArgs(const Bar& bar) const;
  std::string ModelArg(uint64_t model) const;

  const ModelNames& models_;
  std::string out_;
  Time base_ = Time::Infinite();
  int pid_ = 0;
  int last_tid_ = 0;
  bool first_event_ = true;
};

std::string Writer::Write(const std::vector<DeviceTrace>& devices) {
  uint64_t records = 0;
  uint64_t lost = 0;
  Time started = Time::Infinite();
  for (const DeviceTrace& device : devices) {
    records += device.snapshot.records.size();
    lost += device.snapshot.lost_count;
    started = std::min(started, device.snapshot.started);
    for (const TimelineRecord& record : device.snapshot.records) base_ = std::min(base_, record.start);
  }
  out_.reserve(4096 + 320 * records);
  absl::StrAppend(&out_, R"({"displayTimeUnit":"ns","otherData":{"records":)", records, R"(,"lost":)", lost,
                  R"(,"clock":"CLOCK_MONOTONIC","base_ns":)", base_.is_infinite() ? 0 : base_.nanoseconds(),
                  R"(,"started_ns":)", started.is_infinite() ? 0 : started.nanoseconds(), R"(},"traceEvents":[)");
  for (const DeviceTrace& device : devices) WriteDevice(device);
  out_ += "\n]}\n";
  return std::move(out_);
}

void Writer::WriteDevice(const DeviceTrace& device) {
  ++pid_;
  last_tid_ = 0;
  Metadata("process_name", 0, Quoted(device.name));
  std::vector<const TimelineRecord*> gate;
  std::array<std::vector<const TimelineRecord*>, kRequestClassCount> stages, streams;
  for (const TimelineRecord& record : device.snapshot.records) {
    const auto index = static_cast<size_t>(record.request_class);
    if (index >= kRequestClassCount) continue;
    if (record.kind == SpanKind::kGateClosed) {
      gate.push_back(&record);
    } else {
      (gpu::IsStage(record.kind) ? stages : streams)[index].push_back(&record);
    }
  }
  WriteGate(gate);
  for (const RequestClass request_class : kRequestClasses) {
    WriteRequests(stages[static_cast<size_t>(request_class)], request_class);
  }
  for (const RequestClass request_class : kRequestClasses) {
    WriteStreams(streams[static_cast<size_t>(request_class)], request_class);
  }
}

void Writer::WriteGate(const std::vector<const TimelineRecord*>& records) {
  if (records.empty()) return;
  WriteRow(records, NewThread("gate"));
}

/// One bar for the request with its queue, first micro-batch and answer, one more for each other micro-batch.
std::vector<Bar> MakeBars(const std::vector<const TimelineRecord*>& records) {
  std::map<uint64_t, std::map<uint32_t, Bar>> requests;
  std::map<uint64_t, std::vector<const TimelineRecord*>> ends;
  for (const TimelineRecord* record : records) {
    if (record->kind == SpanKind::kQueue || record->kind == SpanKind::kRespond) {
      ends[record->request].push_back(record);
      requests[record->request];
    } else {
      requests[record->request][record->index].spans.push_back(record);
    }
  }
  std::vector<Bar> bars;
  for (auto& [request, parts] : requests) {
    Bar& first = parts.empty() ? parts[0] : parts.begin()->second;
    first.whole_request = true;
    for (const TimelineRecord* record : ends[request]) first.spans.push_back(record);
    for (auto& [index, bar] : parts) {
      for (const TimelineRecord* record : bar.spans) {
        bar.start = std::min(bar.start, record->start);
        bar.end = std::max(bar.end, record->end);
      }
      bars.push_back(std::move(bar));
    }
  }
  std::stable_sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return a.start < b.start; });
  return bars;
}

void Writer::WriteRequests(const std::vector<const TimelineRecord*>& records, RequestClass request_class) {
  struct Row {
    int tid = 0;
    Time end;
  };
  std::vector<Row> rows;
  for (const Bar& bar : MakeBars(records)) {
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& candidate) { return candidate.end <= bar.start; });
    if (row == rows.end()) {
      rows.push_back(
          {NewThread(absl::StrCat(RequestClassName(request_class), " requests ", rows.size() + 1)), Time::Zero()});
      row = rows.end() - 1;
    }
    WriteBar(bar, row->tid);
    row->end = bar.end;
  }
}

void Writer::WriteBar(const Bar& bar, int tid) {
  const std::string name = bar.whole_request ? "request" : absl::StrCat("part ", bar.spans.front()->index);
  Span(name, "request", tid, bar.start, bar.end, RequestArgs(bar));
  WriteRow(bar.spans, tid);
}

void Writer::WriteStreams(const std::vector<const TimelineRecord*>& records, RequestClass request_class) {
  std::vector<const TimelineRecord*> sorted = records;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const TimelineRecord* a, const TimelineRecord* b) { return a->start < b->start; });
  std::map<uint64_t, size_t> numbers;  // of streams, in the order in which they appear
  std::map<std::pair<size_t, size_t>, std::vector<const TimelineRecord*>> rows;
  for (const TimelineRecord* record : sorted) {
    const size_t number = numbers.try_emplace(record->track, numbers.size() + 1).first->second;
    rows[{number, EngineOf(record->kind)}].push_back(record);
  }
  for (auto& [key, row] : rows) {
    const absl::string_view engine = row.front()->kind == SpanKind::kGraph ? "graphs" : kEngineWords[key.second];
    const int tid = NewThread(absl::StrCat(RequestClassName(request_class), " stream ", key.first, ": ", engine));
    WriteRow(std::move(row), tid);
  }
}

void Writer::WriteRow(std::vector<const TimelineRecord*> records, int tid) {
  std::stable_sort(records.begin(), records.end(), [](const TimelineRecord* a, const TimelineRecord* b) {
    return std::pair(a->start, a->end) < std::pair(b->start, b->end);
  });
  Time last;
  for (const TimelineRecord* record : records) {
    const Time start = std::max(record->start, last);
    last = std::max(record->end, start);
    Span(NameOf(record->kind), CategoryOf(record->kind), tid, start, last, Args(*record));
  }
}

int Writer::NewThread(const std::string& name) {
  const int tid = ++last_tid_;
  Metadata("thread_name", tid, Quoted(name));
  Metadata("thread_sort_index", tid, absl::StrCat(tid));
  return tid;
}

void Writer::Metadata(absl::string_view what, int tid, absl::string_view value) {
  const absl::string_view key =
      absl::string_view(what).find("sort_index") == absl::string_view::npos ? "name" : "sort_index";
  absl::StrAppend(&out_, std::exchange(first_event_, false) ? "\n" : ",\n", R"({"name":")", what,
                  R"(","ph":"M","pid":)", pid_, R"(,"tid":)", tid, R"(,"args":{")", key, R"(":)", value, "}}");
}

void Writer::Span(absl::string_view name, absl::string_view category, int tid, Time start, Time end,
                  const std::string& args) {
  const int64_t base = base_.nanoseconds();
  absl::StrAppend(&out_, std::exchange(first_event_, false) ? "\n" : ",\n", R"({"name":")", name, R"(","cat":")",
                  category, R"(","ph":"X","pid":)", pid_, R"(,"tid":)");
  absl::StrAppend(&out_, tid, R"(,"ts":)", Microseconds(start.nanoseconds() - base), R"(,"dur":)",
                  Microseconds(end.nanoseconds() - start.nanoseconds()), R"(,"args":{)", args, "}}");
}

std::string Writer::ModelArg(uint64_t model) const {
  const auto found = models_.find(model);
  if (found == models_.end()) return "";
  return absl::StrCat(R"(,"model":)", Quoted(found->second));
}

std::string Writer::Args(const TimelineRecord& record) const {
  std::string args = absl::StrCat(R"("clock":")", ClockWord(record.clock), "\"");
  if (record.kind == SpanKind::kGateClosed) return args;
  absl::StrAppend(&args, R"(,"class":")", RequestClassName(record.request_class), "\"");
  if (record.request != 0) absl::StrAppend(&args, R"(,"request":)", record.request);
  if (gpu::IsStage(record.kind)) {
    absl::StrAppend(&args, R"(,"rows":)", record.amount, ModelArg(record.model));
    if (record.kind != SpanKind::kQueue && record.kind != SpanKind::kRespond) {
      absl::StrAppend(&args, R"(,"part":)", record.index);
    }
  } else if (record.kind != SpanKind::kGraph) {
    absl::StrAppend(&args, R"(,"number":)", record.index, R"(,"predicted_us":)",
                    Microseconds(absl::ToInt64Nanoseconds(record.predicted)));
    // Latency work in between would be counted as the unit's own, so nothing is measured then.
    if (record.measured > absl::ZeroDuration()) {
      absl::StrAppend(&args, R"(,"measured_us":)", Microseconds(absl::ToInt64Nanoseconds(record.measured)));
    }
    if (record.kind != SpanKind::kUnit) absl::StrAppend(&args, R"(,"bytes":)", record.amount);
  }
  if (record.status != absl::StatusCode::kOk) {
    absl::StrAppend(&args, R"(,"status":")", absl::StatusCodeToString(record.status), "\"");
  }
  return args;
}

std::string Writer::RequestArgs(const Bar& bar) const {
  const TimelineRecord& any = *bar.spans.front();
  uint64_t rows = 0;
  absl::StatusCode status = absl::StatusCode::kOk;
  for (const TimelineRecord* record : bar.spans) {
    rows = std::max(rows, record->amount);
    if (record->status != absl::StatusCode::kOk) status = record->status;
  }
  return absl::StrCat(R"("request":)", any.request, R"(,"class":")", RequestClassName(any.request_class),
                      R"(","rows":)", rows, R"(,"status":")", absl::StatusCodeToString(status), "\"",
                      ModelArg(any.model));
}

}  // namespace

std::string ToChromeTrace(const std::vector<DeviceTrace>& devices, const ModelNames& model_names) {
  return Writer(model_names).Write(devices);
}

}  // namespace sluice::server
