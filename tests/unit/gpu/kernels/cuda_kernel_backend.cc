// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// The CUDA device's library. SLUICE_CUDA_MODULE names the module; without it, it is looked for beside the executable.
// Without a GPU every test is skipped, unless REQUIRE_GPU=1, which makes that a failure.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_module.h"
#include "tests/unit/gpu/kernels/kernel_backend.h"

namespace sluice::gpu {
namespace {

constexpr size_t kAlignment = 256;

/// Buffers are copied to an arena on the device and back, guards included.
class CudaKernelBackend final : public KernelBackend {
 public:
  absl::Status Start(const std::string& module_path) {
    SLUICE_ASSIGN_OR_RETURN(device_, LoadCudaDevice(module_path, 0, clock_));
    SLUICE_ASSIGN_OR_RETURN(stream_, device_->CreateStream(StreamPriority::kDefault));
    return absl::OkStatus();
  }

  std::vector<std::pair<std::string, KernelLibrary*>> libraries() override { return {{"CUDA", &device_->kernels()}}; }

  absl::Status Run(const Kernel& kernel, std::span<const GuardedBuffer* const> buffers,
                   const GuardedBuffer& workspace) override {
    std::map<const GuardedBuffer*, size_t> places;  // in the arena; a buffer named twice has one
    size_t size_bytes = 0;
    const auto add = [&](const GuardedBuffer* buffer) {
      if (!places.try_emplace(buffer, size_bytes).second) return;
      size_bytes += (buffer->memory().size() + kAlignment - 1) / kAlignment * kAlignment;
    };
    for (const GuardedBuffer* buffer : buffers) add(buffer);
    add(&workspace);
    SLUICE_RETURN_IF_ERROR(Reserve(size_bytes));
    const PinnedSpan pinned = pinned_.view().subspan(0, size_bytes);
    const DeviceSpan arena = arena_.view().subspan(0, size_bytes);
    for (const auto& [buffer, place] : places) {
      std::memcpy(pinned.data + place, buffer->memory().data(), buffer->memory().size());
    }
    std::vector<DeviceSpan> spans;
    const auto span_of = [&](const GuardedBuffer* buffer) {
      return arena.subspan(places.at(buffer) + buffer->shift_bytes(), buffer->span().size_bytes);
    };
    for (const GuardedBuffer* buffer : buffers) spans.push_back(span_of(buffer));
    SLUICE_RETURN_IF_ERROR(device_->CopyToDevice(stream_, pinned, arena));
    SLUICE_RETURN_IF_ERROR(Launch(kernel, {spans, span_of(&workspace)}));
    SLUICE_RETURN_IF_ERROR(device_->CopyToHost(stream_, arena, pinned));
    SLUICE_RETURN_IF_ERROR(device_->Synchronize(stream_.view()));
    for (const auto& [buffer, place] : places) {
      std::memcpy(buffer->memory().data(), pinned.data + place, buffer->memory().size());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<DeviceSpan> Place(std::span<const std::byte> bytes) override {
    SLUICE_ASSIGN_OR_RETURN(DeviceBuffer buffer, device_->AllocateDevice(bytes.size()));
    SLUICE_ASSIGN_OR_RETURN(const PinnedBuffer pinned, device_->AllocatePinned(bytes.size()));
    std::memcpy(pinned.view().data, bytes.data(), bytes.size());
    SLUICE_RETURN_IF_ERROR(device_->CopyToDevice(stream_, pinned, buffer));
    SLUICE_RETURN_IF_ERROR(device_->Synchronize(stream_.view()));
    placed_.push_back(std::move(buffer));
    return placed_.back().view();
  }

 private:
  absl::Status Reserve(size_t size_bytes) {
    if (arena_.view().size_bytes >= size_bytes) return absl::OkStatus();
    SLUICE_ASSIGN_OR_RETURN(arena_, device_->AllocateDevice(size_bytes));
    SLUICE_ASSIGN_OR_RETURN(pinned_, device_->AllocatePinned(size_bytes));
    return absl::OkStatus();
  }

  /// Every other launch by a graph: a kernel must be capturable.
  absl::Status Launch(const Kernel& kernel, const KernelArgs& args) {
    if (++launches_ % 2 == 1) return device_->Launch(stream_, kernel, args);
    SLUICE_RETURN_IF_ERROR(device_->BeginCapture(stream_));
    const absl::Status launched = device_->Launch(stream_, kernel, args);
    SLUICE_ASSIGN_OR_RETURN(Graph graph, device_->EndCapture(stream_));
    SLUICE_RETURN_IF_ERROR(launched);
    SLUICE_RETURN_IF_ERROR(device_->LaunchGraph(stream_, graph));
    return device_->Synchronize(stream_.view());  // the graph ends with this scope
  }

  MonotonicClock clock_;
  std::unique_ptr<Device> device_;
  Stream stream_;
  DeviceBuffer arena_;
  PinnedBuffer pinned_;
  std::vector<DeviceBuffer> placed_;
  int launches_ = 0;
};

std::unique_ptr<CudaKernelBackend>& Instance() {
  static std::unique_ptr<CudaKernelBackend> instance;
  return instance;
}

/// Answers for every test when the device did not start.
class NoDevice final : public ::testing::EmptyTestEventListener {
 public:
  NoDevice(absl::Status status, bool required) : status_(std::move(status)), required_(required) {}
  void OnTestStart(const ::testing::TestInfo&) override {
    if (!required_ && absl::IsFailedPrecondition(status_)) GTEST_SKIP() << status_;
    FAIL() << status_;
  }

 private:
  const absl::Status status_;
  const bool required_;
};

/// Runs all tests with the device, which ends after the last of them.
int RunAllTests(const std::string& module_path) {
  auto backend = std::make_unique<CudaKernelBackend>();
  if (absl::Status status = backend->Start(module_path); status.ok()) {
    Instance() = std::move(backend);
  } else {
    const char* required = std::getenv("REQUIRE_GPU");
    ::testing::UnitTest::GetInstance()->listeners().Append(  // GoogleTest owns it
        new NoDevice(std::move(status), required != nullptr && absl::string_view(required) == "1"));
  }
  const int result = RUN_ALL_TESTS();
  Instance().reset();
  return result;
}

}  // namespace

KernelBackend& BackendUnderTest() { return *Instance(); }

std::string CudaModuleUnderTest() {
  if (const char* named = std::getenv("SLUICE_CUDA_MODULE")) return named;
  std::error_code ignored;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (executable.parent_path() / "libsluice_cuda_device.so").string();
}

}  // namespace sluice::gpu

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return sluice::gpu::RunAllTests(sluice::gpu::CudaModuleUnderTest());
}
