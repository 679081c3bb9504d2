// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// The decorator must itself keep the contract while it injects nothing; lost_suite.cc then injects.
#include <utility>

#include "base/status_macros.h"
#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "tests/conformance/device_suite.h"
#include "tests/support/faulty_device.h"

namespace sluice::gpu::conformance {

BackendUnderTest MakeBackend(const std::string&) {
  return {.name = "faulty over host",
          .create = [](const Clock& clock) -> absl::StatusOr<std::unique_ptr<Device>> {
            SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Device> inner,
                                    CreateHostDevice({}, clock, MakeHostKernelLibrary(clock)));
            return std::make_unique<FaultyDevice>(std::move(inner));
          },
          .unsupported = {},
          .stamp_tolerance = absl::ZeroDuration()};
}

}  // namespace sluice::gpu::conformance
