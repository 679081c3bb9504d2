// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/repository_control.h"
#include "server/served_model.h"

namespace sluice::server {

/// Which model versions exist and which are ready. Purpose: what a request's model name and version mean. Bounds: one
/// name per model of the repository, one entry per version that was to be loaded. Ownership: shares what is ready; no
/// handle is dropped under the lock. Threads: any; a short lock. Errors: as InferenceBackend::FindModel.
class ModelTable {
 public:
  /// The models that the repository has now. Others are forgotten, unless a version is there to answer requests.
  void SetRepository(const std::vector<std::string>& names) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Changes nothing for a version that is ready: it answers until its successor does.
  void SetLoading(const std::string& name, int64_t version) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetReady(std::shared_ptr<const ServedModel> model) ABSL_LOCKS_EXCLUDED(mutex_);
  /// `version` 0: the model as a whole is broken (its config, say). Changes nothing for what is ready.
  void SetFailed(const std::string& name, int64_t version, const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  /// All versions but `kept` (ascending) are to go. Returns those that were ready: they are given out no more, and
  /// unloading until SetUnloaded.
  std::vector<std::shared_ptr<const ServedModel>> Unload(const std::string& name, const std::vector<int64_t>& kept = {})
      ABSL_LOCKS_EXCLUDED(mutex_);
  /// What ran `model` is gone. Changes nothing when something else has its name and version by now.
  void SetUnloaded(const ServedModel& model) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Lets go of everything: what is ready may outlive the devices no longer.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<std::shared_ptr<const ServedModel>> Find(const std::string& name, const std::string& version) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::vector<int64_t>> ReadyVersions(const std::string& name) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::shared_ptr<const ServedModel>> ReadyModels() const ABSL_LOCKS_EXCLUDED(mutex_);
  /// By name and version.
  std::vector<ModelIndexEntry> Index(bool only_ready) const ABSL_LOCKS_EXCLUDED(mutex_);
  /// In the repository, or loaded once.
  bool Knows(const std::string& name) const ABSL_LOCKS_EXCLUDED(mutex_);
  /// Nothing is being loaded, and nothing that was to be loaded failed.
  bool AllReady() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    ModelState state = ModelState::kLoading;
    std::shared_ptr<const ServedModel> ready = nullptr;  ///< Null unless kReady.
    ModelId unloading = {};                              ///< With kUnloading, what is.
    absl::Status failure = {};                           ///< With kUnavailable; OK: it was unloaded.
  };
  using Versions = std::map<int64_t, Entry>;

  static std::string ReasonOf(const Entry& entry);
  static absl::Status NotReady(const std::string& name, int64_t version, const Entry& entry);
  absl::Status Unknown(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::set<std::string> repository_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Versions> models_ ABSL_GUARDED_BY(mutex_);  ///< None is empty.
};

}  // namespace sluice::server
