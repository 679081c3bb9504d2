// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice {

/// A POSIX shared memory object as a client makes one, under a name that no other test has; gone at the end. Read and
/// written through its descriptor, so that a test may shrink it.
class SharedMemoryObject {
 public:
  explicit SharedMemoryObject(size_t bytes) {
    static std::atomic<int> count = 0;
    key_ = "/sluice_test_" + std::to_string(getpid()) + "_" + std::to_string(count.fetch_add(1));
    descriptor_ = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_GE(descriptor_, 0) << key_;
    Resize(bytes);
  }
  SharedMemoryObject(const SharedMemoryObject&) = delete;
  SharedMemoryObject& operator=(const SharedMemoryObject&) = delete;
  ~SharedMemoryObject() {
    Unlink();
    close(descriptor_);
  }

  const std::string& key() const { return key_; }
  void Resize(size_t bytes) const { EXPECT_EQ(ftruncate(descriptor_, static_cast<off_t>(bytes)), 0); }
  void Unlink() const { shm_unlink(key_.c_str()); }
  size_t size() const { return static_cast<size_t>(lseek(descriptor_, 0, SEEK_END)); }
  void Put(size_t offset, const std::string& bytes) const {
    EXPECT_EQ(pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
  }
  std::string Get(size_t offset, size_t count) const {
    std::string bytes(count, '\0');
    EXPECT_EQ(pread(descriptor_, bytes.data(), count, static_cast<off_t>(offset)), static_cast<ssize_t>(count));
    return bytes;
  }

 private:
  std::string key_;
  int descriptor_ = -1;
};

}  // namespace sluice
