// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/fault_sweep.h"

#include <utility>

#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "tests/support/status_matchers.h"

namespace sluice::gpu {
namespace {

// Far above what a scenario needs: a sweep that does not end is a failure.
constexpr int kMaxCalls = 1000;

/// Calls whose failure a caller may get over without telling anybody.
bool MayBeOvercome(DeviceMethod method) {
  return method == DeviceMethod::kDestroy || method == DeviceMethod::kQuery || method == DeviceMethod::kSynchronize;
}

}  // namespace

std::unique_ptr<FaultyDevice> MakeFaultyHost(HostKind kind, const Clock& clock) {
  HostDeviceOptions options;
  options.copiers = kind == HostKind::kCopiers;
  absl::StatusOr<std::unique_ptr<Device>> inner = CreateHostDevice(options, clock, MakeHostKernelLibrary(clock));
  EXPECT_OK(inner);
  return std::make_unique<FaultyDevice>(*std::move(inner));
}

void SweepFailures(HostKind kind, const Scenario& scenario) {
  const MonotonicClock clock;
  for (int k = 1; k <= kMaxCalls; ++k) {
    SCOPED_TRACE(::testing::Message() << "call " << k << " fails");
    const std::unique_ptr<FaultyDevice> device = MakeFaultyHost(kind, clock);
    device->FailCall(k, absl::DataLossError("planned"));
    const absl::Status status = scenario(*device);
    EXPECT_EQ(device->live_object_count(), 0);
    const std::optional<DeviceMethod> faulted = device->faulted_method();
    if (!faulted) {
      EXPECT_OK(status);
      EXPECT_GT(k, 1) << "the scenario makes no calls";
      return;
    }
    SCOPED_TRACE(::testing::Message() << "method " << static_cast<int>(*faulted));
    if (!status.ok() || !MayBeOvercome(*faulted)) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, ::testing::HasSubstr("planned")));
    }
    EXPECT_FALSE(device->lost());
    device->ClearFaults();
    EXPECT_OK(scenario(*device));
    EXPECT_EQ(device->live_object_count(), 0);
    if (::testing::Test::HasFailure()) return;  // One report is enough.
  }
  ADD_FAILURE() << "the scenario makes more than " << kMaxCalls << " calls";
}

void SweepLosses(HostKind kind, const Scenario& scenario) {
  const MonotonicClock clock;
  for (int k = 1; k <= kMaxCalls; ++k) {
    SCOPED_TRACE(::testing::Message() << "lost at call " << k);
    const std::unique_ptr<FaultyDevice> device = MakeFaultyHost(kind, clock);
    device->LoseAtCall(k);
    const absl::Status status = scenario(*device);
    EXPECT_EQ(device->live_object_count(), 0);
    const std::optional<DeviceMethod> faulted = device->faulted_method();
    if (!faulted) {
      EXPECT_OK(status);
      return;
    }
    SCOPED_TRACE(::testing::Message() << "method " << static_cast<int>(*faulted));
    EXPECT_TRUE(device->lost());
    if (!status.ok() || *faulted != DeviceMethod::kDestroy) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
    }
    EXPECT_THAT(scenario(*device), StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_EQ(device->live_object_count(), 0);
    if (::testing::Test::HasFailure()) return;
  }
  ADD_FAILURE() << "the scenario makes more than " << kMaxCalls << " calls";
}

}  // namespace sluice::gpu
