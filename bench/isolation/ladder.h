// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/common/gpu_monitor.h"
#include "bench/common/house.h"
#include "bench/common/phases.h"
#include "bench/isolation/cell.h"
#include "bench/isolation/results.h"
#include "bench/isolation/rungs.h"
#include "server/config.h"

namespace sluice::bench {

/// Runs cells rung by rung. Purpose: rungs that are compared take turns within rounds, on the same device, in one
/// process. Rungs with the same flags share a house, and a house keeps the models it has loaded; only one runs anything
/// at a time. Threads: one.
class Ladder {
 public:
  struct Options {
    server::ServerConfig server;  ///< The product's; rungs differ from it.
    absl::Duration warmup = absl::Milliseconds(250);
    uint64_t seed = 1;  ///< Of the arrivals, with the number of the round.
    int calibration_requests = 500;
    bool monitor = true;                        ///< Read clocks, power and temperature of a GPU while it is measured.
    absl::Duration limit = absl::Seconds(600);  ///< Of all cells, loading included.
  };

  explicit Ladder(const Options& options);

  /// Adds rounds to `results`. Answers are counted in `report`. Errors: a model that cannot be loaded, or a request.
  absl::Status Run(CellResults& results, CaseReport& report);
  /// Whether the device is a GPU; known once something has run.
  bool cuda() const { return cuda_; }

 private:
  struct Home {
    std::unique_ptr<House> house;
    std::map<std::pair<std::string, bool>, HouseModel> models;  ///< By name, and whether plans are uncut.
  };

  /// The only one whose threads poll from now on.
  absl::StatusOr<Home*> HomeOf(const Rung& rung);
  absl::StatusOr<HouseModel> ModelOf(Home& home, const std::string& name, bool uncut);
  absl::StatusOr<PhaseSpec> MakePhase(Home& home, const CellSpec& cell, const Rung& rung);
  /// Requests a second that take `cell.load` of the device, by the median of requests alone.
  absl::StatusOr<double> Calibrate(Home& home, const CellSpec& cell, CaseReport& report);
  absl::StatusOr<RungRound> RunRung(const CellResults& results, const Rung& rung, int number, CaseReport& report);
  static std::string DescribeNeighbour(const Home& home, const CellSpec& cell, const Rung& rung);

  const Options options_;
  const MonotonicClock clock_;
  const Time end_;
  bool cuda_ = false;
  std::unique_ptr<GpuMonitor> monitor_;
  std::map<std::string, Payload> payloads_;  ///< By model and rows.
  std::map<std::string, Home> homes_;        ///< By the flags that make them.
};

}  // namespace sluice::bench
