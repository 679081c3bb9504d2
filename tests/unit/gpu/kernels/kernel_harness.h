// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gpu/host/host_kernel.h"
#include "gpu/kernels/host_library.h"
#include "gpu/kernels/packed_weights.h"
#include "tests/support/status_matchers.h"

namespace sluice::gpu {

/// Memory of one span, aligned as a device's, with a guard behind it that a kernel must not touch.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t size_bytes) : size_bytes_(size_bytes), memory_(Allocate(size_bytes + kGuard)) {
    std::memset(memory_.get(), 0xA5, size_bytes + kGuard);
  }
  template <class T>
  static GuardedBuffer Of(const std::vector<T>& values) {
    GuardedBuffer buffer(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(buffer.memory_.get(), values.data(), values.size() * sizeof(T));
    return buffer;
  }
  DeviceSpan span() const { return {memory_.get(), size_bytes_}; }
  template <class T>
  std::vector<T> Values() const {
    std::vector<T> values(size_bytes_ / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), memory_.get(), values.size() * sizeof(T));
    return values;
  }
  bool GuardIntact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (memory_.get()[size_bytes_ + i] != std::byte{0xA5}) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  static std::unique_ptr<std::byte, Free> Allocate(size_t size) {
    return std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(::operator new (size, std::align_val_t{64})));
  }
  size_t size_bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

/// Runs a prepared kernel over buffers of its own and returns the output, which is the last span. Fails the test when
/// Prepare failed, an input changed, or memory behind a span was written.
template <class Out>
std::vector<Out> RunKernel(const absl::StatusOr<std::unique_ptr<Kernel>>& kernel, std::vector<GuardedBuffer> inputs,
                           size_t output_count) {
  EXPECT_OK(kernel);
  if (!kernel.ok()) return {};
  std::vector<std::vector<std::byte>> before;
  std::vector<DeviceSpan> spans;
  for (const GuardedBuffer& input : inputs) {
    before.push_back(input.Values<std::byte>());
    spans.push_back(input.span());
  }
  const GuardedBuffer output(output_count * sizeof(Out));
  const GuardedBuffer workspace((*kernel)->workspace_bytes());
  spans.push_back(output.span());
  EXPECT_OK(static_cast<const host::HostKernel&>(**kernel).Run({spans, workspace.span()}));
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(inputs[i].Values<std::byte>(), before[i]) << (*kernel)->name() << " changed input " << i;
    EXPECT_TRUE(inputs[i].GuardIntact()) << (*kernel)->name() << " wrote behind input " << i;
  }
  EXPECT_TRUE(output.GuardIntact()) << (*kernel)->name() << " wrote behind its output";
  EXPECT_TRUE(workspace.GuardIntact()) << (*kernel)->name() << " wrote behind its workspace";
  return output.Values<Out>();
}

template <class... T>
std::vector<GuardedBuffer> Inputs(const std::vector<T>&... values) {
  std::vector<GuardedBuffer> result;
  (result.push_back(GuardedBuffer::Of(values)), ...);
  return result;
}

inline int64_t CountOf(const Dims& dims) {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

/// Seeded values in [-1, 1).
inline std::vector<float> RandomFloats(std::mt19937& random, int64_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f;
  return values;
}

inline int64_t RandomInt(std::mt19937& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

/// A constant over values that must outlive it.
inline Constant ConstantOf(std::string name, Dims dims, const std::vector<float>& values) {
  return {std::move(name), DataType::kFp32, std::move(dims), std::as_bytes(std::span(values))};
}

inline void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance,
                       const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1.0 + std::abs(expected[i]))) << what << ", element " << i;
  }
}

/// The pool of a model, as simple as can be; counts how often something was packed.
class TestPackedWeights final : public PackedWeights {
 public:
  absl::StatusOr<DeviceSpan> GetOrPack(const std::string& constant, const std::string& layout, size_t size_bytes,
                                       absl::FunctionRef<absl::Status(std::span<std::byte>)> pack) override {
    auto [entry, added] = entries_.try_emplace({constant, layout}, size_bytes);
    const DeviceSpan span = entry->second.span();
    if (!added) return span;
    ++packed_;
    if (absl::Status status = pack(std::span(span.data, size_bytes)); !status.ok()) return status;
    return span;
  }
  int packed() const { return packed_; }

 private:
  std::map<std::pair<std::string, std::string>, GuardedBuffer> entries_;
  int packed_ = 0;
};

/// The host's libraries: plain loops, and oneDNN where it was built in.
class Libraries {
 public:
  Libraries() : plain_(MakeHostKernelLibrary(clock_, {.use_onednn = false})), fast_(MakeHostKernelLibrary(clock_)) {}
  KernelLibrary& plain() { return *plain_; }
  KernelLibrary& fast() { return *fast_; }
  std::vector<std::pair<std::string, KernelLibrary*>> all() {
    std::vector<std::pair<std::string, KernelLibrary*>> result = {{"plain loops", plain_.get()}};
    if (HostLibraryHasOneDnn()) result.emplace_back("oneDNN", fast_.get());
    return result;
  }

 private:
  MonotonicClock clock_;
  std::unique_ptr<KernelLibrary> plain_;
  std::unique_ptr<KernelLibrary> fast_;
};

}  // namespace sluice::gpu
