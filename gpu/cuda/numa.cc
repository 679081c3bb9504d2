// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/numa.h"

#include <cuda_runtime_api.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "base/log.h"
#include "gpu/cuda/cuda_status.h"

namespace sluice::gpu::cuda {
namespace {

void LogOnce(std::atomic<bool>& refused, const char* call) {
  const int error = errno;
  if (refused.exchange(true, std::memory_order_relaxed)) return;  // The same for every allocation that follows.
  Log(Severity::kWarning, "pinned memory is not placed on the GPU's NUMA node",
      {{"call", call}, {"error", std::strerror(error)}});
}

}  // namespace

int NumaNodeOf(int ordinal) {
  std::error_code error;
  if (!std::filesystem::exists("/sys/devices/system/node/node1", error)) return -1;
  int node = -1;
  const absl::Status status = SLUICE_CUDA_STATUS(cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, ordinal));
  if (!status.ok()) Log(Severity::kWarning, "the GPU's NUMA node is unknown", {{"error", status.ToString()}});
  const bool known = status.ok() && node >= 0 && node < static_cast<int>(kMaxNumaNodes);
  if (known) Log(Severity::kInfo, "pinned memory is taken near the GPU", {{"cuda", ordinal}, {"numa_node", node}});
  return known ? node : -1;
}

NumaPreference::NumaPreference(int node, std::atomic<bool>& refused) : refused_(refused) {
  if (node < 0) return;
  // The C library has no wrapper for these; libnuma would be one more dependency for two calls.
  if (syscall(SYS_get_mempolicy, &old_mode_, old_nodes_.data(), kMaxNumaNodes, nullptr, 0UL) != 0) {
    LogOnce(refused_, "get_mempolicy");
    return;
  }
  constexpr size_t kWordBits = 8 * sizeof(unsigned long);
  NodeMask nodes{};
  nodes[static_cast<size_t>(node) / kWordBits] = 1UL << (static_cast<size_t>(node) % kWordBits);
  changed_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.data(), kMaxNumaNodes) == 0;
  if (!changed_) LogOnce(refused_, "set_mempolicy");
}

NumaPreference::~NumaPreference() {
  if (!changed_) return;
  const bool had_nodes = old_mode_ != MPOL_DEFAULT && old_mode_ != MPOL_LOCAL;
  if (syscall(SYS_set_mempolicy, old_mode_, had_nodes ? old_nodes_.data() : nullptr, had_nodes ? kMaxNumaNodes : 0) !=
      0) {
    LogOnce(refused_, "set_mempolicy");
  }
}

}  // namespace sluice::gpu::cuda
