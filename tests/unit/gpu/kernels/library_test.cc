// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/library.h"

#include <limits>

#include "absl/strings/match.h"
#include "gpu/host/host_kernel.h"
#include "gpu/kernels/host_library.h"
#include "gpu/kernels/spatial.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Goal: a backend that lacks a family says which and who. Method: a library that overrides nothing.
TEST(KernelLibrary, NamesWhatItLacks) {
  KernelLibrary empty(Backend::kCuda);
  EXPECT_THAT(empty.PrepareConv({}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("CUDA backend has no kernel for convolution")));
  EXPECT_THAT(empty.PrepareStamp(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("stamp")));
  EXPECT_THAT(empty.PrepareGather({}), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("gather")));
}

// Goal: the stamp is the clock it was given. Method: a clock that stands still.
TEST(HostLibrary, StampWritesTheClock) {
  FakeClock clock;
  const std::unique_ptr<KernelLibrary> library = MakeHostKernelLibrary(clock);
  clock.Advance(absl::Nanoseconds(123));
  EXPECT_THAT(RunKernel<uint64_t>(library->PrepareStamp(), {}, 1), ElementsAre(1'000'000'123u));
}

// Goal: a delay lasts as long as its clock says and no longer. Method: a clock that moves 1 ms a reading.
TEST(HostLibrary, DelayPollsTheClock) {
  class SteppingClock final : public Clock {
   public:
    Time Now() const override { return Time::FromNanoseconds(++readings_ * 1'000'000); }
    mutable int64_t readings_ = 0;
  } clock;
  const std::unique_ptr<KernelLibrary> library = MakeHostKernelLibrary(clock);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Kernel> kernel, library->PrepareDelay({absl::Milliseconds(10)}));
  EXPECT_OK(static_cast<const host::HostKernel&>(*kernel).Run({}));
  EXPECT_EQ(clock.readings_, 11);
  EXPECT_THAT(library->PrepareDelay({absl::Milliseconds(-1)}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(library->PrepareDelay({absl::InfiniteDuration()}), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Goal: oneDNN really is behind the default library, or the measurements mean nothing. Method: kernel names.
TEST(HostLibrary, UsesOneDnnWhenBuiltIn) {
  const std::vector<float> weights(16 * 16 * 3 * 3, 0.5f);
  Libraries libraries;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Kernel> kernel,
                       libraries.fast().PrepareConv(
                           {.input = {1, 16, 8, 8}, .weights = ConstantOf("weights", {16, 16, 3, 3}, weights)}));
  EXPECT_EQ(absl::StrContains(kernel->name(), "oneDNN"), HostLibraryHasOneDnn()) << kernel->name();
}

// Goal: shapes from a file cannot overflow arithmetic. Method: products around and far beyond the bound.
TEST(Tensor, BoundsElementCounts) {
  EXPECT_THAT(ElementCount({}), IsOkAndHolds(1));
  EXPECT_THAT(ElementCount({2, 0, 3}), IsOkAndHolds(0));
  EXPECT_THAT(ElementCount({int64_t{1} << 45}), IsOkAndHolds(int64_t{1} << 45));
  EXPECT_THAT(ElementCount({(int64_t{1} << 45) + 1}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ElementCount({int64_t{1} << 40, 0, int64_t{1} << 40}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ElementCount({std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too large")));
  EXPECT_THAT(ElementCount({3, -1}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[3,-1]")));
}

// Goal: output sizes by ONNX's rule. Method: by hand, rounding down and up.
TEST(Spatial, ComputesOutputs) {
  const auto output = [](int64_t input, int64_t kernel, int64_t stride, int64_t pad, bool ceil) {
    return MakeSpatial(
               "test",
               {.input = {input}, .kernel = {kernel}, .strides = {stride}, .pads_begin = {pad}, .pads_end = {pad}},
               ceil)
        ->output[0];
  };
  EXPECT_EQ(output(224, 7, 2, 3, false), 112);
  EXPECT_EQ(output(6, 3, 2, 0, false), 2);
  EXPECT_EQ(output(6, 3, 2, 0, true), 3);
  // The window that rounding up would add begins in the pad behind the input and is left out.
  EXPECT_EQ(output(5, 2, 3, 1, true), 2);
}

}  // namespace
}  // namespace sluice::gpu
