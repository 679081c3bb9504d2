// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gpu/host/host_kernel.h"
#include "gpu/kernels/tensor.h"

namespace sluice::gpu::host {

// Building blocks of the plain loops.

/// A host kernel made of a callable `void(const KernelArgs&)` that holds everything decided at Prepare.
template <class Body>
class LoopKernel final : public HostKernel {
 public:
  LoopKernel(std::string name, size_t workspace_bytes, Body body)
      : HostKernel(std::move(name), workspace_bytes), body_(std::move(body)) {}
  absl::Status Run(const KernelArgs& args) const override {
    if constexpr (std::is_same_v<std::invoke_result_t<const Body&, const KernelArgs&>, absl::Status>) {
      return body_(args);
    } else {
      body_(args);
      return absl::OkStatus();
    }
  }

 private:
  const Body body_;
};

template <class Body>
std::unique_ptr<Kernel> MakeLoopKernel(std::string name, Body body, size_t workspace_bytes = 0) {
  return std::make_unique<LoopKernel<Body>>(std::move(name), workspace_bytes, std::move(body));
}

/// The launch's i-th span as elements of T.
template <class T>
T* Elements(const KernelArgs& args, size_t i) {
  return reinterpret_cast<T*>(args.spans[i].data);
}

/// Work below this many elements is not worth waking a team for (a team costs a few microseconds).
inline constexpr int64_t kParallelElements = 32768;

/// Calls body(begin, end) over disjoint ranges that cover [0, count); in parallel when there are more than
/// kParallelElements elements in all and OpenMP was built in.
template <class Body>
void ParallelRanges(int64_t count, int64_t elements_each, const Body& body) {
#ifdef _OPENMP
  if (count > 1 && count * std::max<int64_t>(elements_each, 1) > kParallelElements) {
    const int64_t pieces = std::min<int64_t>(count, 64);
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t piece = 0; piece < pieces; ++piece) {
      body(count * piece / pieces, count * (piece + 1) / pieces);
    }
    return;
  }
#else
  (void)elements_each;
#endif
  if (count > 0) body(int64_t{0}, count);
}

/// Most dimensions a strided loop keeps after merging; real models stay below half.
inline constexpr size_t kMaxLoopRank = 16;

/// A walk over an output in row-major order that knows where each of K inputs stands. Dimensions that every input walks
/// through evenly are merged, units dropped; the last dimension left is the inner one, to be written as a plain loop.
template <size_t K>
class StridedLoop {
 public:
  using Offsets = std::array<int64_t, K>;

  /// `strides[k]` has one stride, in elements, per dimension of the output: 0 where input k is broadcast.
  /// UNIMPLEMENTED for more than kMaxLoopRank dimensions after merging.
  static absl::StatusOr<StridedLoop> Make(const Dims& output, const std::array<Dims, K>& strides) {
    std::vector<int64_t> dims;
    std::vector<Offsets> steps;
    for (size_t i = 0; i < output.size(); ++i) {
      if (output[i] == 1) continue;
      Offsets step;
      for (size_t k = 0; k < K; ++k) step[k] = strides[k][i];
      bool merge = !dims.empty();
      for (size_t k = 0; merge && k < K; ++k) merge = steps.back()[k] == step[k] * output[i];
      if (merge) {
        dims.back() *= output[i];
        steps.back() = step;
      } else {
        dims.push_back(output[i]);
        steps.push_back(step);
      }
    }
    if (dims.empty()) {
      dims.push_back(1);
      steps.push_back(Offsets{});
    }
    if (dims.size() > kMaxLoopRank) {
      return absl::UnimplementedError(absl::StrCat("a loop over ", DimsToString(output), " needs ", dims.size(),
                                                   " dimensions; ", kMaxLoopRank, " are supported"));
    }
    StridedLoop loop;
    loop.outer_rank_ = dims.size() - 1;
    for (size_t i = 0; i < dims.size(); ++i) {
      loop.dims_[i] = dims[i];
      loop.steps_[i] = steps[i];
      if (i + 1 < dims.size()) loop.outer_count_ *= dims[i];
    }
    loop.inner_count_ = dims.back();
    return loop;
  }

