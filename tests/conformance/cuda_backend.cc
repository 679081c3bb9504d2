// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "gpu/cuda/cuda_module.h"
#include "tests/conformance/device_suite.h"

namespace sluice::gpu::conformance {

BackendUnderTest MakeBackend(const std::string& module_path) {
  return {.name = "cuda",
          .create = [module_path](const Clock& clock) -> absl::StatusOr<std::unique_ptr<Device>> {
            // Less than any GPU of a server has, so that the tests of refusals show who refuses.
            const CudaDeviceOptions options = {.memory_limit_bytes = size_t{16} << 30};
            absl::StatusOr<std::unique_ptr<Device>> device = LoadCudaDevice(module_path, 0, clock, options);
            if (absl::IsFailedPrecondition(device.status())) return absl::NotFoundError(device.status().message());
            return device;
          },
          .unsupported = {},
          .stamp_tolerance = absl::Microseconds(200)};
}

}  // namespace sluice::gpu::conformance
