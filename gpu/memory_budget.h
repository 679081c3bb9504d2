// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace sluice::gpu {

/// What memory is for. Weights include every packed layout of them; slots include the workspaces of their kernels;
/// everything else is other.
enum class MemoryKind : uint8_t { kWeights, kSlots, kOther };
inline constexpr std::array kMemoryKinds = {MemoryKind::kWeights, MemoryKind::kSlots, MemoryKind::kOther};
/// As in metric labels.
absl::string_view MemoryKindName(MemoryKind kind);

/// Bytes in use by anybody, this process included, as whoever owns the memory says: a driver of its device, the kernel
/// of the container. Called at load time only: it may take milliseconds.
using MemoryProbe = std::function<absl::StatusOr<size_t>()>;

/// Bytes in use. What was counted here, and what the probe sees beyond that: contexts, library handles, rounding, other
/// processes.
struct MemoryUse {
  std::array<size_t, kMemoryKinds.size()> counted_bytes{};
  size_t uncounted_bytes = 0;

  /// Uncounted bytes are other.
  size_t of(MemoryKind kind) const {
    return counted_bytes[static_cast<size_t>(kind)] + (kind == MemoryKind::kOther ? uncounted_bytes : 0);
  }
  size_t counted() const;
  size_t total() const { return counted() + uncounted_bytes; }
  /// "600 bytes in use = weights 100 + slots 200 + other 300".
  std::string ToString() const;
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

class MemoryBudget;

struct MemoryBudgetOptions {
  std::string name;                ///< In errors: "cuda:0", "host memory".
  size_t counted_limit = 0;        ///< Of counted bytes; 0: none.
  size_t total_limit = 0;          ///< Of counted and uncounted bytes; 0: none.
  MemoryProbe probe = {};          ///< None: nothing is uncounted.
  MemoryBudget* parent = nullptr;  ///< Must have room as well, and counts the same bytes. Must outlive this one.
};

/// Counts memory by what it is for, and says no before its owner is asked. Purpose: a load that does not fit is refused
/// with a sum, and never half done or killed. Bounds: the two limits and those of the parent. Ownership: counts only;
/// whoever reserves releases. Threads: any; load time only, since a reservation may ask the probe. Errors:
/// RESOURCE_EXHAUSTED with the sum, after which everything is as before; the probe's own.
class MemoryBudget {
 public:
  explicit MemoryBudget(MemoryBudgetOptions options) : options_(std::move(options)) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  /// Counts `size_bytes` if they fit.
  absl::Status Reserve(size_t size_bytes, MemoryKind kind);
  /// Takes back what was reserved; more than that is a bug and counts as nothing left.
  void Release(size_t size_bytes, MemoryKind kind);
  /// What Reserve would say now; nothing is counted.
  absl::Status CheckFits(size_t size_bytes, MemoryKind kind);
  /// Whoever keeps memory that it could free is asked to before anything is refused. By any thread; `owner` names it
  /// for RemoveReclaimer, after which it is not called any more, and which may not come while something is reserved.
  void AddReclaimer(const void* owner, std::function<void()> reclaim);
  void RemoveReclaimer(const void* owner);
  /// Asks the probe now; Reserve does so after every kProbeEveryBytes and before it refuses.
  absl::Status Refresh();

  MemoryUse use() const;
  /// The smallest limit that applies, the parent's included: counted bytes never exceed it. SIZE_MAX without any.
  size_t limit_bytes() const;
  /// "limit 1000 bytes, 600 bytes in use = ...", of whichever limit is nearest; uncounted bytes only if they count
  /// against that one. The parent's where there is one, since its limit is for all its children together.
  std::string ToString() const;

  static constexpr size_t kProbeEveryBytes = size_t{8} << 20;

 private:
  /// The nearest of the own limits, and the use that counts against it.
  struct Nearest {
    size_t limit_bytes = 0;
    size_t used_bytes = 0;
    bool total = false;
    size_t room() const { return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0; }
  };
  Nearest FindNearest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Describe() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Refuses, or counts when `count` says so; the parent is not asked.
  absl::Status Admit(size_t size_bytes, MemoryKind kind, bool count);
  /// The same after a look at the probe, and once more after all who keep memory were asked for it.
  absl::Status AdmitOrReclaim(size_t size_bytes, MemoryKind kind, bool count);
  /// Probes when that is due, or when `size_bytes` would not fit by what is known.
  absl::Status RefreshFor(size_t size_bytes);

  const MemoryBudgetOptions options_;
  mutable Mutex mutex_;  ///< Never held while the probe, the parent or a reclaimer is called.
  MemoryUse use_ ABSL_GUARDED_BY(mutex_);
  bool probed_ ABSL_GUARDED_BY(mutex_) = false;
  size_t since_probe_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::pair<const void*, std::function<void()>>> reclaimers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::gpu
