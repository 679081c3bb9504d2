// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/isolation/cell.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace sluice::bench {
namespace {

absl::Status Wrong(absl::string_view key, absl::string_view expected, absl::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat("cell: ", key, ": expected ", expected, ", got '", got, "'"));
}

absl::Status ReadNumber(absl::string_view key, absl::string_view value, double least, double most, double& result) {
  if (absl::SimpleAtod(value, &result) && result >= least && result <= most) return absl::OkStatus();
  return Wrong(key, absl::StrCat("a number from ", least, " to ", most), value);
}

absl::Status ReadWhole(absl::string_view key, absl::string_view value, int most, int& result) {
  if (absl::SimpleAtoi(value, &result) && result >= 1 && result <= most) return absl::OkStatus();
  return Wrong(key, absl::StrCat("a whole number from 1 to ", most), value);
}

absl::Status ReadSeconds(absl::string_view key, absl::string_view value, absl::Duration& result) {
  double seconds = 0;
  SLUICE_RETURN_IF_ERROR(ReadNumber(key, value, 0.02, 600, seconds));
  result = absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status ReadNeighbour(absl::string_view value, CellSpec& cell) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(value, absl::MaxSplits(':', 1));
  cell.neighbour = std::string(parts.first);
  if (cell.neighbour.empty()) return Wrong("neighbour", "MODEL or MODEL:ROWS", value);
  if (parts.second.empty()) return absl::OkStatus();
  if (absl::SimpleAtoi(parts.second, &cell.rows) && cell.rows >= 1 && cell.rows <= 65536) return absl::OkStatus();
  return Wrong("neighbour", "MODEL:ROWS with 1 to 65536 rows", value);
}

/// Names with + between them, "ladder", "ablations" or "all".
absl::Status ReadRungs(absl::string_view value, CellSpec& cell) {
  cell.rungs.clear();
  bool in_ladder = true;
  for (const Rung& rung : AllRungs()) {
    if (value == "all" || (value == "ladder" && in_ladder)) cell.rungs.push_back(&rung);
    in_ladder = in_ladder && rung.name != "product";
  }
  if (!cell.rungs.empty()) return absl::OkStatus();
  for (const absl::string_view name : absl::StrSplit(value, '+')) {
    cell.rungs.push_back(FindRung(name));
    if (cell.rungs.back() != nullptr) continue;
    std::string known = "all, ladder, or";
    for (const Rung& rung : AllRungs()) absl::StrAppend(&known, " ", rung.name);
    return Wrong("rungs", absl::StrCat(known, " with + between them"), name);
  }
  return absl::OkStatus();
}

absl::Status ReadLimit(absl::string_view key, absl::string_view value, CellLimits& limits, bool& known) {
  const std::pair<absl::string_view, double*> keys[] = {{"r99", &limits.most_r99},
                                                        {"w", &limits.least_w},
                                                        {"r999", &limits.most_r999},
                                                        {"h2d-us", &limits.most_h2d_us},
                                                        {"added-wait-us", &limits.most_added_wait_us}};
  for (const auto& [name, limit] : keys) {
    if (key != name) continue;
    known = true;
    return ReadNumber(key, value, 0, 1e6, *limit);
  }
  return absl::OkStatus();
}

absl::Status ReadKey(absl::string_view key, absl::string_view value, CellSpec& cell) {
  if (key == "latency") {
    cell.latency = std::string(value);
    return absl::OkStatus();
  }
  if (key == "neighbour") return ReadNeighbour(value, cell);
  if (key == "class") {
    const std::optional<RequestClass> request_class = ParseRequestClass(value);
    if (!request_class.has_value() || *request_class == RequestClass::kLatency) {
      return Wrong(key, "batch or standard", value);
    }
    cell.neighbour_class = *request_class;
    return absl::OkStatus();
  }
  if (key == "arrivals") {
    const std::optional<client::Arrivals> arrivals = client::ParseArrivals(value);
    if (!arrivals.has_value()) return Wrong(key, "poisson, constant or bursty", value);
    cell.arrivals = *arrivals;
    return absl::OkStatus();
  }
  if (key == "uncut") {
    if (value != "true" && value != "false") return Wrong(key, "true or false", value);
    cell.uncut = value == "true";
    return absl::OkStatus();
  }
  if (key == "load") return ReadNumber(key, value, 0.01, 0.95, cell.load);
  if (key == "rate") return ReadNumber(key, value, 0.1, 1e6, cell.rate);
  if (key == "in-flight") return ReadWhole(key, value, 256, cell.in_flight);
  if (key == "rungs") return ReadRungs(value, cell);
  if (key == "rounds") return ReadWhole(key, value, 1000, cell.rounds);
  if (key == "alone") return ReadSeconds(key, value, cell.alone);
  if (key == "mixed") return ReadSeconds(key, value, cell.mixed);
  if (key == "batch") return ReadSeconds(key, value, cell.batch);
  bool known = false;
  SLUICE_RETURN_IF_ERROR(ReadLimit(key, value, cell.limits, known));
  if (known) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cell: unknown key '", key, "'"));
}

}  // namespace

std::string CellSpec::LoadName() const {
  return load > 0 ? absl::StrFormat("%g %%", load * 100) : absl::StrFormat("%g/s", rate);
}

std::string CellSpec::Key() const {
  return absl::StrCat(latency, " ", LoadName(), " ", client::ArrivalsName(arrivals), " beside ", neighbour, ":", rows,
                      uncut ? " uncut" : "", " x", in_flight, " ", RequestClassName(neighbour_class));
}

absl::StatusOr<CellSpec> ParseCell(absl::string_view text) {
  CellSpec cell;
  cell.rungs = {FindRung("product")};
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    SLUICE_RETURN_IF_ERROR(ReadKey(pair.first, pair.second, cell));
  }
  if (cell.latency.empty()) return Wrong("latency", "a model", "");
  if (cell.neighbour.empty()) return Wrong("neighbour", "MODEL or MODEL:ROWS", "");
  if ((cell.load > 0) == (cell.rate > 0)) return absl::InvalidArgumentError("cell: expected one of load and rate");
  const bool standard = cell.neighbour_class == RequestClass::kStandard;
  for (const Rung* rung : cell.rungs) {
    if (!standard || !rung->uncut) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("cell: rung ", rung->name, " runs whole batch plans, and class is standard"));
  }
  if (standard && cell.uncut) return absl::InvalidArgumentError("cell: uncut plans are of the class batch");
  return cell;
}

}  // namespace sluice::bench
