// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpu/cuda/cuda_device_options.h"
#include "gpu/device.h"

namespace sluice::gpu {

/// Loads the CUDA module (a shared library, so that nothing else needs CUDA's libraries) and makes CUDA device
/// `ordinal`. Bounds: a module once loaded stays for the life of the process, since kernels and owners have code in it.
/// Ownership: `clock` must outlive the device. Threads: load time; one at a time. Errors: FAILED_PRECONDITION, saying
/// which, when the module, the driver or the device is missing, when the module is of another build, or when the device
/// cannot raise the latency class's priority; INTERNAL when CUDA fails otherwise.
absl::StatusOr<std::unique_ptr<Device>> LoadCudaDevice(const std::string& module_path, int ordinal, const Clock& clock,
                                                       const CudaDeviceOptions& options = {});

/// How many CUDA devices this machine has, at least 1; loads the module too. FAILED_PRECONDITION, saying why, when none
/// can be used.
absl::StatusOr<int> CountCudaDevices(const std::string& module_path);

}  // namespace sluice::gpu
