// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace sluice::server {

/// What a client registered: `byte_size` bytes from `offset` on of the POSIX shared memory object `key`.
struct SharedMemoryRegionFacts {
  std::string name;
  std::string key;
  uint64_t offset = 0;
  uint64_t byte_size = 0;
};

/// One registered region, open for reading and writing. It is never mapped: an object may shrink at any time, and a
/// mapping of what is gone ends the process (SIGBUS), where reading a descriptor comes back with fewer bytes.
/// Ownership: shared by the table and by every request that uses it; the object stays open as long. Threads: any; the
/// kernel may have to bring pages back, so not on I/O threads.
class SharedMemoryRegion {
 public:
  /// Opens the object. NOT_FOUND when there is none, INVALID_ARGUMENT when it cannot be opened or is too small,
  /// RESOURCE_EXHAUSTED without a descriptor left.
  static absl::StatusOr<std::shared_ptr<const SharedMemoryRegion>> Open(SharedMemoryRegionFacts facts);
  ~SharedMemoryRegion();
  SharedMemoryRegion(const SharedMemoryRegion&) = delete;
  SharedMemoryRegion& operator=(const SharedMemoryRegion&) = delete;

  const SharedMemoryRegionFacts& facts() const { return facts_; }

  /// Fills `to` from `offset` of the region on; the range must be inside. FAILED_PRECONDITION when the object has
  /// become smaller than the range; then some of `to` may have been written.
  absl::Status Read(uint64_t offset, std::span<std::byte> to) const;
  /// Writes `from` at `offset`, likewise. RESOURCE_EXHAUSTED when the machine has no memory for the object's pages. An
  /// object that shrinks during the call may be made longer again, up to the end of the range.
  absl::Status Write(uint64_t offset, std::span<const std::byte> from) const;

 private:
  SharedMemoryRegion(SharedMemoryRegionFacts facts, int descriptor)
      : facts_(std::move(facts)), descriptor_(descriptor) {}
  absl::Status Shrunk(uint64_t offset, size_t wanted_bytes, uint64_t left_bytes) const;
  absl::Status Failed(const char* what, int error) const;

  const SharedMemoryRegionFacts facts_;
  const int descriptor_;
};

/// Where one tensor lies: inside a region. Without a region, in the message.
struct SharedMemorySlice {
  std::shared_ptr<const SharedMemoryRegion> region;
  uint64_t offset = 0;  ///< In the region.
  uint64_t byte_size = 0;
  explicit operator bool() const { return region != nullptr; }
};

struct SharedMemoryLimits {
  size_t regions = 256;                ///< Each holds a descriptor.
  uint64_t bytes = uint64_t{4} << 30;  ///< Of all regions: what they may keep in memory after their clients.
  size_t name_bytes = 4096;
};

/// Registered regions, and those that were unregistered while requests still use them.
struct SharedMemoryUse {
  size_t registered_regions = 0;
  uint64_t registered_bytes = 0;
  size_t leaving_regions = 0;
  uint64_t leaving_bytes = 0;
};

/// The regions of a server, by name. Bounds: SharedMemoryLimits, which count those too that were unregistered while
/// requests still use them. Threads: any; the lock is held for a look-up, never while a file is opened or closed.
/// Messages have Triton's words where Triton has a word for it.
class SharedMemoryRegions {
 public:
  explicit SharedMemoryRegions(const SharedMemoryLimits& limits) : limits_(limits) {}

  /// ALREADY_EXISTS for a name that is taken; INVALID_ARGUMENT for a name, key, offset or size that cannot be;
  /// RESOURCE_EXHAUSTED over the limits; else as SharedMemoryRegion::Open.
  absl::Status Register(SharedMemoryRegionFacts facts) ABSL_LOCKS_EXCLUDED(mutex_);
  /// The name is free at once; the object is let go of when no request uses it. Unknown names are no error.
  void Unregister(const std::string& name) ABSL_LOCKS_EXCLUDED(mutex_);
  void UnregisterAll() ABSL_LOCKS_EXCLUDED(mutex_);

  const SharedMemoryLimits& limits() const { return limits_; }
  SharedMemoryUse use() const ABSL_LOCKS_EXCLUDED(mutex_);
  /// All that are registered, or the one with this name. NOT_FOUND.
  absl::StatusOr<std::vector<SharedMemoryRegionFacts>> Describe(const std::string& name) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  /// A tensor's place. NOT_FOUND for the name; INVALID_ARGUMENT when it is not inside the region.
  absl::StatusOr<SharedMemorySlice> Find(const std::string& name, uint64_t offset, uint64_t byte_size) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Region = std::shared_ptr<const SharedMemoryRegion>;
  /// Unregistered, and perhaps still in use.
  struct Leaving {
    std::weak_ptr<const SharedMemoryRegion> region;
    uint64_t byte_size = 0;
  };

  absl::Status CheckFacts(const SharedMemoryRegionFacts& facts) const;
  absl::Status CheckRoom(const SharedMemoryRegionFacts& facts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SharedMemoryUse CountUse() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SharedMemoryLimits limits_;
  mutable Mutex mutex_;
  std::map<std::string, Region> regions_ ABSL_GUARDED_BY(mutex_);
  std::vector<Leaving> leaving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::server
