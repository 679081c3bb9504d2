// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/class_rules.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/quote.h"

namespace sluice::rpc {
namespace {

RequestClass NearestAllowed(const server::ClassRules& rules, RequestClass wished) {
  const auto allowed = [&rules](int index) {
    return std::find(rules.allowed.begin(), rules.allowed.end(), static_cast<RequestClass>(index)) !=
           rules.allowed.end();
  };
  if (rules.allowed.empty()) return wished;
  const int start = static_cast<int>(wished);
  for (int lower = start; lower < kRequestClassCount; ++lower) {
    if (allowed(lower)) return static_cast<RequestClass>(lower);
  }
  for (int higher = start - 1; higher >= 0; --higher) {
    if (allowed(higher)) return static_cast<RequestClass>(higher);
  }
  return wished;
}

RequestClass Wished(const server::ClassRules& rules, const ClassWishes& wishes) {
  if (wishes.metadata.has_value()) return *wishes.metadata;
  if (wishes.priority.has_value()) {
    const std::optional<RequestClass> by_priority = ClassOfPriority(rules, *wishes.priority);
    if (by_priority.has_value()) return *by_priority;
  }
  // The rules' default already says which of sluice.default_class, optimization.priority and "standard" it came from.
  return wishes.of_the_port.value_or(rules.default_class);
}

}  // namespace

std::optional<RequestClass> ClassOfPriority(const server::ClassRules& rules, uint64_t priority) {
  uint64_t last_standard = 2;
  if (rules.priority_levels > 0) {
    last_standard = rules.default_priority_level;
    if (priority == 0 || priority > rules.priority_levels) priority = rules.default_priority_level;
  }
  if (priority == 0) return std::nullopt;
  if (priority == 1) return RequestClass::kLatency;
  return priority <= last_standard ? RequestClass::kStandard : RequestClass::kBatch;
}

ClassDecision DecideClass(const server::ClassRules& rules, const ClassWishes& wishes) {
  ClassDecision decision;
  decision.wished = Wished(rules, wishes);
  decision.used = NearestAllowed(rules, decision.wished);
  return decision;
}

absl::StatusOr<RequestClass> ParseClassMetadata(absl::string_view word) {
  const std::optional<RequestClass> parsed = ParseRequestClass(word);
  if (parsed.has_value()) return *parsed;
  return absl::InvalidArgumentError(
      absl::StrCat("metadata sluice-class: expected latency, standard or batch, got ", Quote(word)));
}

}  // namespace sluice::rpc
