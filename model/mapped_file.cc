// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace sluice::model {
namespace {

absl::StatusOr<std::pair<void*, size_t>> MapDescriptor(int descriptor, const std::string& path) {
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot examine ", path));
  if (!S_ISREG(facts.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  const auto size_bytes = static_cast<size_t>(facts.st_size);
  if (size_bytes == 0) return std::pair<void*, size_t>(nullptr, 0);  // mmap refuses an empty range.
  void* data = mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  return std::pair(data, size_bytes);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // Not blocking: opening a FIFO that somebody put there must not hang a load.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  auto mapping = MapDescriptor(descriptor, path);
  close(descriptor);
  if (!mapping.ok()) return mapping.status();
  return MappedFile(mapping->first, mapping->second);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

}  // namespace sluice::model
