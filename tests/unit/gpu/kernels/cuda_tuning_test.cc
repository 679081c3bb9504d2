// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// A tuning made on the CUDA device and read by the next one. Linked with the CUDA backend only.
#include <fstream>

#include "base/clock.h"
#include "gpu/cuda/cuda_module.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/gpu/kernels/half_harness.h"

namespace sluice::gpu {
namespace {

class CudaTuning : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Device>> MakeDevice(bool tune) {
    return LoadCudaDevice(CudaModuleUnderTest(), 0, clock_, {.tuning = {.folder = folder_.path(), .tune = tune}});
  }

  /// A product and a convolution, in FP32 and in halves. Names of the kernels, which say how they are computed.
  absl::StatusOr<std::vector<std::string>> PrepareAll(KernelLibrary& library) {
    std::vector<std::string> names;
    for (const DataType type : {DataType::kFp32, DataType::kFp16}) {
      MatMulDescription product = {.type = type, .a = {64, 768}, .b = {768, 256}};
      product.c = Dims{256};
      product.b_constant = ConstantOf("b", {768, 256}, matrix_);
      const ConvDescription convolution = {.type = type,
                                           .input = {1, 64, 14, 14},
                                           .weights = ConstantOf("weights", {64, 64, 3, 3}, weights_),
                                           .strides = {1, 1},
                                           .dilations = {1, 1},
                                           .pads_begin = {1, 1},
                                           .pads_end = {1, 1},
                                           .channels_last = type != DataType::kFp32};
      const auto multiply = library.PrepareMatMul(product);
      const auto convolve = library.PrepareConv(convolution);
      for (const auto* kernel : {&multiply, &convolve}) {
        if (!kernel->ok()) return kernel->status();
        names.push_back((**kernel)->name());
      }
    }
    return names;
  }

  const MonotonicClock clock_;
  TemporaryFolder folder_;
  std::mt19937 random_{1};
  const std::vector<float> matrix_ = RandomFloats(random_, 768 * 256);
  const std::vector<float> weights_ = RandomFloats(random_, 64 * 64 * 9);
};

TEST_F(CudaTuning, IsMadeWrittenAndRead) {
  // Goal: what one process found is what the next one runs, without a trial of its own. Method: names of the kernels,
  // and every problem of the first in the second's table.
  std::vector<std::string> tuned;
  size_t choices = 0;
  {
    absl::StatusOr<std::unique_ptr<Device>> device = MakeDevice(/*tune=*/true);
    ASSERT_TRUE(device.ok()) << device.status();
    absl::StatusOr<std::vector<std::string>> names = PrepareAll((*device)->kernels());
    ASSERT_TRUE(names.ok()) << names.status();
    tuned = *std::move(names);
    TuningTable& table = *(*device)->kernels().tuning();
    choices = table.recorded_count();
    EXPECT_GE(choices, 4u);
    ASSERT_TRUE(table.Write().ok());
  }
  absl::StatusOr<std::unique_ptr<Device>> device = MakeDevice(/*tune=*/false);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->kernels().tuning()->size(), choices);
  const absl::StatusOr<std::vector<std::string>> names = PrepareAll((*device)->kernels());
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_EQ(*names, tuned);
}

TEST_F(CudaTuning, RefusesChoicesThatItDoesNotKnow) {
  // Goal: a file that names no way of a problem stops the load and says so. Method: each choice replaced.
  std::string path;
  {
    absl::StatusOr<std::unique_ptr<Device>> device = MakeDevice(/*tune=*/true);
    ASSERT_TRUE(device.ok()) << device.status();
    ASSERT_TRUE(PrepareAll((*device)->kernels()).ok());
    ASSERT_TRUE((*device)->kernels().tuning()->Write().ok());
    path = (*device)->kernels().tuning()->path();
  }
  std::ifstream in(path);
  std::string text, line;
  while (std::getline(in, line)) {
    const size_t tab = line.find('\t');
    text += (tab == std::string::npos ? line : line.substr(0, tab) + "\tsome other way") + "\n";
  }
  in.close();
  std::ofstream(path) << text;
  absl::StatusOr<std::unique_ptr<Device>> device = MakeDevice(/*tune=*/false);
  ASSERT_TRUE(device.ok()) << device.status();
  const absl::StatusOr<std::vector<std::string>> names = PrepareAll((*device)->kernels());
  EXPECT_EQ(names.status().code(), absl::StatusCode::kFailedPrecondition) << names.status();
  EXPECT_THAT(std::string(names.status().message()), ::testing::HasSubstr("some other way"));
}

}  // namespace
}  // namespace sluice::gpu
