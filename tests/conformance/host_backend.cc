// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "tests/conformance/device_suite.h"

namespace sluice::gpu::conformance {

BackendUnderTest MakeBackend(const std::string&) {
  return {.name = "host",
          .create = [](const Clock& clock) { return CreateHostDevice({}, clock, MakeHostKernelLibrary(clock)); },
          .unsupported = {},
          .stamp_tolerance = absl::ZeroDuration()};
}

}  // namespace sluice::gpu::conformance
