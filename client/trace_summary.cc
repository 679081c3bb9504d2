// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/trace_summary.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"

namespace sluice::client {

namespace {

using nlohmann::json;

std::string Word(const json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Adds one event. False when it is not one.
bool Count(const json& event, TraceSummary& summary) {
  const std::string phase = Word(event, "ph");
  std::string name = Word(event, "name");
  if (phase == "M") {
    summary.processes += name == "process_name" ? 1 : 0;
    summary.threads += name == "thread_name" ? 1 : 0;
  }
  if (phase != "X") return true;
  const auto duration = event.find("dur");
  if (duration == event.end() || !duration->is_number()) return false;
  // "part 1", "part 2", ... are one kind of span.
  if (absl::StartsWith(name, "part ")) name = "part";
  SpanTotal& total = summary.spans[{Word(event, "cat"), name}];
  const absl::Duration took = absl::Microseconds(duration->get<double>());
  ++total.count;
  total.sum += took;
  total.most = std::max(total.most, took);
  return true;
}

}  // namespace

absl::StatusOr<TraceSummary> SummarizeTrace(absl::string_view text) {
  TraceSummary summary;
  bool in_events = false;
  bool well_formed = true;
  // Events are dropped once counted: as a tree of values a large trace takes ten times its size.
  const json::parser_callback_t count_and_drop = [&](int depth, json::parse_event_t what, json& value) {
    if (what == json::parse_event_t::key && depth == 1) in_events = value == "traceEvents";
    if (what != json::parse_event_t::object_end || depth != 2 || !in_events) return true;
    well_formed = Count(value, summary) && well_formed;
    return false;
  };
  const json document = json::parse(text.begin(), text.end(), count_and_drop, /*allow_exceptions=*/false);
  const auto events = document.is_object() ? document.find("traceEvents") : document.end();
  // What is left of the list was no object.
  if (!document.is_object() || events == document.end() || !events->is_array() || !events->empty() || !well_formed) {
    return absl::InvalidArgumentError("not a trace: expected a JSON object with a list traceEvents of events");
  }
  if (const auto other = document.find("otherData"); other != document.end() && other->is_object()) {
    const auto count = [&](const char* key) {
      const auto found = other->find(key);
      return found != other->end() && found->is_number_unsigned() ? found->get<uint64_t>() : uint64_t{0};
    };
    summary.records = count("records");
    summary.lost = count("lost");
  }
  return summary;
}

}  // namespace sluice::client
