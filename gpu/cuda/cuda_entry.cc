// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// What the module exports: see cuda_module_entry.h.
#include "gpu/cuda/cuda_device.h"
#include "gpu/cuda/cuda_module_entry.h"

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

SLUICE_EXPORT uint32_t sluice_cuda_module_version() { return sluice::gpu::kCudaModuleVersion; }

SLUICE_EXPORT void sluice_cuda_module_count_devices(absl::StatusOr<int>* result) {
  *result = sluice::gpu::cuda::CudaDevice::Count();
}

SLUICE_EXPORT void sluice_cuda_module_create_device(int ordinal, const sluice::Clock* clock,
                                                    const sluice::gpu::CudaDeviceOptions* options,
                                                    absl::StatusOr<std::unique_ptr<sluice::gpu::Device>>* result) {
  *result = sluice::gpu::cuda::CudaDevice::Create(ordinal, *clock, *options);
}
