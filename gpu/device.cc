// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device.h"

#include <atomic>

#include "base/log.h"

namespace sluice::gpu {
namespace {
// A counter, not state: nothing reads it to decide.
std::atomic<uint64_t> destroy_failures = 0;
}  // namespace

void ReportDestroyFailure(const Device& device, const absl::Status& status) {
  destroy_failures.fetch_add(1, std::memory_order_relaxed);
  Log(Severity::kError, "a device object could not be destroyed",
      {{"device", device.info().name}, {"error", status.ToString()}});
}

uint64_t DestroyFailureCount() { return destroy_failures.load(std::memory_order_relaxed); }

}  // namespace sluice::gpu
