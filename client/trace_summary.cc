// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/trace_summary.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"

namespace sluice::client {

using nlohmann::json;

absl::StatusOr<TraceSummary> SummarizeTrace(absl::string_view text) {
  const json document = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("traceEvents") || !document["traceEvents"].is_array()) {
    return absl::InvalidArgumentError("not a trace: expected a JSON object with a list traceEvents");
  }
  TraceSummary summary;
  if (const auto other = document.find("otherData"); other != document.end() && other->is_object()) {
    const auto count = [&](const char* key) {
      const auto found = other->find(key);
      return found != other->end() && found->is_number_unsigned() ? found->get<uint64_t>() : uint64_t{0};
    };
    summary.records = count("records");
    summary.lost = count("lost");
  }
  const auto word = [](const json& event, const char* key) {
    const auto found = event.find(key);
    return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  for (const json& event : document["traceEvents"]) {
    if (!event.is_object()) return absl::InvalidArgumentError("not a trace: an event is not an object");
    const std::string phase = word(event, "ph");
    std::string name = word(event, "name");
    if (phase == "M") {
      summary.processes += name == "process_name" ? 1 : 0;
      summary.threads += name == "thread_name" ? 1 : 0;
    }
    if (phase != "X") continue;
    const auto duration = event.find("dur");
    if (duration == event.end() || !duration->is_number()) {
      return absl::InvalidArgumentError("not a trace: a complete event has no duration");
    }
    // "part 1", "part 2", ... are one kind of span.
    if (absl::StartsWith(name, "part ")) name = "part";
    SpanTotal& total = summary.spans[{word(event, "cat"), name}];
    const absl::Duration took = absl::Microseconds(duration->get<double>());
    ++total.count;
    total.sum += took;
    total.most = std::max(total.most, took);
  }
  return summary;
}

}  // namespace sluice::client
