// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace sluice::gpu {

/// Freed memory that is kept for whoever asks for just as much. Purpose: page-locking memory holds every launch of the
/// process up (some 0.4 ms a MiB on one H200's machine), and a model that is loaded again, or another version of it,
/// needs the same sizes. What is kept must be in use by nobody, kernels and copies included. Bounds: `most_bytes` in
/// all; the oldest go first. Ownership: none, whoever uses it frees what it is handed. Threads: one at a time.
class KeptBlocks {
 public:
  struct Block {
    std::byte* data = nullptr;
    std::byte* device_data = nullptr;
    size_t size_bytes = 0;
    friend bool operator==(const Block&, const Block&) = default;
  };

  explicit KeptBlocks(size_t most_bytes) : most_bytes_(most_bytes) {}

  /// Takes a block in; returns those that have to be freed for it, itself if it is too large.
  std::vector<Block> Keep(const Block& block);
  /// The newest of exactly this size, no longer kept.
  std::optional<Block> Take(size_t size_bytes);
  std::vector<Block> TakeAll();
  size_t size_bytes() const { return size_bytes_; }

 private:
  const size_t most_bytes_;
  size_t size_bytes_ = 0;
  std::deque<Block> blocks_;  ///< Oldest first.
};

}  // namespace sluice::gpu
