// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// The host device with one copier per direction, a short queue and memory that is not unified: transfers run beside
// compute, as on a GPU, and issuers meet full queues.
#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "tests/conformance/device_suite.h"

namespace sluice::gpu::conformance {

BackendUnderTest MakeBackend(const std::string&) {
  HostDeviceOptions options;
  options.copiers = true;
  options.queue_capacity = 16;
  options.max_streams = 16;
  options.memory_limit_bytes = size_t{64} << 20;
  return {.name = "host with copiers",
          .create =
              [options](const Clock& clock) { return CreateHostDevice(options, clock, MakeHostKernelLibrary(clock)); },
          .unsupported = {},
          .stamp_tolerance = absl::ZeroDuration()};
}

}  // namespace sluice::gpu::conformance
