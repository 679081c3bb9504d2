// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Start-up of a device's lanes: what is not as promised stops it.
#include "server/execution/device_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/clock.h"
#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "tests/support/faulty_device.h"
#include "tests/support/status_matchers.h"

namespace sluice::server {
namespace {

class DeviceLanesTest : public ::testing::Test {
 protected:
  std::unique_ptr<gpu::FaultyDevice> MakeDevice() {
    auto host = gpu::CreateHostDevice({}, clock_, gpu::MakeHostKernelLibrary(clock_));
    EXPECT_OK(host);
    return std::make_unique<gpu::FaultyDevice>(*std::move(host));
  }
  absl::Status Start(std::unique_ptr<gpu::Device> device) {
    scheduler::ExpiryThread expiry(clock_);
    metrics::Metrics metrics({.devices = {"host:0"}});
    const absl::Status status =
        DeviceLanes::Create(std::move(device), 0, ServerConfig(), clock_, metrics, expiry, ResponsePool::Create({}), {})
            .status();
    expiry.Stop();
    return status;
  }
  const MonotonicClock clock_;
};

// Goal: a lane without its priority is refused, by what the streams read back. Method: a device whose streams all read
// back the same number, as a GPU without priorities would; the same device unchanged starts.
TEST_F(DeviceLanesTest, RefusesPrioritiesThatAreNotOrdered) {
  EXPECT_OK(Start(MakeDevice()));
  auto device = MakeDevice();
  device->ForcePriority(0);
  EXPECT_THAT(Start(std::move(device)),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("smaller priority number")));
}

}  // namespace
}  // namespace sluice::server
