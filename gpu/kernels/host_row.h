// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpu/kernels/host_math.h"

namespace sluice::gpu::host {

// Totals of a row, for the loops that normalise it.

inline constexpr int64_t kLanes = 16;  // independent partial results of a row, so that its loop vectorises

template <class T>
T RowMax(const T* row, int64_t count) {
  T lanes[kLanes];
  std::fill(lanes, lanes + kLanes, row[0]);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = Larger(lanes[lane], row[i + lane]);
  }
  for (; i < count; ++i) lanes[0] = Larger(lanes[0], row[i]);
  for (int64_t lane = 1; lane < kLanes; ++lane) lanes[0] = Larger(lanes[0], lanes[lane]);
  return lanes[0];
}

/// Sum over i of term(i), in double.
template <class Term>
double LaneSum(int64_t count, const Term& term) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (; i < count; ++i) lanes[0] += term(i);
  for (int64_t lane = 1; lane < kLanes; ++lane) lanes[0] += lanes[lane];
  return lanes[0];
}

}  // namespace sluice::gpu::host
