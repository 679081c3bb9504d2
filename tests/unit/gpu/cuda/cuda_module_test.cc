// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cuda_module.h"

#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace sluice::gpu {
namespace {

using ::testing::HasSubstr;

// Goal: a missing module is a start-up error that names the file. Method: a path that does not exist.
TEST(CudaModuleTest, MissingModule) {
  const FakeClock clock;
  EXPECT_THAT(LoadCudaDevice("/nonexistent/libsluice_cuda_device.so", 0, clock),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("/nonexistent/libsluice_cuda_device.so")));
}

// Goal: a library that is something else is refused, not called. Method: the C library's mathematics.
TEST(CudaModuleTest, ForeignLibrary) {
  const FakeClock clock;
  EXPECT_THAT(LoadCudaDevice("libm.so.6", 0, clock),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not a CUDA module")));
}

}  // namespace
}  // namespace sluice::gpu
