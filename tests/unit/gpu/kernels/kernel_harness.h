// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "gpu/kernels/packed_weights.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/gpu/kernels/kernel_backend.h"

namespace sluice::gpu {

/// Runs a prepared kernel over the buffers, which are its spans in order; one that is named twice is one memory. Fails
/// the test when Prepare failed or memory around a span was written.
inline void RunOver(const absl::StatusOr<std::unique_ptr<Kernel>>& kernel,
                    const std::vector<const GuardedBuffer*>& buffers) {
  EXPECT_OK(kernel);
  if (!kernel.ok()) return;
  const GuardedBuffer workspace((*kernel)->workspace_bytes());
  EXPECT_OK(BackendUnderTest().Run(**kernel, buffers, workspace));
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(buffers[i]->GuardIntact()) << (*kernel)->name() << " wrote around span " << i;
  }
  EXPECT_TRUE(workspace.GuardIntact()) << (*kernel)->name() << " wrote behind its workspace";
}

/// Runs a prepared kernel over buffers of its own and returns the output, which is the last span. Fails the test when
/// Prepare failed, an input changed, or memory around a span was written.
template <class Out>
std::vector<Out> RunKernel(const absl::StatusOr<std::unique_ptr<Kernel>>& kernel,
                           const std::vector<GuardedBuffer>& inputs, size_t output_count,
                           size_t output_shift_bytes = 0) {
  std::vector<std::vector<std::byte>> before;
  std::vector<const GuardedBuffer*> buffers;
  for (const GuardedBuffer& input : inputs) {
    before.push_back(input.Values<std::byte>());
    buffers.push_back(&input);
  }
  const GuardedBuffer output(output_count * sizeof(Out), output_shift_bytes);
  buffers.push_back(&output);
  RunOver(kernel, buffers);
  if (!kernel.ok()) return {};
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(inputs[i].Values<std::byte>(), before[i]) << (*kernel)->name() << " changed input " << i;
  }
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
    const auto key = std::pair(constant, layout);
    if (const auto found = entries_.find(key); found != entries_.end()) return found->second;
    ++packed_;
    const GuardedBuffer buffer(size_bytes);
    const DeviceSpan packed = buffer.span();
    SLUICE_RETURN_IF_ERROR(pack(std::span(packed.data, size_bytes)));
    SLUICE_ASSIGN_OR_RETURN(entries_[key], BackendUnderTest().Place(std::span(packed.data, size_bytes)));
    return entries_[key];
  }
  int packed() const { return packed_; }

 private:
  std::map<std::pair<std::string, std::string>, DeviceSpan> entries_;
  int packed_ = 0;
};

/// The libraries under test.
class Libraries {
 public:
  /// The backend's default: what most kernels are tested with.
  KernelLibrary& fast() { return *all().back().second; }
  std::vector<std::pair<std::string, KernelLibrary*>> all() { return BackendUnderTest().libraries(); }
};

/// [N, C, rest...] in memory as [N, rest..., C].
template <class T>
std::vector<T> ChannelsLast(const std::vector<T>& values, const Dims& dims) {
  std::vector<T> result(values.size());
  const int64_t area = CountOf(Dims(dims.begin() + 2, dims.end()));
  for (int64_t n = 0; n < dims[0]; ++n) {
    for (int64_t c = 0; c < dims[1]; ++c) {
      for (int64_t i = 0; i < area; ++i) {
        result[(n * area + i) * dims[1] + c] = values[(n * dims[1] + c) * area + i];
      }
    }
  }
  return result;
}

}  // namespace sluice::gpu
