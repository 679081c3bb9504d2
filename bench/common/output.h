// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/clock.h"

namespace sluice::bench {

enum ExitCode { kExitOk = 0, kExitFailed = 1, kExitUsage = 2 };

/// Rows as lines of text. Columns are shown in the order in which they first appear; what a row lacks is "-" there.
std::string RenderTable(const std::vector<nlohmann::ordered_json>& rows);

/// Writes what `program` measured to a file: nothing when `path` is empty, to standard output when it is "-". False,
/// with a word on standard error, when it could not be written. `indent` as nlohmann::json::dump takes it: -1 is one
/// line.
bool WriteJson(absl::string_view program, const std::string& path, const nlohmann::ordered_json& document,
               int indent = 2);

/// Says on standard error what is being done: one line that is written over on a terminal, one line for each step
/// elsewhere. `name` begins with the program's.
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

/// How many rounds a measurement runs: `most`, fewer when there is no time for another as long as the longest so far.
/// The first is always run.
class Rounds {
 public:
  Rounds(const Clock& clock, int most, Time end) : clock_(clock), most_(most), end_(end) {}
  /// True when another round is to be run, which is counted.
  bool Next() {
    const Time now = clock_.Now();
    if (done_ > 0) longest_ = std::max(longest_, now - begun_);
    if (done_ >= most_ || (done_ > 0 && now + longest_ > end_)) return false;
    begun_ = now;
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
  Time begun_;
  absl::Duration longest_;
};

}  // namespace sluice::bench
