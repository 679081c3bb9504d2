// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/config.h"

namespace sluice::server {

/// One plan of the tuned model; times are of all its kernels alone, in a row.
struct TunedPlan {
  std::string device;
  int64_t version = 0;
  std::vector<std::vector<int64_t>> input_shapes;  ///< The bucket, rows included.
  int64_t rows = 1;
  absl::Duration before, after;
};

/// What tuning a model came to.
struct TuneReport {
  std::vector<TunedPlan> plans;
  struct DeviceReport {
    std::string name, environment, path;
    size_t choices = 0;                              ///< Made for this model.
    size_t all_choices = 0;                          ///< In the file.
    absl::Duration load_before, tuning, load_after;  ///< What each load of the model took.
  };
  std::vector<DeviceReport> devices;
};

/// Tunes every version of a model on every CUDA device of `config`: loads it as a server would, then again with all
/// ways of its kernels tried at length, writes what was found to `config.tuning_cache`, and loads it once more from
/// there, so that what is reported after is what a server will have. `progress` hears what is being done. Load time of
/// minutes; nothing else should use the devices. Errors: FAILED_PRECONDITION without a CUDA device or a folder,
/// NOT_FOUND for the model, and those of a load.
absl::StatusOr<TuneReport> TuneModel(const ServerConfig& config, const std::string& model, const Clock& clock,
                                     absl::FunctionRef<void(absl::string_view)> progress);

/// The report as JSON: {"devices": [...], "plans": [...]}, times in microseconds and seconds as their names say.
std::string ToJson(const TuneReport& report);

}  // namespace sluice::server
