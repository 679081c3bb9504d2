// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/repository/class_settings.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"

namespace sluice::server {
namespace {

constexpr uint64_t kMaxDurationUs = 3'600'000'000;  // One hour: beyond it a limit is a slip of units.

absl::Status Invalid(absl::string_view field, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("config.pbtxt: ", field, ": ", reason));
}

bool IsAllowed(const ClassRules& rules, RequestClass request_class) {
  return rules.allowed.empty() ||
         std::find(rules.allowed.begin(), rules.allowed.end(), request_class) != rules.allowed.end();
}

absl::Status FillClassRules(const SluiceParameters& parameters, const inference::ModelConfig& config,
                            ClassRules& rules) {
  rules.allowed = parameters.allowed_classes;
  absl::string_view source = "default class";
  if (parameters.default_class) {
    rules.default_class = *parameters.default_class;
    rules.default_class_is_explicit = true;
    source = "parameter 'sluice.default_class'";
  } else if (config.optimization().priority() != inference::ModelOptimizationPolicy::PRIORITY_DEFAULT) {
    const bool max = config.optimization().priority() == inference::ModelOptimizationPolicy::PRIORITY_MAX;
    rules.default_class = max ? RequestClass::kLatency : RequestClass::kBatch;
    source = "optimization.priority";
  } else if (!IsAllowed(rules, RequestClass::kStandard)) {
    // Nothing was said but what is allowed: the first of it, so that a request without a class is not refused.
    rules.default_class = rules.allowed.front();
  }
  if (!IsAllowed(rules, rules.default_class)) {
    return Invalid(
        source, absl::StrCat("class ", RequestClassName(rules.default_class), " is not among sluice.allowed_classes"));
  }
  const inference::ModelDynamicBatching& batching = config.dynamic_batching();
  rules.priority_levels = batching.priority_levels();
  rules.default_priority_level = batching.default_priority_level();
  if (rules.priority_levels == 0) {
    if (rules.default_priority_level == 0) return absl::OkStatus();
    return Invalid("dynamic_batching.default_priority_level",
                   absl::StrCat(rules.default_priority_level, " needs priority_levels"));
  }
  if (rules.default_priority_level < 1 || rules.default_priority_level > rules.priority_levels) {
    return Invalid(
        "dynamic_batching.default_priority_level",
        absl::StrCat("must be 1 to priority_levels (", rules.priority_levels, "), not ", rules.default_priority_level));
  }
  if (rules.default_priority_level == 1 && parameters.default_class != RequestClass::kLatency) {
    return Invalid("dynamic_batching.default_priority_level",
                   "1 puts every request without a priority into the latency class; if that is meant, set parameter "
                   "sluice.default_class to latency");
  }
  return absl::OkStatus();
}

/// Fills what a queue policy says; the rest of `rules` stays.
absl::Status FillPolicy(absl::string_view field, const inference::ModelQueuePolicy& policy, QueueRules& rules) {
  if (policy.timeout_action() != inference::ModelQueuePolicy::REJECT) {
    return absl::UnimplementedError(absl::StrCat(
        "config.pbtxt: ", field, ".timeout_action: only REJECT; a request that waited too long is answered"));
  }
  const uint64_t timeout_us = policy.default_timeout_microseconds();
  if (timeout_us > kMaxDurationUs) {
    return Invalid(absl::StrCat(field, ".default_timeout_microseconds"),
                   absl::StrCat("at most ", kMaxDurationUs, ", not ", timeout_us));
  }
  rules.max_queue_size = policy.max_queue_size();
  rules.default_timeout =
      timeout_us == 0 ? absl::InfiniteDuration() : absl::Microseconds(static_cast<int64_t>(timeout_us));
  rules.allow_timeout_override = policy.allow_timeout_override();
  return absl::OkStatus();
}

absl::Status FillBatching(const inference::ModelDynamicBatching& batching, int64_t max_batch_size, QueueRules& rules) {
  rules.merges_requests = max_batch_size > 1;
  for (const int32_t size : batching.preferred_batch_size()) {
    if (size < 1 || size > max_batch_size) {
      return Invalid("dynamic_batching.preferred_batch_size",
                     absl::StrCat("must be 1 to max_batch_size (", max_batch_size, "), not ", size));
    }
    rules.preferred_batch_sizes.push_back(size);
  }
  std::sort(rules.preferred_batch_sizes.begin(), rules.preferred_batch_sizes.end());
  rules.preferred_batch_sizes.erase(std::unique(rules.preferred_batch_sizes.begin(), rules.preferred_batch_sizes.end()),
                                    rules.preferred_batch_sizes.end());
  const uint64_t delay_us = batching.max_queue_delay_microseconds();
  if (delay_us > kMaxDurationUs) {
    return Invalid("dynamic_batching.max_queue_delay_microseconds",
                   absl::StrCat("at most ", kMaxDurationUs, ", not ", delay_us));
  }
  rules.max_queue_delay = absl::Microseconds(static_cast<int64_t>(delay_us));
  if (!batching.has_default_queue_policy()) return absl::OkStatus();
  return FillPolicy("dynamic_batching.default_queue_policy", batching.default_queue_policy(), rules);
}

bool SamePolicy(const QueueRules& a, const QueueRules& b) {
  return a.max_queue_size == b.max_queue_size && a.default_timeout == b.default_timeout &&
         a.allow_timeout_override == b.allow_timeout_override;
}

/// Policies are given by priority level, queues are by class: levels of one class must agree.
absl::Status FillClassPolicies(const inference::ModelDynamicBatching& batching, ModelSettings& settings) {
  const std::map<uint64_t, inference::ModelQueuePolicy> policies(batching.priority_queue_policy().begin(),
                                                                 batching.priority_queue_policy().end());
  std::array<uint64_t, kRequestClassCount> first_level = {};
  for (const auto& [level, policy] : policies) {
    const std::string field = absl::StrCat("dynamic_batching.priority_queue_policy[", level, "]");
    if (level < 1 || level > batching.priority_levels()) {
      return Invalid(field, absl::StrCat("the key must be 1 to priority_levels (", batching.priority_levels(), ")"));
    }
    QueueRules rules = settings.queue_rules;
    SLUICE_RETURN_IF_ERROR(FillPolicy(field, policy, rules));
    const RequestClass request_class = ClassOfLevel(level, batching.default_priority_level());
    const auto index = static_cast<size_t>(request_class);
    std::optional<QueueRules>& own = settings.class_queue_rules[index];
    if (own && !SamePolicy(*own, rules)) {
      return Invalid(field, absl::StrCat("levels ", first_level[index], " and ", level, " are both class ",
                                         RequestClassName(request_class), " and must have the same policy"));
    }
    own = rules;
    first_level[index] = level;
  }
  return absl::OkStatus();
}

absl::Status FillSlots(const SluiceParameters& parameters, ModelSettings& settings) {
  // One number for all classes leaves out those that are not allowed; naming such a class is a contradiction.
  const bool by_class = std::any_of(parameters.slots.begin(), parameters.slots.end(),
                                    [](const std::optional<int>& slots) { return !slots.has_value(); });
  for (const RequestClass request_class : kRequestClasses) {
    const auto index = static_cast<size_t>(request_class);
    if (!IsAllowed(settings.class_rules, request_class)) {
      if (by_class && parameters.slots[index]) {
        return Invalid("parameter 'sluice.slots'",
                       absl::StrCat("class ", RequestClassName(request_class), " is not among sluice.allowed_classes"));
      }
      settings.slots[index] = 0;
    } else if (parameters.slots[index]) {
      settings.slots[index] = *parameters.slots[index];
    }
  }
  return absl::OkStatus();
}

}  // namespace

RequestClass ClassOfLevel(uint64_t level, uint64_t default_level) {
  if (level == 1) return RequestClass::kLatency;
  return level <= default_level ? RequestClass::kStandard : RequestClass::kBatch;
}

absl::Status FillClassSettings(const SluiceParameters& parameters, ModelSettings& settings) {
  SLUICE_RETURN_IF_ERROR(FillClassRules(parameters, settings.config, settings.class_rules));
  if (settings.config.has_dynamic_batching()) {
    const inference::ModelDynamicBatching& batching = settings.config.dynamic_batching();
    SLUICE_RETURN_IF_ERROR(FillBatching(batching, settings.max_batch_size, settings.queue_rules));
    SLUICE_RETURN_IF_ERROR(FillClassPolicies(batching, settings));
  }
  return FillSlots(parameters, settings);
}

}  // namespace sluice::server
