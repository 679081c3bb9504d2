// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/common/output.h"

namespace sluice::bench {

/// A measured value beside its target.
struct Verdict {
  std::string what;
  double value = 0;
  double limit = 0;
  bool at_most = true;  ///< Else at least.
  bool judged = true;   ///< Else printed only: the targets are a GPU's, and of a full run.
  bool Within() const { return !judged || (at_most ? value <= limit : value >= limit); }
};

/// What one case measured. Table and JSON show the same rows and numbers.
class CaseReport {
 public:
  static constexpr int kLeastRounds = 3;

  CaseReport(std::string name, bool judges) : name_(std::move(name)), judges_(judges) {}

  /// Rows with the same `table` are shown as one, tables by number. Columns are shown in the order in which they first
  /// appear; what a row lacks is "-" there.
  void AddRow(nlohmann::ordered_json row, int table = 0) { rows_.emplace_back(table, std::move(row)); }
  void AddVerdict(std::string what, double value, double limit, bool at_most, bool judged = true) {
    verdicts_.push_back({std::move(what), value, limit, at_most, judged && judges_});
  }
  /// A result of too few rounds is none. `of` says which part of the case: "" or "20 %: ".
  void RequireRounds(const std::string& of, int rounds) {
    AddVerdict(of + "rounds", rounds, kLeastRounds, /*at_most=*/false);
  }
  void AddNote(std::string note) { notes_.push_back(std::move(note)); }
  /// Requests of the case: each is answered, or it counts as an error.
  void CountRequests(uint64_t submitted, uint64_t answered) {
    submitted_ += submitted;
    answered_ += answered;
  }

  bool Within() const;
  std::string ToText() const;
  nlohmann::ordered_json ToJson() const;

 private:
  const std::string name_;
  const bool judges_;
  uint64_t submitted_ = 0;
  uint64_t answered_ = 0;
  std::vector<std::pair<int, nlohmann::ordered_json>> rows_;  ///< With the number of the table.
  std::vector<Verdict> verdicts_;
  std::vector<std::string> notes_;
};

}  // namespace sluice::bench
