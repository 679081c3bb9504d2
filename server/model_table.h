// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/served_model.h"

namespace sluice::server {

/// Which model versions exist and which are ready. Purpose: what a request's model name and version mean. Bounds: one
/// entry per version found in the repository. Threads: any; a short lock. Errors: as InferenceBackend::FindModel.
class ModelTable {
 public:
  void SetLoading(const std::string& name, int64_t version) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetReady(std::shared_ptr<const ServedModel> model) ABSL_LOCKS_EXCLUDED(mutex_);
  /// `version` 0: the model as a whole is broken (its config, say).
  void SetFailed(const std::string& name, int64_t version, const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<std::shared_ptr<const ServedModel>> Find(const std::string& name, const std::string& version) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::vector<int64_t>> ReadyVersions(const std::string& name) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::shared_ptr<const ServedModel>> ReadyModels() const ABSL_LOCKS_EXCLUDED(mutex_);
  /// True when nothing is loading and, if `strict`, nothing has failed.
  bool Settled(bool strict) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    std::shared_ptr<const ServedModel> ready;  ///< Null while loading or failed.
    absl::Status failure;                      ///< OK while loading.
  };
  using Versions = std::map<int64_t, Entry>;

  mutable Mutex mutex_;
  std::map<std::string, Versions> models_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::server
