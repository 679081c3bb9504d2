// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace sluice::sim {

/// The first thing that a checker found wrong; the run ends there.
class Failure {
 public:
  template <class... Parts>
  void Report(Time now, const Parts&... parts) {
    if (!text_.empty()) return;
    const double ms = static_cast<double>(now.nanoseconds() - 1'000'000'000) * 1e-6;
    text_ = absl::StrCat("at ", ms, " ms: ", parts...);
  }
  bool found() const { return !text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace sluice::sim
