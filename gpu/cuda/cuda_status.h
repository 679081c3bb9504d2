// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"

namespace sluice::gpu::cuda {

/// The one translation of CUDA's errors. The message is "expression failed at file:line: NAME (description)". A failed
/// call's error is also taken off the thread, so that it does not appear again after the next launch.
absl::Status CudaStatus(cudaError_t error, const char* expression, const char* file, int line);

/// True when CUDA says that the process must be started anew, or that memory can no longer be trusted.
bool IsSticky(cudaError_t error);

/// True for a status made from a sticky error: the device is lost.
bool MeansDeviceLost(const absl::Status& status);

}  // namespace sluice::gpu::cuda

/// Calls the runtime and gives an absl::Status.
#define SLUICE_CUDA_STATUS(call) ::sluice::gpu::cuda::CudaStatus((call), #call, __FILE__, __LINE__)
