// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Runs the suite on the one backend this binary is linked with. `--cuda-module=PATH` or SLUICE_CUDA_MODULE names the
// CUDA module; without either it is looked for beside the executable. REQUIRE_GPU=1 turns "not present" into a failure.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "tests/conformance/device_suite.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::error_code ignored;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", ignored);
  std::string module_path = (executable.parent_path() / "libsluice_cuda_device.so").string();
  if (const char* named = std::getenv("SLUICE_CUDA_MODULE")) module_path = named;
  constexpr absl::string_view kFlag = "--cuda-module=";
  for (int i = 1; i < argc; ++i) {
    if (absl::StartsWith(argv[i], kFlag)) module_path = argv[i] + kFlag.size();
  }
  const char* require_gpu = std::getenv("REQUIRE_GPU");
  sluice::gpu::conformance::Settings() = {sluice::gpu::conformance::MakeBackend(module_path),
                                          require_gpu != nullptr && absl::string_view(require_gpu) == "1"};
  return RUN_ALL_TESTS();
}
