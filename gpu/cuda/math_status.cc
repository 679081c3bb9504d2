// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/math_status.h"

#include "absl/strings/str_cat.h"

namespace sluice::gpu::cuda {
namespace {

absl::StatusCode CodeOf(cublasStatus_t error) {
  switch (error) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return absl::StatusCode::kResourceExhausted;
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::StatusCode CodeOf(cudnnStatus_t error) {
  switch (error) {
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
      return absl::StatusCode::kResourceExhausted;
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
    case CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH:
      return absl::StatusCode::kFailedPrecondition;  // The installation, not the call.
    default:
      return CUDNN_STATUS_CATEGORY(error) == CUDNN_STATUS_NOT_SUPPORTED ? absl::StatusCode::kUnimplemented
                                                                        : absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CublasStatus(cublasStatus_t error, const char* expression, const char* file, int line) {
  if (error == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::Status(CodeOf(error),
                      absl::StrCat(expression, " failed at ", file, ":", line, ": ", cublasLtGetStatusName(error), " (",
                                   cublasLtGetStatusString(error), ")"));
}

absl::Status CudnnStatus(cudnnStatus_t error, const char* expression, const char* file, int line) {
  if (error == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof(detail));
  return absl::Status(CodeOf(error), absl::StrCat(expression, " failed at ", file, ":", line, ": ",
                                                  cudnnGetErrorString(error), " (", detail, ")"));
}

bool MeansNotSupported(cudnnStatus_t error) {
  const auto category = CUDNN_STATUS_CATEGORY(error);
  // A combination that a call does not take is reported as a bad parameter in places.
  return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
}

}  // namespace sluice::gpu::cuda
