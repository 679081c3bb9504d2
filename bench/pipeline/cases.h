// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/common/report.h"
#include "server/config.h"

namespace sluice::bench {

/// A model of the repository, and the rows of one request.
struct ModelRows {
  std::string model;
  int64_t rows = 1;
};

/// Everything that can be set. The defaults are for one H200 with the models of scripts/generate_gpu_models.sh.
struct Settings {
  server::ServerConfig server;
  bool quick = false;                         ///< One short round of small requests, and nothing is judged.
  int rounds = 5;                             ///< 3 or more for a result that is judged.
  absl::Duration phase = absl::Seconds(1.5);  ///< Of each measured phase.
  absl::Duration warmup = absl::Milliseconds(250);
  absl::Duration limit = absl::Seconds(80);  ///< Of each case, loading left out.
  uint64_t seed = 1;
  std::string trace_file;  ///< Of one request of the case stages; empty: none.

  ModelRows stages = {"resnet50", 256};
  std::vector<ModelRows> cut = {{"resnet50", 16}, {"bert12", 512}};
  int cut_requests = 4;  ///< In flight.

  ModelRows copies_in = {"copy", 64};   ///< Its input is what is copied.
  ModelRows copies_out = {"fill", 64};  ///< Its output is what is copied.
  int copies_threads = 8;               ///< Request threads of the house: they copy into the slots.
  int copies_requests = 12;             ///< In flight.
  double copies_rate = 300;             ///< Latency requests a second.

  std::string chain = "chain24";
  ModelRows neighbour = {"gemm", 768};
  int neighbour_requests = 6;              ///< In flight.
  std::vector<double> loads = {0.2, 0.5};  ///< Shares of the device for the chain.
};

/// A batch request against each of its three stages alone.
absl::StatusOr<CaseReport> RunStages(const Settings& settings);
/// Batch work in units, as the batch lane runs it, against the same plans uncut.
absl::StatusOr<CaseReport> RunCut(const Settings& settings);
/// Copies of a latency request beside batch copies that go flat out, each direction by itself.
absl::StatusOr<CaseReport> RunCopies(const Settings& settings);
/// A chain of small kernels as latency work beside batch units in a closed loop.
absl::StatusOr<CaseReport> RunChain(const Settings& settings);

}  // namespace sluice::bench
