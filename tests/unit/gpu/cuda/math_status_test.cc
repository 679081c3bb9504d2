// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/math_status.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace sluice::gpu::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Goal: each kind of error has its code, and the text says what failed and where. Method: the table, without a device.
TEST(MathStatus, TranslatesErrors) {
  EXPECT_OK(CublasStatus(CUBLAS_STATUS_SUCCESS, "call", "file.cc", 7));
  EXPECT_OK(CudnnStatus(CUDNN_STATUS_SUCCESS, "call", "file.cc", 7));
  EXPECT_THAT(CublasStatus(CUBLAS_STATUS_ALLOC_FAILED, "call", "file.cc", 7),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("call failed at file.cc:7"), HasSubstr("CUBLAS_STATUS_ALLOC_FAILED"))));
  EXPECT_THAT(CublasStatus(CUBLAS_STATUS_NOT_SUPPORTED, "call", "f", 1),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("CUBLAS_STATUS_NOT_SUPPORTED")));
  EXPECT_THAT(CublasStatus(CUBLAS_STATUS_EXECUTION_FAILED, "call", "f", 1),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("CUBLAS_STATUS_EXECUTION_FAILED")));
  EXPECT_THAT(CudnnStatus(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, "call", "file.cc", 7),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("call failed at file.cc:7")));
  EXPECT_THAT(CudnnStatus(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "call", "f", 1),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("CUDNN_STATUS_NOT_SUPPORTED_SHAPE")));
  EXPECT_THAT(CudnnStatus(CUDNN_STATUS_EXECUTION_FAILED, "call", "f", 1),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("CUDNN_STATUS_EXECUTION_FAILED")));
}

// Goal: only a call that cuDNN does not do lets another way be tried. Method: one error of each kind.
TEST(MathStatus, KnowsWhatIsNotSupported) {
  EXPECT_TRUE(MeansNotSupported(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT));
  EXPECT_TRUE(MeansNotSupported(CUDNN_STATUS_BAD_PARAM));
  EXPECT_FALSE(MeansNotSupported(CUDNN_STATUS_SUCCESS));
  EXPECT_FALSE(MeansNotSupported(CUDNN_STATUS_EXECUTION_FAILED));
  EXPECT_FALSE(MeansNotSupported(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED));
}

}  // namespace
}  // namespace sluice::gpu::cuda
