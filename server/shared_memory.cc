// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::server {
namespace {

/// Of a key behind its slash: what the file system takes.
constexpr size_t kMaxKeyBytes = NAME_MAX;
/// Offsets in files are signed.
constexpr uint64_t kMaxEnd = std::numeric_limits<off_t>::max();

std::string RegionText(const SharedMemoryRegionFacts& facts) {
  return absl::StrCat("shared memory region '", facts.name, "' (key '", facts.key, "')");
}

absl::Status CheckKey(const std::string& key) {
  const absl::string_view rest = absl::string_view(key).substr(key.empty() ? 0 : 1);
  if (absl::StartsWith(key, "/") && !rest.empty() && rest.size() <= kMaxKeyBytes &&
      rest.find_first_of(absl::string_view("/\0", 2)) == absl::string_view::npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("key: expected '/' and 1 to ", kMaxKeyBytes, " bytes without another '/', got '", key, "'"));
}

absl::Status OpenError(const SharedMemoryRegionFacts& facts, int error) {
  const std::string message =
      absl::StrCat("Unable to open shared memory region: '", facts.key, "': ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(message);
  const bool exhausted = error == EMFILE || error == ENFILE || error == ENOMEM;
  return exhausted ? absl::ResourceExhaustedError(message) : absl::InvalidArgumentError(message);
}

/// How many bytes of [begin, begin + wanted) there are.
uint64_t BytesLeft(off_t size, uint64_t begin, size_t wanted) {
  const auto end = static_cast<uint64_t>(size);
  return end <= begin ? 0 : std::min<uint64_t>(end - begin, wanted);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SharedMemoryRegion>> SharedMemoryRegion::Open(SharedMemoryRegionFacts facts) {
  const int descriptor = shm_open(facts.key.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (descriptor < 0) return OpenError(facts, errno);
  // From here the region closes it.
  const std::shared_ptr<const SharedMemoryRegion> region(new SharedMemoryRegion(std::move(facts), descriptor));
  const SharedMemoryRegionFacts& asked = region->facts_;
  struct stat object {};
  if (fstat(descriptor, &object) != 0) return region->Failed("fstat", errno);
  if (!S_ISREG(object.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(RegionText(asked), ": expected a shared memory object, got something else of that name"));
  }
  const auto size = static_cast<uint64_t>(object.st_size);
  if (asked.byte_size <= size && asked.offset <= size - asked.byte_size) return region;
  return absl::InvalidArgumentError(absl::StrCat(RegionText(asked), ": expected offset + byte_size of at most ", size,
                                                 ", the bytes of the object, got ", asked.offset, " + ",
                                                 asked.byte_size));
}

SharedMemoryRegion::~SharedMemoryRegion() { close(descriptor_); }

absl::Status SharedMemoryRegion::Shrunk(uint64_t offset, size_t wanted_bytes, uint64_t left_bytes) const {
  return absl::FailedPreconditionError(absl::StrCat(RegionText(facts_), ": expected ", wanted_bytes,
                                                    " bytes at offset ", offset, ", got ", left_bytes,
                                                    ": the object became smaller after it was registered"));
}

absl::Status SharedMemoryRegion::Failed(const char* what, int error) const {
  const std::string message = absl::StrCat(RegionText(facts_), ": ", what, ": ", std::strerror(error));
  const bool exhausted = error == ENOSPC || error == ENOMEM || error == EDQUOT;
  return exhausted ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

absl::Status SharedMemoryRegion::Read(uint64_t offset, std::span<std::byte> to) const {
  const uint64_t begin = facts_.offset + offset;
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = pread(descriptor_, to.data() + done, to.size() - done, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", errno);
    if (got == 0) return Shrunk(offset, to.size(), done);
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryRegion::Write(uint64_t offset, std::span<const std::byte> from) const {
  const uint64_t begin = facts_.offset + offset;
  // A write past the end would make the client's object longer again.
  struct stat object {};
  if (fstat(descriptor_, &object) != 0) return Failed("fstat", errno);
  const uint64_t left = BytesLeft(object.st_size, begin, from.size());
  if (left < from.size()) return Shrunk(offset, from.size(), left);
  size_t done = 0;
  while (done < from.size()) {
    const ssize_t put = pwrite(descriptor_, from.data() + done, from.size() - done, static_cast<off_t>(begin + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Failed("write", errno);
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

absl::Status SharedMemoryRegions::CheckFacts(const SharedMemoryRegionFacts& facts) const {
  if (facts.name.empty() || facts.name.size() > limits_.name_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: expected 1 to ", limits_.name_bytes, " bytes (--max-name-bytes), got ", facts.name.size()));
  }
  SLUICE_RETURN_IF_ERROR(CheckKey(facts.key));
  if (facts.byte_size == 0) return absl::InvalidArgumentError("byte_size: expected 1 or more, got 0");
  if (facts.byte_size <= kMaxEnd && facts.offset <= kMaxEnd - facts.byte_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(RegionText(facts), ": expected offset + byte_size of at most ",
                                                 kMaxEnd, ", got ", facts.offset, " + ", facts.byte_size));
}

absl::Status SharedMemoryRegions::CheckRoom(const SharedMemoryRegionFacts& facts) {
  if (regions_.contains(facts.name)) {
    return absl::AlreadyExistsError(absl::StrCat("shared memory region '", facts.name, "' already in manager"));
  }
  std::erase_if(leaving_, [](const Leaving& leaving) { return leaving.region.expired(); });
  const SharedMemoryUse use = CountUse();
  const size_t count = use.registered_regions + use.leaving_regions;
  if (count >= limits_.regions) {
    return absl::ResourceExhaustedError(absl::StrCat("shared memory region '", facts.name, "': expected at most ",
                                                     limits_.regions, " regions (--max-shared-memory-regions), and ",
                                                     count, " are registered or in use"));
  }
  const uint64_t bytes = use.registered_bytes + use.leaving_bytes;  // at most limits_.bytes: all have passed here
  if (facts.byte_size <= limits_.bytes - bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("shared memory region '", facts.name, "': expected at most ",
                                                   limits_.bytes, " bytes of all regions (--max-shared-memory-bytes), ",
                                                   "got ", facts.byte_size, " beside ", bytes));
}

SharedMemoryUse SharedMemoryRegions::CountUse() const {
  SharedMemoryUse use;
  use.registered_regions = regions_.size();
  for (const auto& [name, region] : regions_) use.registered_bytes += region->facts().byte_size;
  for (const Leaving& leaving : leaving_) {
    if (leaving.region.expired()) continue;
    ++use.leaving_regions;
    use.leaving_bytes += leaving.byte_size;
  }
  return use;
}

SharedMemoryUse SharedMemoryRegions::use() const {
  MutexLock lock(mutex_);
  return CountUse();
}

absl::Status SharedMemoryRegions::Register(SharedMemoryRegionFacts facts) {
  SLUICE_RETURN_IF_ERROR(CheckFacts(facts));
  {
    MutexLock lock(mutex_);
    SLUICE_RETURN_IF_ERROR(CheckRoom(facts));
  }
  SLUICE_ASSIGN_OR_RETURN(Region region, SharedMemoryRegion::Open(std::move(facts)));
  MutexLock lock(mutex_);
  SLUICE_RETURN_IF_ERROR(CheckRoom(region->facts()));  // again: another thread may have been faster
  const std::string& name = region->facts().name;
  regions_.emplace(name, std::move(region));
  return absl::OkStatus();
}

void SharedMemoryRegions::Unregister(const std::string& name) {
  Region gone;  // let go of without the lock
  MutexLock lock(mutex_);
  const auto found = regions_.find(name);
  if (found == regions_.end()) return;
  gone = std::move(found->second);
  regions_.erase(found);
  leaving_.push_back({gone, gone->facts().byte_size});
}

void SharedMemoryRegions::UnregisterAll() {
  std::map<std::string, Region> gone;  // let go of without the lock
  MutexLock lock(mutex_);
  gone.swap(regions_);
  for (const auto& [name, region] : gone) leaving_.push_back({region, region->facts().byte_size});
}

absl::StatusOr<std::vector<SharedMemoryRegionFacts>> SharedMemoryRegions::Describe(const std::string& name) const {
  std::vector<SharedMemoryRegionFacts> described;
  MutexLock lock(mutex_);
  for (const auto& [other, region] : regions_) {
    if (name.empty() || name == other) described.push_back(region->facts());
  }
  if (!name.empty() && described.empty()) {
    return absl::NotFoundError(absl::StrCat("Unable to find system shared memory region: '", name, "'"));
  }
  return described;
}

absl::StatusOr<SharedMemorySlice> SharedMemoryRegions::Find(const std::string& name, uint64_t offset,
                                                            uint64_t byte_size) const {
  Region region;
  {
    MutexLock lock(mutex_);
    const auto found = regions_.find(name);
    if (found != regions_.end()) region = found->second;
  }
  if (region == nullptr) {
    return absl::NotFoundError(absl::StrCat("Unable to find shared memory region: '", name, "'"));
  }
  const uint64_t size = region->facts().byte_size;
  if (byte_size <= size && offset <= size - byte_size) {
    return SharedMemorySlice{std::move(region), offset, byte_size};
  }
  return absl::InvalidArgumentError(absl::StrCat("shared memory region '", name,
                                                 "': expected shared_memory_offset + shared_memory_byte_size of at "
                                                 "most ",
                                                 size, ", got ", offset, " + ", byte_size));
}

}  // namespace sluice::server
