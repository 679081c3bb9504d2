// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"

namespace sluice::gpu::host {

absl::StatusOr<std::unique_ptr<Kernel>> PlainDelay(const Clock& clock, const DelayDescription& description) {
  if (description.duration < absl::ZeroDuration() || description.duration > absl::Seconds(10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("delay: ", absl::FormatDuration(description.duration), " must lie in [0,10s]"));
  }
  return MakeLoopKernel(absl::StrCat("delay ", absl::FormatDuration(description.duration)),
                        [&clock, duration = description.duration](const KernelArgs&) {
                          const Time end = clock.Now() + duration;
                          while (clock.Now() < end) {
                            // Polls: a sleeping thread would leave the device idle, which is not what a kernel does.
                          }
                        });
}

std::unique_ptr<Kernel> PlainStamp(const Clock& clock) {
  return MakeLoopKernel("stamp", [&clock](const KernelArgs& args) {
    *Elements<uint64_t>(args, 0) = static_cast<uint64_t>(clock.Now().nanoseconds());
  });
}

}  // namespace sluice::gpu::host
