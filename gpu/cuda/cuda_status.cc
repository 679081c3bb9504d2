// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cuda_status.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::gpu::cuda {
namespace {

constexpr char kLostMark[] = "sluice.device_lost";

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    // What is wrong before anything runs: the machine, its driver, or a build for other devices.
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorInitializationError:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return absl::StatusCode::kFailedPrecondition;
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
      return absl::StatusCode::kDataLoss;
    default:
      // Our bugs (invalid value, handle or configuration) and sticky errors. cudaErrorNotReady is an answer: whoever
      // can get it looks for it before coming here.
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

absl::Status CudaStatus(cudaError_t error, const char* expression, const char* file, int line) {
  if (error == cudaSuccess) return absl::OkStatus();
  static_cast<void>(cudaGetLastError());
  absl::Status status(CodeOf(error), absl::StrCat(expression, " failed at ", file, ":", line, ": ",
                                                  cudaGetErrorName(error), " (", cudaGetErrorString(error), ")"));
  if (IsSticky(error)) status.SetPayload(kLostMark, absl::Cord("1"));
  return status;
}

bool MeansDeviceLost(const absl::Status& status) { return status.GetPayload(kLostMark).has_value(); }

}  // namespace sluice::gpu::cuda
