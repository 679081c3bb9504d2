// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpu/cuda/cuda_device_options.h"
#include "gpu/device.h"

// What the CUDA module exports. The names are looked up with dlsym, so they are C; the types are this build's C++, so
// the version must match exactly: raise it with every change of gpu/device.h, gpu/kernel.h or gpu/kernels/*.h.
namespace sluice::gpu {

inline constexpr uint32_t kCudaModuleVersion = 6;
inline constexpr char kCudaModuleVersionSymbol[] = "sluice_cuda_module_version";
inline constexpr char kCudaModuleCreateSymbol[] = "sluice_cuda_module_create_device";

inline constexpr char kCudaModuleCountSymbol[] = "sluice_cuda_module_count_devices";

using CudaModuleVersionFunction = uint32_t();
using CudaModuleCountFunction = void(absl::StatusOr<int>* result);
using CudaModuleCreateFunction = void(int ordinal, const Clock* clock, const CudaDeviceOptions* options,
                                      absl::StatusOr<std::unique_ptr<Device>>* result);

}  // namespace sluice::gpu
