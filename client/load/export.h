// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "client/histogram.h"
#include "client/load/load_run.h"

namespace sluice::client {

/// A header and a line for each stream of each phase, for spreadsheets and scripts. Times are in milliseconds and empty
/// where there was no success; names with a comma or a quote are quoted as RFC 4180 says.
std::string CsvReport(const LoadOptions& options, const std::vector<PhaseResult>& phases);

/// The distribution as HdrHistogram's tools print and plot it: value in milliseconds, quantile, samples up to it, and
/// 1 / (1 - quantile), with five steps to each halving of what is left.
std::string PercentileReport(const Histogram& histogram);

/// What --hgrm writes: a file's suffix ("1-alone-NAME", with what no file name should have as _) and its text.
struct PercentileFile {
  std::string suffix;
  std::string text;
};
std::vector<PercentileFile> PercentileFiles(const LoadOptions& options, const std::vector<PhaseResult>& phases);

/// What happened in one interval, a line for each stream.
std::string IntervalText(const LoadOptions& options, const Progress& progress);

}  // namespace sluice::client
