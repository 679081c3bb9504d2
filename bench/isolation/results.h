// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/common/calls.h"
#include "bench/common/gpu_monitor.h"
#include "bench/common/report.h"
#include "bench/common/statistics.h"
#include "bench/isolation/cell.h"

namespace sluice::bench {

/// What a phase says of the latency class, in microseconds, one number a request.
struct PhaseNumbers {
  Numbers server;  ///< From submission to answer.
  Numbers wait;    ///< gpu_wait.
  Numbers h2d;
  Numbers device;  ///< h2d + compute + d2h.

  void Add(const std::vector<Sample>& samples);
  void Add(const PhaseNumbers& other);
};

/// One rung in one round.
struct RungRound {
  int number = 0;
  PhaseNumbers alone, again, mixed;  ///< `again` of the product only.
  double batch_alone = 0;            ///< Rows a second; 0 where it was not measured.
  double batch_mixed = 0;
  std::optional<GpuState> gpu;  ///< During `mixed`.
};

/// All rounds of one cell, of this run and of those it continues.
class CellResults {
 public:
  explicit CellResults(CellSpec spec) : spec_(std::move(spec)) {}
  /// What an earlier run of the same cell has left. INVALID_ARGUMENT when `stored` is something else.
  absl::Status Continue(const nlohmann::ordered_json& stored);

  const CellSpec& spec() const { return spec_; }
  int last_round() const;
  /// Requests a second of the latency model: of an earlier run if there is one.
  double rate() const { return rate_; }
  void SetRate(double rate) { rate_ = rate; }
  void Add(const Rung& rung, RungRound round) { rounds_[std::string(rung.name)].push_back(std::move(round)); }

  /// Rows, and verdicts over the product's.
  void Report(CaseReport& report) const;
  /// With all samples, so that a later run can continue and anybody can draw them.
  nlohmann::ordered_json ToJson() const;

 private:
  struct Summary;
  Summary Summarise(const std::string& name, const std::vector<RungRound>& rounds) const;
  const std::vector<RungRound>* BatchAloneRounds() const;
  void AddVerdicts(const Summary& product, CaseReport& report) const;

  const CellSpec spec_;
  double rate_ = 0;
  std::map<std::string, std::vector<RungRound>> rounds_;  ///< By the rung's name.
};

}  // namespace sluice::bench
