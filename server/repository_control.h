// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::server {

enum class ModelState : uint8_t {
  kNone,         ///< In the repository, and nobody ever asked for it.
  kLoading,      ///< For the first time, or after it was unloaded; one that is loaded anew stays ready meanwhile.
  kReady,        ///< It answers requests.
  kUnloading,    ///< It takes no more requests; those it has are being answered.
  kUnavailable,  ///< Its load failed, or it was unloaded.
};

/// One version of a model, or a model of which no version is known.
struct ModelIndexEntry {
  std::string name;
  std::string version;  ///< Empty when none is known.
  ModelState state = ModelState::kNone;
  std::string reason;  ///< Why it is unavailable; "unloaded" when that was asked for.
};

/// What a load takes from its call, in place of what the repository has.
struct GivenModel {
  std::optional<std::string> config;  ///< JSON.
  std::map<std::string, std::string>
      files;  ///< By path below the model's folder; none: the repository's. With a config.
};

/// What clients may ask of the model repository. Purpose: control RPCs that take longer than an I/O thread may. Bounds:
/// so many calls wait, more are refused. Threads: any; never block. Each `done` is called exactly once, from any
/// thread, possibly before the call returns; it must not block. Errors: UNAVAILABLE when it is not done at all (too
/// many wait, the server shuts down, the mode does not allow it).
class RepositoryControl {
 public:
  using IndexDone = absl::AnyInvocable<void(absl::StatusOr<std::vector<ModelIndexEntry>>)>;
  using Done = absl::AnyInvocable<void(absl::Status)>;
  /// Set when nobody waits for the answer any more: what has not begun by then is not done.
  using Abandoned = std::shared_ptr<const std::atomic<bool>>;

  virtual ~RepositoryControl() = default;
  /// Clients may load and unload models.
  virtual bool allows_model_control() const = 0;
  /// INVALID_ARGUMENT for a `repository` that is neither empty nor the one there is.
  virtual void ReadIndex(const std::string& repository, bool only_ready, IndexDone done) = 0;
  /// Loads what the repository has of a model now, or what was `given`. All of it or nothing: what is served stays
  /// until its successor is ready. INVALID_ARGUMENT for JSON that is no config and for paths that no file of a model
  /// has; RESOURCE_EXHAUSTED for more bytes of files than there may be; INTERNAL with the reason when the load failed.
  virtual void LoadModel(std::string name, GivenModel given, Abandoned abandoned, Done done) = 0;
  /// The model takes no more requests when `done` is called; its memory goes when those it has are answered. INTERNAL
  /// when there is no such model.
  virtual void UnloadModel(std::string name, Abandoned abandoned, Done done) = 0;
};

}  // namespace sluice::server
