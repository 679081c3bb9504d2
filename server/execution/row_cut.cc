// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/row_cut.h"

#include <algorithm>
#include <optional>

namespace sluice::server {
namespace {

/// Rows a second. A plan that took no measurable time counts as one nanosecond.
double Throughput(const RowProfile& profile) {
  return static_cast<double>(profile.rows) / absl::ToDoubleSeconds(std::max(profile.whole, absl::Nanoseconds(1)));
}

double BestThroughput(std::span<const RowProfile> profiles) {
  double best = 0;
  for (const RowProfile& profile : profiles) best = std::max(best, Throughput(profile));
  return best;
}

/// The first of those that `allowed` accepts that no later one is better than; `better` is strict.
template <class Allowed, class Better>
std::optional<size_t> Select(std::span<const RowProfile> profiles, Allowed allowed, Better better) {
  std::optional<size_t> best;
  for (size_t i = 0; i < profiles.size(); ++i) {
    if (allowed(profiles[i]) && (!best || better(profiles[i], profiles[*best]))) best = i;
  }
  return best;
}

bool MoreThroughput(const RowProfile& a, const RowProfile& b) { return Throughput(a) > Throughput(b); }

bool ShorterUnit(const RowProfile& a, const RowProfile& b) {
  return a.longest_unit < b.longest_unit || (a.longest_unit == b.longest_unit && MoreThroughput(a, b));
}

}  // namespace

absl::string_view RowRuleName(RowRule rule) {
  switch (rule) {
    case RowRule::kLargest:
      return "largest";
    case RowRule::kThroughput:
      return "throughput";
    case RowRule::kUnitLimit:
      return "unit_limit";
    case RowRule::kUncuttable:
      return "uncuttable";
    case RowRule::kConfigured:
      return "configured";
  }
  return "unknown";
}

RowChoice TakeRows(std::span<const RowProfile> profiles, size_t index, RowRule rule) {
  return {.index = index, .rule = rule, .cost = 1 - Throughput(profiles[index]) / BestThroughput(profiles)};
}

RowChoice ChooseRows(std::span<const RowProfile> profiles, absl::Duration unit_limit) {
  const double least = kKeptThroughput * BestThroughput(profiles);
  const auto any = [](const RowProfile&) { return true; };
  const auto keeps_throughput = [&](const RowProfile& profile) { return Throughput(profile) >= least; };
  const auto keeps_limit = [&](const RowProfile& profile) { return profile.longest_unit <= unit_limit; };

  const size_t kept = *Select(profiles, keeps_throughput, ShorterUnit);  // The best bucket is always one.
  if (keeps_limit(profiles[kept])) return TakeRows(profiles, kept, RowRule::kThroughput);
  if (const auto within = Select(profiles, keeps_limit, MoreThroughput)) {
    return TakeRows(profiles, *within, RowRule::kUnitLimit);
  }
  const size_t shortest = *Select(profiles, any, ShorterUnit);
  const absl::Duration nearly = profiles[shortest].longest_unit * kUncuttableSlack;
  const auto nearly_as_short = [&](const RowProfile& profile) { return profile.longest_unit <= nearly; };
  // The shortest is always one.
  RowChoice choice = TakeRows(profiles, *Select(profiles, nearly_as_short, MoreThroughput), RowRule::kUncuttable);
  choice.uncuttable = true;
  return choice;
}

}  // namespace sluice::server
