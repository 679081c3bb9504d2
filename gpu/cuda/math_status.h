// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include "absl/status/status.h"

namespace sluice::gpu::cuda {

/// The translation of cuBLASLt's and cuDNN's errors, with messages as CudaStatus (cuda_status.h) has them. What the
/// GPU's libraries call a failed execution may come from a lost device; the next call to the runtime says so.
absl::Status CublasStatus(cublasStatus_t error, const char* expression, const char* file, int line);
absl::Status CudnnStatus(cudnnStatus_t error, const char* expression, const char* file, int line);

/// True when cuDNN only says that it does not do this, so that another way may be tried.
bool MeansNotSupported(cudnnStatus_t error);

}  // namespace sluice::gpu::cuda

#define SLUICE_CUBLAS_STATUS(call) ::sluice::gpu::cuda::CublasStatus((call), #call, __FILE__, __LINE__)
#define SLUICE_CUDNN_STATUS(call) ::sluice::gpu::cuda::CudnnStatus((call), #call, __FILE__, __LINE__)
