// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace sluice::gpu::cuda {

inline constexpr size_t kMaxNumaNodes = 1024;

/// The NUMA node nearest to CUDA device `ordinal`; -1 where the machine has one node, or CUDA or the kernel does not
/// say.
int NumaNodeOf(int ordinal);

/// While it lives, new pages of the calling thread are taken on `node` when it has any left; nothing for -1. Where the
/// kernel refuses (containers often do), that is logged once for `refused` and pages come from anywhere. Load time
/// only; destroy it on the thread that made it.
class NumaPreference {
 public:
  NumaPreference(int node, std::atomic<bool>& refused);
  NumaPreference(const NumaPreference&) = delete;
  NumaPreference& operator=(const NumaPreference&) = delete;
  ~NumaPreference();

 private:
  using NodeMask = std::array<unsigned long, kMaxNumaNodes / (8 * sizeof(unsigned long))>;

  std::atomic<bool>& refused_;
  bool changed_ = false;
  int old_mode_ = 0;
  NodeMask old_nodes_{};
};

}  // namespace sluice::gpu::cuda
