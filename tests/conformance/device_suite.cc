// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/device_suite.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/kernels/delay.h"
#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/fill.h"
#include "gpu/kernels/library.h"
#include "gpu/kernels/stamp.h"

namespace sluice::gpu::conformance {

SuiteSettings& Settings() {
  static SuiteSettings settings;
  return settings;
}

Stamps::Stamps(PinnedBuffer memory, size_t count) : memory_(std::move(memory)), spans_(count) {
  for (size_t i = 0; i < count; ++i) {
    spans_[i] = memory_.view().device_span().subspan(i * sizeof(uint64_t), sizeof(uint64_t));
  }
  Clear();
}

void Stamps::Clear() { std::memset(memory_.view().data, 0, memory_.view().size_bytes); }

void DeviceTest::SetUp() {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = absl::StrCat(test.test_suite_name(), ".", test.name());
  const BackendUnderTest& backend = Settings().backend;
  destroy_failures_before_ = DestroyFailureCount();
  for (const UnsupportedTest& unsupported : backend.unsupported) {
    if (unsupported.test == name) GTEST_SKIP() << backend.name << " does not support it: " << unsupported.reason;
  }
  absl::StatusOr<std::unique_ptr<Device>> created = backend.create(clock_);
  if (absl::IsNotFound(created.status()) && !Settings().require_gpu) {
    GTEST_SKIP() << backend.name << " is not present here: " << created.status();
  }
  ASSERT_OK(created);
  device_ = *std::move(created);
}

void DeviceTest::TearDown() {
  kernels_.clear();
  device_.reset();
  EXPECT_EQ(DestroyFailureCount(), destroy_failures_before_) << "an object outlived the device or was not destroyed";
}

Stream DeviceTest::MakeStream(StreamPriority priority) {
  absl::StatusOr<Stream> stream = device().CreateStream(priority);
  EXPECT_OK(stream);
  return stream.ok() ? *std::move(stream) : Stream();
}

Event DeviceTest::MakeEvent(WaitMode mode) {
  absl::StatusOr<Event> event = device().CreateEvent(mode);
  EXPECT_OK(event);
  return event.ok() ? *std::move(event) : Event();
}

TimedEvent DeviceTest::MakeTimedEvent() {
  absl::StatusOr<TimedEvent> event = device().CreateTimedEvent();
  EXPECT_OK(event);
  return event.ok() ? *std::move(event) : TimedEvent();
}

StagedBuffer DeviceTest::MakeBuffer(size_t size_bytes) {
  absl::StatusOr<PinnedBuffer> pinned = device().AllocatePinned(size_bytes);
  absl::StatusOr<DeviceBuffer> memory = device().AllocateDevice(size_bytes);
  EXPECT_OK(pinned);
  EXPECT_OK(memory);
  if (!pinned.ok() || !memory.ok()) return {};
  std::memset(pinned->view().data, 0, size_bytes);
  return {*std::move(pinned), *std::move(memory)};
}

Stamps DeviceTest::MakeStamps(size_t count) {
  absl::StatusOr<PinnedBuffer> memory = device().AllocatePinned(count * sizeof(uint64_t));
  EXPECT_OK(memory);
  return Stamps(*std::move(memory), count);
}

const Kernel& DeviceTest::Keep(const std::string& key, absl::StatusOr<std::unique_ptr<Kernel>> kernel) {
  EXPECT_OK(kernel) << key;
  std::unique_ptr<Kernel>& kept = kernels_[key];
  kept = kernel.ok() ? *std::move(kernel) : std::make_unique<UnlaunchableKernel>(device().info().backend, 1);
  return *kept;
}

const Kernel& DeviceTest::stamp_kernel() {
  const auto found = kernels_.find("stamp");
  return found != kernels_.end() ? *found->second : Keep("stamp", PrepareStamp(device()));
}

const Kernel& DeviceTest::delay_kernel(absl::Duration duration) {
  const std::string key = absl::StrCat("delay ", absl::FormatDuration(duration));
  const auto found = kernels_.find(key);
  return found != kernels_.end() ? *found->second : Keep(key, PrepareDelay(device(), {.duration = duration}));
}

const Kernel& DeviceTest::add_kernel(int64_t count) {
  const std::string key = absl::StrCat("add ", count);
  const auto found = kernels_.find(key);
  if (found != kernels_.end()) return *found->second;
  BinaryDescription description;
  description.kind = BinaryKind::kAdd;
  description.a = description.b = {count};
  return Keep(key, PrepareBinary(device(), description));
}

const Kernel& DeviceTest::fill_kernel(int64_t count, float value) {
  const std::string key = absl::StrCat("fill ", count, " ", value);
  const auto found = kernels_.find(key);
  if (found != kernels_.end()) return *found->second;
  FillDescription description;
  description.dims = {count};
  description.value.resize(sizeof(value));
  std::memcpy(description.value.data(), &value, sizeof(value));
  return Keep(key, PrepareFill(device(), description));
}

KernelArgs DeviceTest::Args(std::vector<DeviceSpan> spans) {
  kept_spans_.push_back(std::move(spans));
  return {.spans = kept_spans_.back(), .workspace = {}};
}

void DeviceTest::Stamp(StreamRef stream, const Stamps& stamps, size_t index) {
  EXPECT_OK(device().Launch(stream, stamp_kernel(), stamps.args(index)));
}

void DeviceTest::Delay(StreamRef stream, absl::Duration duration, int times) {
  for (int i = 0; i < times; ++i) EXPECT_OK(device().Launch(stream, delay_kernel(duration), {}));
}

void DeviceTest::Upload(StreamRef stream, const StagedBuffer& buffer) {
  EXPECT_OK(device().CopyToDevice(stream, buffer.pinned, buffer.device));
}

void DeviceTest::Download(StreamRef stream, const StagedBuffer& buffer) {
  EXPECT_OK(device().CopyToHost(stream, buffer.device, buffer.pinned));
}

void DeviceTest::Finish(StreamRef stream) { EXPECT_OK(device().Synchronize(stream)); }

}  // namespace sluice::gpu::conformance
