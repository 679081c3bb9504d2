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
#include "gpu/kernels/dispatch.h"
#include "gpu/kernels/strided.h"
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

/// A merged walk (strided.h) of K inputs as a loop; the last dimension is the inner one, to be written as a plain loop.
template <size_t K>
class StridedLoop {
 public:
  using Offsets = std::array<int64_t, K>;

  /// `walk` has K inputs and is merged. UNIMPLEMENTED for more than kMaxLoopRank dimensions.
  static absl::StatusOr<StridedLoop> Make(const StridedWalk& walk) {
    const Dims& dims = walk.dims;
    if (dims.size() > kMaxLoopRank) {
      return absl::UnimplementedError(absl::StrCat("a loop over ", DimsToString(dims), " needs ", dims.size(),
                                                   " dimensions; ", kMaxLoopRank, " are supported"));
    }
    StridedLoop loop;
    loop.outer_rank_ = dims.size() - 1;
    for (size_t i = 0; i < dims.size(); ++i) {
      loop.dims_[i] = dims[i];
      for (size_t k = 0; k < K; ++k) loop.steps_[i][k] = walk.strides[k][i];
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

/// DispatchType of the host backend.
template <class... Types, class Body>
absl::StatusOr<std::unique_ptr<Kernel>> DispatchType(TypeList<Types...> types, DataType type, absl::string_view what,
                                                     const Body& body) {
  return gpu::DispatchType(Backend::kHost, types, type, what, body);
}

}  // namespace sluice::gpu::host
