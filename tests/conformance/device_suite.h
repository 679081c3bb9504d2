// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gpu/device.h"
#include "gpu/kernel.h"
#include "tests/support/status_matchers.h"

// The contract of gpu/device.h as tests. They are compiled once and linked with one backend file into one binary per
// backend: see host_backend.cc for the shortest one.
namespace sluice::gpu::conformance {

/// A test that a backend does not run, and why. It is data, so that it shows in the output and in reviews.
struct UnsupportedTest {
  std::string test;  ///< As in "StreamSuite.RunsInOrder".
  std::string reason;
};

/// One backend. `create` returns NOT_FOUND when the backend is not present here (no GPU, not built): its tests are then
/// skipped, or fail when the environment has REQUIRE_GPU=1. Any other error fails the test.
struct BackendUnderTest {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Device>>(const Clock& clock)> create;
  std::vector<UnsupportedTest> unsupported;
  /// How far a converted stamp may be from the process's clock.
  absl::Duration stamp_tolerance;
};

/// Each backend file defines this. `module_path` names the CUDA module's file.
BackendUnderTest MakeBackend(const std::string& module_path);

/// Set by main before the tests run.
struct SuiteSettings {
  BackendUnderTest backend;
  bool require_gpu = false;
};
SuiteSettings& Settings();

/// A device buffer with a pinned one of the same size: what tests put in and get out.
struct StagedBuffer {
  PinnedBuffer pinned;
  DeviceBuffer device;
  std::span<float> floats() const {
    return {reinterpret_cast<float*>(pinned.view().data), pinned.view().size_bytes / sizeof(float)};
  }
  std::span<uint8_t> bytes() const {
    return {reinterpret_cast<uint8_t*>(pinned.view().data), pinned.view().size_bytes};
  }
};

/// Stamps in mapped memory, with the kernel arguments that write them.
class Stamps {
 public:
  Stamps(PinnedBuffer memory, size_t count);
  KernelArgs args(size_t index) const { return {.spans = {&spans_[index], 1}, .workspace = {}}; }
  /// 0 until its kernel has run.
  uint64_t value(size_t index) const { return reinterpret_cast<const uint64_t*>(memory_.view().data)[index]; }
  void Clear();

 private:
  PinnedBuffer memory_;
  std::vector<DeviceSpan> spans_;
};

/// Makes a device before each test and destroys it afterwards. Members that fail end in a gtest failure and an empty
/// object, whose use the device answers with INTERNAL.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Device& device() { return *device_; }
  const Clock& clock() const { return clock_; }

  Stream MakeStream(StreamPriority priority = StreamPriority::kDefault);
  Event MakeEvent(WaitMode mode = WaitMode::kBlock);
  TimedEvent MakeTimedEvent();
  StagedBuffer MakeBuffer(size_t size_bytes);
  Stamps MakeStamps(size_t count);

  // Kernels, prepared on first use. Not for use by several threads at once.
  const Kernel& stamp_kernel();
  const Kernel& delay_kernel(absl::Duration duration);
  /// Adds two arrays of `count` floats: spans a, b, sum.
  const Kernel& add_kernel(int64_t count);
  /// Fills `count` floats.
  const Kernel& fill_kernel(int64_t count, float value);

  /// Keeps the array that a launch's arguments point to until the test ends.
  KernelArgs Args(std::vector<DeviceSpan> spans);

  void Stamp(StreamRef stream, const Stamps& stamps, size_t index);
  void Delay(StreamRef stream, absl::Duration duration, int times = 1);
  void Upload(StreamRef stream, const StagedBuffer& buffer);
  void Download(StreamRef stream, const StagedBuffer& buffer);
  void Finish(StreamRef stream);

 private:
  const Kernel& Keep(const std::string& key, absl::StatusOr<std::unique_ptr<Kernel>> kernel);

  MonotonicClock clock_;
  std::unique_ptr<Device> device_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
  std::deque<std::vector<DeviceSpan>> kept_spans_;
  uint64_t destroy_failures_before_ = 0;
};

/// A kernel that no backend may ever run: launching it must be refused.
class UnlaunchableKernel final : public Kernel {
 public:
  UnlaunchableKernel(Backend backend, size_t workspace_bytes) : Kernel(backend, "unlaunchable", workspace_bytes) {}
};

}  // namespace sluice::gpu::conformance
