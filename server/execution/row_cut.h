// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice::server {

/// Throughput of at least this share of the best bucket's wins over unit length, as long as units keep to the limit.
inline constexpr double kKeptThroughput = 0.97;
/// A model that cannot be cut gets its throughput back when that makes its longest unit no longer than this many times.
inline constexpr double kUncuttableSlack = 1.5;

/// What a bucket's plan takes alone on the device.
struct RowProfile {
  int64_t rows = 1;
  absl::Duration whole;         ///< The plan as one graph.
  absl::Duration longest_unit;  ///< What a latency request may have to wait for.
  std::string longest_kernel;   ///< The longest of that unit.
};

/// Why a bucket is the micro-batch.
enum class RowRule : uint8_t {
  kLargest,     ///< Units have no say: a host device, where one is a kernel, or a model for latency requests only.
  kThroughput,  ///< It keeps the throughput, and its units keep to the limit.
  kUnitLimit,   ///< The best of those whose units keep to the limit; throughput pays.
  kUncuttable,  ///< No bucket's units keep to the limit.
  kConfigured,  ///< sluice.batch_rows says so.
};
absl::string_view RowRuleName(RowRule rule);

/// The bucket that standard and batch work runs in.
struct RowChoice {
  size_t index = 0;  ///< Into the profiles.
  RowRule rule = RowRule::kLargest;
  double cost = 0;          ///< Share of the best bucket's throughput that is given up, 0 to 1.
  bool uncuttable = false;  ///< No bucket keeps to the limit: latency requests wait for longer than it.
};

/// How long a kernel runs depends on its rows, and whole kernels are the smallest thing that is launched, so the number
/// of rows decides how long a latency request waits for what is running. Among buckets with at least kKeptThroughput of
/// the best throughput, the one with the shortest longest unit, if that keeps to `unit_limit`. Otherwise the best of
/// all that keep to it. If none does, the best of those whose longest unit is at most kUncuttableSlack times the
/// shortest one. `profiles` has at least one; ties go to more throughput, then to fewer rows.
/// Pure.
RowChoice ChooseRows(std::span<const RowProfile> profiles, absl::Duration unit_limit);

/// What taking profiles[index] means, by `rule`; its cost as above.
RowChoice TakeRows(std::span<const RowProfile> profiles, size_t index, RowRule rule);

}  // namespace sluice::server
