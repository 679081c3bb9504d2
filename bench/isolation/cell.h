// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/request_class.h"
#include "bench/isolation/rungs.h"
#include "client/load/schedule.h"

namespace sluice::bench {

/// What is judged of the product's row; 0: not judged. The upper end of R99's interval counts, the lower one of W's.
struct CellLimits {
  double most_r99 = 0;
  double least_w = 0;
  double most_r999 = 0;
  double most_h2d_us = 0;         ///< p99 of a latency request's copy in.
  double most_added_wait_us = 0;  ///< p99 of gpu_wait beside the neighbour, less p99 alone.
};

/// One latency model at one load beside one neighbour.
struct CellSpec {
  std::string latency;
  std::string neighbour;
  int64_t rows = 1;    ///< Of one of the neighbour's requests.
  int in_flight = 6;   ///< Of the neighbour's requests: it is never starved.
  bool uncut = false;  ///< The neighbour's plans are one unit each in every rung: the adversary.
  RequestClass neighbour_class = RequestClass::kBatch;
  double load = 0;  ///< Share of the device that the latency model takes alone; or
  double rate = 0;  ///< requests a second.
  client::Arrivals arrivals = client::Arrivals::kPoisson;
  std::vector<const Rung*> rungs;
  int rounds = 5;
  absl::Duration alone = absl::Seconds(1);  ///< Of each phase.
  absl::Duration mixed = absl::Seconds(2);
  absl::Duration batch = absl::Seconds(1);
  CellLimits limits;

  std::string LoadName() const;  ///< "20 %" or "5/s".
  /// What is the same in every run of the cell, so that rounds of several runs may be pooled.
  std::string Key() const;
};

/// "latency=MODEL,neighbour=MODEL:ROWS,load=0.2" and more keys, as --help of the program says. INVALID_ARGUMENT naming
/// the key, what was expected and what came.
absl::StatusOr<CellSpec> ParseCell(absl::string_view text);

}  // namespace sluice::bench
