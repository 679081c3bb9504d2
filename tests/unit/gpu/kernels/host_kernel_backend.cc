// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// The host's libraries: plain loops, and oneDNN where it was built in. Kernels run in the test's own thread.
#include "base/clock.h"
#include "gpu/host/host_kernel.h"
#include "gpu/kernels/host_library.h"
#include "tests/unit/gpu/kernels/kernel_backend.h"

namespace sluice::gpu {
namespace {

class HostKernelBackend final : public KernelBackend {
 public:
  std::vector<std::pair<std::string, KernelLibrary*>> libraries() override {
    std::vector<std::pair<std::string, KernelLibrary*>> result = {{"plain loops", plain_.get()}};
    if (HostLibraryHasOneDnn()) result.emplace_back("oneDNN", fast_.get());
    return result;
  }
  absl::Status Run(const Kernel& kernel, std::span<const GuardedBuffer* const> buffers,
                   const GuardedBuffer& workspace) override {
    std::vector<DeviceSpan> spans;
    for (const GuardedBuffer* buffer : buffers) spans.push_back(buffer->span());
    return static_cast<const host::HostKernel&>(kernel).Run({spans, workspace.span()});
  }
  absl::StatusOr<DeviceSpan> Place(std::span<const std::byte> bytes) override {
    placed_.push_back(GuardedBuffer::Of(std::vector<std::byte>(bytes.begin(), bytes.end())));
    return placed_.back().span();
  }

 private:
  MonotonicClock clock_;
  const std::unique_ptr<KernelLibrary> plain_ = MakeHostKernelLibrary(clock_, {.use_onednn = false});
  const std::unique_ptr<KernelLibrary> fast_ = MakeHostKernelLibrary(clock_);
  std::vector<GuardedBuffer> placed_;
};

}  // namespace

KernelBackend& BackendUnderTest() {
  static HostKernelBackend backend;
  return backend;
}

}  // namespace sluice::gpu
