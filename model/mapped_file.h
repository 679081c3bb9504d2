// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "model/wire.h"

namespace sluice::model {

/// A file's bytes, mapped read-only, unmapped with the object. The file must not be shortened while it is mapped (the
/// process would be sent SIGBUS): a repository replaces model files by renaming, as Triton's users do.
class MappedFile {
 public:
  /// NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT for something that is not a regular file.
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~MappedFile();
  ByteSpan bytes() const { return {static_cast<const std::byte*>(data_), size_bytes_}; }

 private:
  MappedFile(void* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace sluice::model
