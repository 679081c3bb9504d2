// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kept_blocks.h"

#include <algorithm>
#include <iterator>

namespace sluice::gpu {

std::vector<KeptBlocks::Block> KeptBlocks::Keep(const Block& block) {
  if (block.size_bytes > most_bytes_) return {block};
  std::vector<Block> gone;
  while (size_bytes_ + block.size_bytes > most_bytes_) {
    gone.push_back(blocks_.front());
    size_bytes_ -= blocks_.front().size_bytes;
    blocks_.pop_front();
  }
  blocks_.push_back(block);
  size_bytes_ += block.size_bytes;
  return gone;
}

std::optional<KeptBlocks::Block> KeptBlocks::Take(size_t size_bytes) {
  const auto newest = std::find_if(blocks_.rbegin(), blocks_.rend(),
                                   [&](const Block& block) { return block.size_bytes == size_bytes; });
  if (newest == blocks_.rend()) return std::nullopt;
  const Block block = *newest;
  blocks_.erase(std::next(newest).base());
  size_bytes_ -= size_bytes;
  return block;
}

std::vector<KeptBlocks::Block> KeptBlocks::TakeAll() {
  std::vector<Block> all(blocks_.begin(), blocks_.end());
  blocks_.clear();
  size_bytes_ = 0;
  return all;
}

}  // namespace sluice::gpu
