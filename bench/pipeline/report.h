// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"

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

/// Says on standard error what is being done: one line that is written over on a terminal, one line for each step
/// elsewhere.
class ProgressLine {
 public:
  explicit ProgressLine(std::string name);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void Say(absl::string_view what);

 private:
  const std::string name_;
  const bool terminal_;
};

/// How many rounds a case runs: `most`, fewer when its time is over.
class Rounds {
 public:
  Rounds(const Clock& clock, int most, Time end) : clock_(clock), most_(most), end_(end) {}
  /// True when another round is to be run, which is counted.
  bool Next() {
    if (done_ >= most_ || (done_ > 0 && clock_.Now() >= end_)) return false;
    ++done_;
    return true;
  }
  int number() const { return done_; }
  int most() const { return most_; }

 private:
  const Clock& clock_;
  const int most_;
  const Time end_;
  int done_ = 0;
};

}  // namespace sluice::bench