  int64_t outer_count() const { return outer_count_; }
  int64_t inner_count() const { return inner_count_; }
  /// Stride of input k in the inner dimension.
  int64_t inner_step(size_t k) const { return steps_[outer_rank_][k]; }
  size_t outer_rank() const { return outer_rank_; }
  int64_t dim(size_t i) const { return dims_[i]; }
  const Offsets& step(size_t i) const { return steps_[i]; }

  /// Calls body(outer index, offsets of the inputs) for every outer index; the output stands at index * inner_count().
  template <class Body>
  void Run(const Body& body) const {
    if (inner_count_ == 0) return;
    ParallelRanges(outer_count_, inner_count_, [&](int64_t begin, int64_t end) { RunRange(begin, end, body); });
  }

  /// The same over part of the outer indices, on the calling thread.
  template <class Body>
  void RunRange(int64_t begin, int64_t end, const Body& body) const {
    std::array<int64_t, kMaxLoopRank> position;
    Offsets offsets{};
    int64_t rest = begin;
    for (size_t i = outer_rank_; i-- > 0;) {
      position[i] = rest % dims_[i];
      rest /= dims_[i];
      for (size_t k = 0; k < K; ++k) offsets[k] += position[i] * steps_[i][k];
    }
    for (int64_t index = begin; index < end; ++index) {
      body(index, offsets);
      for (size_t i = outer_rank_; i-- > 0;) {
        for (size_t k = 0; k < K; ++k) offsets[k] += steps_[i][k];
        if (++position[i] < dims_[i]) break;
        for (size_t k = 0; k < K; ++k) offsets[k] -= dims_[i] * steps_[i][k];
        position[i] = 0;
      }
    }
  }

 private:
  size_t outer_rank_ = 0;
  int64_t outer_count_ = 1;
  int64_t inner_count_ = 1;
  std::array<int64_t, kMaxLoopRank> dims_{};
  std::array<Offsets, kMaxLoopRank> steps_{};
};

/// Row-major strides of `dims`, in elements.
inline Dims RowMajorStrides(const Dims& dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

/// Strides of an input of dimensions `dims` broadcast to `output`; it must broadcast.
inline Dims BroadcastStrides(const Dims& dims, const Dims& output) {
  const Dims own = RowMajorStrides(dims);
  Dims strides(output.size(), 0);
  const size_t lead = output.size() - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) strides[lead + i] = dims[i] == 1 ? 0 : own[i];
  return strides;
}

/// Calls body with a value of the C++ type of `type`; UNIMPLEMENTED when `Types` has it not.
template <class... Types>
struct TypeList {};

using FloatTypes = TypeList<float, double>;
using NumberTypes = TypeList<float, double, int32_t, int64_t, int8_t, uint8_t>;

template <class T>
constexpr DataType TypeOf() {
  if constexpr (std::is_same_v<T, float>) return DataType::kFp32;
  if constexpr (std::is_same_v<T, double>) return DataType::kFp64;
  if constexpr (std::is_same_v<T, int8_t>) return DataType::kInt8;
  if constexpr (std::is_same_v<T, uint8_t>) return DataType::kUint8;
  if constexpr (std::is_same_v<T, int32_t>) return DataType::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return DataType::kInt64;
  if constexpr (std::is_same_v<T, bool>) return DataType::kBool;
  return DataType::kInvalid;
}

template <class... Types, class Body>
absl::StatusOr<std::unique_ptr<Kernel>> DispatchType(TypeList<Types...>, DataType type, absl::string_view what,
                                                     const Body& body) {
  absl::StatusOr<std::unique_ptr<Kernel>> result =
      absl::UnimplementedError(absl::StrCat("the host backend has no ", what, " for ", WireName(type)));
  (void)((TypeOf<Types>() == type && (result = body(Types{}), true)) || ...);
  return result;
}

/// The same by size alone, for kernels that only move elements: body gets an unsigned integer of that size.
template <class Body>
absl::StatusOr<std::unique_ptr<Kernel>> DispatchSize(DataType type, absl::string_view what, const Body& body) {
  switch (ElementBytes(type)) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    case 8:
      return body(uint64_t{});
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": elements of type ", WireName(type), " have no fixed size"));
  }
}

}  // namespace sluice::gpu::host
