// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace sluice::gpu {

/// Where a device's tuning lies, and whether this process makes it.
struct TuningOptions {
  std::string folder;  ///< Empty: nothing is read or written.
  /// Kernels are tried at length and what is found is recorded, instead of taken from the file.
  bool tune = false;
};

/// Which way of computing each problem is the fastest on one kind of device. A problem is all that a kernel's trial
/// depends on (operator, shape, types), a choice one of the ways that the kernel knows by a name; both are text without
/// tabs or line ends. Purpose: a server need not try, and always runs what was chosen. Bounds: kMostTuningEntries.
/// Threads: any. Errors: Read's and Write's.
class TuningTable {
 public:
  /// Reads the file of `environment` (device, driver and libraries; choices hold for no other) in the folder, if there
  /// is one. INVALID_ARGUMENT naming file and line when it is not such a file, FAILED_PRECONDITION when it is another
  /// environment's, NOT_FOUND without the folder.
  static absl::StatusOr<std::unique_ptr<TuningTable>> Read(const TuningOptions& options,
                                                           const std::string& environment);

  bool tunes() const { return options_.tune; }
  /// Path of the file; empty without a folder.
  std::string path() const;
  const std::string& environment() const { return environment_; }
  /// What the file says; while tuning, only what was found by this process. None: to be tried.
  std::optional<std::string> Find(absl::string_view problem) const ABSL_LOCKS_EXCLUDED(mutex_);
  /// Keeps a choice while tuning; else nothing. RESOURCE_EXHAUSTED when the table is full.
  absl::Status Record(absl::string_view problem, absl::string_view choice) ABSL_LOCKS_EXCLUDED(mutex_);
  /// What a trial of this process chose that is no tuning: kept so that a model that is loaded again is not tried
  /// again. Equal names of ways are equal ways. Nothing more is kept when the table is full.
  void Remember(absl::string_view problem, absl::string_view choice) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<std::string> Remembered(absl::string_view problem) const ABSL_LOCKS_EXCLUDED(mutex_);
  /// Replaces the file by the table, whole or not at all. The folder is made when it is missing.
  absl::Status Write() const ABSL_LOCKS_EXCLUDED(mutex_);

  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);
  size_t recorded_count() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  TuningTable(const TuningOptions& options, const std::string& environment)
      : options_(options), environment_(environment) {}
  absl::Status Parse(absl::string_view text) ABSL_LOCKS_EXCLUDED(mutex_);

  const TuningOptions options_;
  const std::string environment_;
  mutable Mutex mutex_;
  std::map<std::string, std::string, std::less<>> choices_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string, std::less<>> remembered_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string, std::less<>> recorded_ ABSL_GUARDED_BY(mutex_);  ///< Problems, of this process.
};

/// A model has a few dozen; this is thousands of models.
inline constexpr size_t kMostTuningEntries = size_t{1} << 17;

}  // namespace sluice::gpu
