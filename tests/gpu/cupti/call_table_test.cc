// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/cupti/call_table.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace sluice::cupti {
namespace {

const WatchedCall* Find(std::string_view name) {
  const auto calls = WatchedCalls();
  const auto found =
      std::find_if(calls.begin(), calls.end(), [&](const WatchedCall& call) { return name == call.name; });
  return found == calls.end() ? nullptr : &*found;
}

/// Whether the call `name` with these parameters is seen as work in the legacy default stream.
template <typename Params>
bool Legacy(std::string_view name, const Params& params) {
  const WatchedCall* const call = Find(name);
  EXPECT_NE(call, nullptr) << name;
  return call != nullptr && GoesToLegacyStream(*call, &params);
}

auto* const kOwnStream = reinterpret_cast<CUstream>(uintptr_t{0x5000});

// Goal: stream 0 is the legacy default stream unless the call is the per-thread variant, and its handle always is; a
// stream of one's own and the per-thread default stream never are. Method: launches, by the driver and the runtime.
TEST(CallTable, StreamsOfLaunches) {
  cuLaunchKernel_params launch{};
  EXPECT_TRUE(Legacy("cuLaunchKernel", launch));
  launch.hStream = CU_STREAM_LEGACY;
  EXPECT_TRUE(Legacy("cuLaunchKernel", launch));
  for (const CUstream stream : {kOwnStream, CU_STREAM_PER_THREAD}) {
    launch.hStream = stream;
    EXPECT_FALSE(Legacy("cuLaunchKernel", launch));
  }
  cuLaunchKernel_ptsz_params per_thread{};
  EXPECT_FALSE(Legacy("cuLaunchKernel_ptsz", per_thread));
  per_thread.hStream = CU_STREAM_LEGACY;
  EXPECT_TRUE(Legacy("cuLaunchKernel_ptsz", per_thread));
  cudaLaunchKernel_v7000_params runtime{};
  EXPECT_TRUE(Legacy("cudaLaunchKernel_v7000", runtime));
  runtime.stream = kOwnStream;
  EXPECT_FALSE(Legacy("cudaLaunchKernel_v7000", runtime));
}

// Goal: a stream inside a launch configuration is found. Method: both configurations, with and without a stream.
TEST(CallTable, StreamsOfConfigurations) {
  CUlaunchConfig driver_config{};
  cuLaunchKernelEx_params driver{};
  driver.config = &driver_config;
  EXPECT_TRUE(Legacy("cuLaunchKernelEx", driver));
  driver_config.hStream = kOwnStream;
  EXPECT_FALSE(Legacy("cuLaunchKernelEx", driver));
  cudaLaunchConfig_t runtime_config{};
  cudaLaunchKernelExC_v11060_params runtime{};
  runtime.config = &runtime_config;
  EXPECT_TRUE(Legacy("cudaLaunchKernelExC_v11060", runtime));
  runtime_config.stream = kOwnStream;
  EXPECT_FALSE(Legacy("cudaLaunchKernelExC_v11060", runtime));
}

// Goal: copies, graphs and events are watched, those without a stream too. Method: one of each.
TEST(CallTable, OtherWork) {
  EXPECT_TRUE(Legacy("cuMemcpyHtoD_v2", cuMemcpyHtoD_v2_params{}));
  EXPECT_TRUE(Legacy("cudaMemset_v3020", cudaMemset_v3020_params{}));
  EXPECT_EQ(Find("cudaMemcpy_ptds_v7000"), nullptr);
  cuGraphLaunch_params graph{};
  EXPECT_TRUE(Legacy("cuGraphLaunch", graph));
  graph.hStream = kOwnStream;
  EXPECT_FALSE(Legacy("cuGraphLaunch", graph));
  cudaEventRecord_v3020_params record{};
  EXPECT_TRUE(Legacy("cudaEventRecord_v3020", record));
  record.stream = kOwnStream;
  EXPECT_FALSE(Legacy("cudaEventRecord_v3020", record));
}

// Goal: what allocates, frees and registers is marked, and nothing else. Method: names.
TEST(CallTable, Allocations) {
  for (const std::string_view name :
       {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc_v2", "cuMemHostRegister_v2", "cuMemCreate", "cuMemAllocAsync",
        "cudaMalloc_v3020", "cudaFree_v3020", "cudaHostAlloc_v3020", "cudaMallocAsync_v11020"}) {
    const WatchedCall* const call = Find(name);
    ASSERT_NE(call, nullptr) << name;
    EXPECT_TRUE(call->allocates) << name;
  }
  EXPECT_FALSE(Find("cuLaunchKernel")->allocates);
  EXPECT_FALSE(Find("cuMemcpyHtoD_v2")->allocates);
}

}  // namespace
}  // namespace sluice::cupti
