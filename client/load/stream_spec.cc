// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/stream_spec.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace sluice::client {
namespace {

constexpr int64_t kMostConcurrency = 4096;
constexpr int64_t kMostBatch = 65536;
constexpr double kMostRate = 1e6;

absl::Status FieldError(absl::string_view field, absl::string_view expected, absl::string_view got) {
  return absl::InvalidArgumentError(
      absl::StrCat("stream field '", field, "': expected ", expected, ", got '", got, "'"));
}

absl::StatusOr<int64_t> ParseWhole(absl::string_view field, absl::string_view text, int64_t most) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 1 || value > most) {
    return FieldError(field, absl::StrCat("a whole number from 1 to ", most), text);
  }
  return value;
}

absl::Status SetLoop(StreamSpec& spec, absl::string_view key, absl::string_view value) {
  if (key == "rate") {
    if (!absl::SimpleAtod(value, &spec.rate) || !(spec.rate >= 1e-3) || spec.rate > kMostRate) {
      return FieldError(key, "requests per second from 0.001 to 1000000", value);
    }
    return absl::OkStatus();
  }
  if (key == "distribution") {
    const std::optional<Arrivals> arrivals = ParseArrivals(value);
    if (!arrivals.has_value()) return FieldError(key, "poisson, constant or bursty", value);
    spec.arrivals = *arrivals;
    return absl::OkStatus();
  }
  if (key == "concurrency") {
    SLUICE_ASSIGN_OR_RETURN(const int64_t concurrency, ParseWhole(key, value, kMostConcurrency));
    spec.concurrency = static_cast<int>(concurrency);
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(spec.request_limit, ParseWhole(key, value, int64_t{1} << 40));
  return absl::OkStatus();
}

absl::Status SetShape(StreamSpec& spec, absl::string_view value) {
  const std::vector<absl::string_view> parts = absl::StrSplit(value, ':');
  if (parts.size() != 2 || parts[0].empty()) return FieldError("shape", "NAME:AxBxC", value);
  absl::StatusOr<std::vector<int64_t>> shape = ParseShape(parts[1]);
  if (!shape.ok()) return FieldError("shape", "NAME:AxBxC", value);
  spec.shapes[std::string(parts[0])] = *std::move(shape);
  return absl::OkStatus();
}

absl::Status SetField(StreamSpec& spec, absl::string_view key, absl::string_view value) {
  if (value.empty()) return FieldError(key, "a value", value);
  if (key == "class") {
    spec.request_class = ParseRequestClass(value);
    if (!spec.request_class.has_value()) return FieldError(key, "latency, standard or batch", value);
    return absl::OkStatus();
  }
  if (key == "rate" || key == "distribution" || key == "concurrency" || key == "requests") {
    return SetLoop(spec, key, value);
  }
  if (key == "shape") return SetShape(spec, value);
  if (key == "batch") {
    SLUICE_ASSIGN_OR_RETURN(spec.batch, ParseWhole(key, value, kMostBatch));
    return absl::OkStatus();
  }
  if (key == "deadline-ms") {
    SLUICE_ASSIGN_OR_RETURN(const int64_t milliseconds, ParseWhole(key, value, 86'400'000));
    spec.deadline = absl::Milliseconds(milliseconds);
    return absl::OkStatus();
  }
  const std::map<absl::string_view, std::string*> texts = {
      {"model", &spec.model}, {"version", &spec.version}, {"name", &spec.name}, {"data", &spec.data}};
  const auto found = texts.find(key);
  if (found == texts.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stream field '", key, "' is not known; known are class, model, version, name, rate, distribution, ",
        "concurrency, requests, batch, deadline-ms, data, shape"));
  }
  *found->second = std::string(value);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseShape(absl::string_view text) {
  std::vector<int64_t> shape;
  const std::string commas = absl::StrReplaceAll(text, {{"x", ","}});
  for (const absl::string_view part : absl::StrSplit(commas, ',')) {
    int64_t dimension = 0;
    if (!absl::SimpleAtoi(part, &dimension) || dimension < 0) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no shape; write it as 3x224x224"));
    }
    shape.push_back(dimension);
  }
  return shape;
}

absl::StatusOr<StreamSpec> ParseStreamSpec(absl::string_view text) {
  StreamSpec spec;
  std::set<absl::string_view> seen;
  for (const absl::string_view field : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(field, absl::MaxSplits('=', 1));
    if (!seen.insert(pair.first).second && pair.first != "shape") {
      return absl::InvalidArgumentError(absl::StrCat("stream field '", pair.first, "' is given twice"));
    }
    SLUICE_RETURN_IF_ERROR(SetField(spec, pair.first, pair.second));
  }
  if (spec.model.empty()) return FieldError("model", "the name of a model", "");
  if (spec.open_loop() == (spec.concurrency > 0)) {
    return absl::InvalidArgumentError(
        "stream fields 'rate' and 'concurrency': expected exactly one of them (rate: open loop, concurrency: closed "
        "loop)");
  }
  if (spec.open_loop() && spec.request_limit > 0) {
    return absl::InvalidArgumentError("stream field 'requests': only a closed loop (concurrency) takes it");
  }
  if (!spec.open_loop() && seen.count("distribution") > 0) {
    return absl::InvalidArgumentError("stream field 'distribution': only an open loop (rate) takes it");
  }
  if (spec.name.empty()) {
    const absl::string_view class_name =
        spec.request_class.has_value() ? RequestClassName(*spec.request_class) : absl::string_view("default");
    spec.name = absl::StrCat(class_name, "/", spec.model);
  }
  return spec;
}

void NameStreams(std::vector<StreamSpec>& streams) {
  std::map<std::string, int> used;
  for (StreamSpec& stream : streams) {
    const int count = ++used[stream.name];
    if (count > 1) absl::StrAppend(&stream.name, "#", count);
  }
}

}  // namespace sluice::client
