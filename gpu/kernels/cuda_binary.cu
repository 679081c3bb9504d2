// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Elementwise arithmetic, comparison and logic of two tensors with numpy broadcasting. Equal shapes, and a single
// number on either side, go four elements at a time; every other broadcast walks.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/data_type.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/kernels/cuda_elementwise.cuh"
#include "gpu/kernels/cuda_half.cuh"
#include "gpu/kernels/cuda_loop.cuh"
#include "gpu/kernels/cuda_math.cuh"
#include "gpu/kernels/dispatch.h"
#include "gpu/kernels/names.h"
#include "gpu/kernels/strided.h"

namespace sluice::gpu::cuda {
namespace {

// Results are bytes of 0 or 1.
struct Equal {
  template <class T>
  __device__ uint8_t operator()(T a, T b) const {
    return a == b;
  }
};
struct Greater {
  template <class T>
  __device__ uint8_t operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <class T>
  __device__ uint8_t operator()(T a, T b) const {
    return a >= b;
  }
};
struct Less {
  template <class T>
  __device__ uint8_t operator()(T a, T b) const {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  __device__ uint8_t operator()(T a, T b) const {
    return a <= b;
  }
};

// Truth values: any byte but 0 is true.
struct And {
  __device__ uint8_t operator()(uint8_t a, uint8_t b) const { return (a != 0) & (b != 0); }
};
struct Or {
  __device__ uint8_t operator()(uint8_t a, uint8_t b) const { return (a | b) != 0; }
};
struct Xor {
  __device__ uint8_t operator()(uint8_t a, uint8_t b) const { return (a != 0) != (b != 0); }
};
struct SameTruth {
  __device__ uint8_t operator()(uint8_t a, uint8_t b) const { return (a != 0) == (b != 0); }
};

template <class In, class Out, class Function>
__device__ Out Join(In a, In b, bool relu) {
  Compute<Out> value = Function{}(static_cast<Compute<In>>(a), static_cast<Compute<In>>(b));
  if constexpr (std::is_floating_point_v<Compute<Out>>) {
    if (relu && value < Compute<Out>(0)) value = Compute<Out>(0);
  }
  return static_cast<Out>(value);
}

template <class T>
__device__ Pack<T> LoadPack(const T* values, int64_t i, bool moves) {
  if (moves) return reinterpret_cast<const Pack<T>*>(values)[i];
  const T value = *values;
  return {{value, value, value, value}};
}

/// Operands that move along with the output, or stand still. The output may be an operand that moves.
template <class In, class Out, class Function>
__global__ void BinaryRow(const In* a, bool a_moves, const In* b, bool b_moves, Out* output, int64_t count,
                          bool aligned, bool relu) {
  WaitForPrevious();
  int64_t done = 0;
  if (aligned) {
    const int64_t packs = count / 4;
    for (int64_t i = GridThread(); i < packs; i += GridStep()) {
      const Pack<In> x = LoadPack(a, i, a_moves);
      const Pack<In> y = LoadPack(b, i, b_moves);
      Pack<Out> result;
#pragma unroll
      for (int k = 0; k < 4; ++k) result.values[k] = Join<In, Out, Function>(x.values[k], y.values[k], relu);
      reinterpret_cast<Pack<Out>*>(output)[i] = result;
    }
    done = packs * 4;
  }
  for (int64_t i = done + GridThread(); i < count; i += GridStep()) {
    output[i] = Join<In, Out, Function>(a[a_moves ? i : 0], b[b_moves ? i : 0], relu);
  }
}

template <class In, class Out, class Function>
__global__ void BinaryWalk(const __grid_constant__ DeviceWalk<2> walk, const In* a, const In* b, Out* output,
                           bool relu) {
  WaitForPrevious();
  for (int64_t i = GridThread(); i < walk.count; i += GridStep()) {
    int64_t offsets[2];
    walk.Locate(i, offsets);
    output[i] = Join<In, Out, Function>(a[offsets[0]], b[offsets[1]], relu);
  }
}

/// The same where both operands lie along the output's last dimension, which is whole packs: `walk` is over packs, its
/// offsets are elements.
constexpr int kWalkPack = 8;
template <class In, class Out, class Function>
__global__ void BinaryWalkPacks(const __grid_constant__ DeviceWalk<2> walk, const In* a, const In* b, Out* output,
                                bool relu) {
  WaitForPrevious();
  for (int64_t i = GridThread(); i < walk.count; i += GridStep()) {
    int64_t offsets[2];
    walk.Locate(i, offsets);
    const auto x = *reinterpret_cast<const Pack<In, kWalkPack>*>(a + offsets[0]);
    const auto y = *reinterpret_cast<const Pack<In, kWalkPack>*>(b + offsets[1]);
    Pack<Out, kWalkPack> result;
#pragma unroll
    for (int k = 0; k < kWalkPack; ++k) result.values[k] = Join<In, Out, Function>(x.values[k], y.values[k], relu);
    reinterpret_cast<Pack<Out, kWalkPack>*>(output)[i] = result;
  }
}

/// The walk over packs, if there is one: every step of both operands is whole packs but the last dimension's, which
/// is 1.
inline std::optional<StridedWalk> WalkOverPacks(const StridedWalk& walk) {
  StridedWalk packs = walk;
  const size_t last = walk.dims.size() - 1;
  if (walk.dims[last] % kWalkPack != 0) return std::nullopt;
  packs.dims[last] /= kWalkPack;
  packs.count /= kWalkPack;
  for (Dims& strides : packs.strides) {
    if (strides[last] != 1) return std::nullopt;
    for (size_t i = 0; i < last; ++i) {
      if (strides[i] % kWalkPack != 0) return std::nullopt;
    }
    strides[last] = kWalkPack;
  }
  return packs;
}

/// What every kind of kernel is prepared from.
struct Prepared {
  int ordinal;
  std::string name;
  StridedWalk walk;
  int64_t a_count;
  int64_t b_count;
  bool relu;
};

template <class In, class Out, class Function>
PreparedKernel MakeRow(const Prepared& p, std::vector<size_t> span_bytes) {
  SLUICE_RETURN_IF_ERROR(LoadKernel(p.ordinal, BinaryRow<In, Out, Function>));
  const bool a_moves = p.walk.strides[0][0] != 0;
  const bool b_moves = p.walk.strides[1][0] != 0;
  return MakeLaunchKernel(p.name, std::move(span_bytes),
                          [a_moves, b_moves, count = p.walk.count, relu = p.relu](
                              cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            const In* a = Elements<const In>(args, 0);
                            const In* b = Elements<const In>(args, 1);
                            Out* output = Elements<Out>(args, 2);
                            const bool aligned = (!a_moves || IsAligned(a, sizeof(Pack<In>))) &&
                                                 (!b_moves || IsAligned(b, sizeof(Pack<In>))) &&
                                                 IsAligned(output, sizeof(Pack<Out>));
                            const unsigned blocks = BlocksFor(aligned ? (count + 3) / 4 : count);
                            LaunchAfterPrevious(BinaryRow<In, Out, Function>, blocks, kBlockThreads, stream, a, a_moves,
                                                b, b_moves, output, count, aligned, relu);
                            return SLUICE_CUDA_STATUS(cudaGetLastError());
                          });
}

template <class In, class Out, class Function>
PreparedKernel MakeWalkPacks(const Prepared& p, const StridedWalk& packs, std::vector<size_t> span_bytes) {
  SLUICE_ASSIGN_OR_RETURN(const DeviceWalk<2> walk, MakeDeviceWalk<2>(packs));
  SLUICE_RETURN_IF_ERROR(LoadKernel(p.ordinal, BinaryWalkPacks<In, Out, Function>));
  return MakeLaunchKernel(p.name, std::move(span_bytes),
                          [walk, relu = p.relu](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            const In* a = Elements<const In>(args, 0);
                            const In* b = Elements<const In>(args, 1);
                            Out* output = Elements<Out>(args, 2);
                            if (!IsAligned(a, 16) || !IsAligned(b, 16) || !IsAligned(output, 16)) {
                              return absl::InternalError("a sum of halves: spans do not begin on 16 bytes");
                            }
                            LaunchAfterPrevious(BinaryWalkPacks<In, Out, Function>, BlocksFor(walk.count),
                                                kBlockThreads, stream, walk, a, b, output, relu);
                            return SLUICE_CUDA_STATUS(cudaGetLastError());
                          });
}

template <class In, class Out, class Function>
PreparedKernel MakeBinary(const Prepared& p) {
  std::vector<size_t> span_bytes = {BytesOf<In>(p.a_count), BytesOf<In>(p.b_count), BytesOf<Out>(p.walk.count)};
  if (p.walk.count == 0) return MakeEmptyKernel(p.name, std::move(span_bytes));
  // Strides of the last dimension of any broadcast are 0 or 1.
  if (p.walk.dims.size() == 1) return MakeRow<In, Out, Function>(p, std::move(span_bytes));
  if constexpr (kIsHalf<In> && kIsHalf<Out>) {
    if (const std::optional<StridedWalk> packs = WalkOverPacks(p.walk); packs.has_value()) {
      return MakeWalkPacks<In, Out, Function>(p, *packs, std::move(span_bytes));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(const DeviceWalk<2> walk, MakeDeviceWalk<2>(p.walk));
  SLUICE_RETURN_IF_ERROR(LoadKernel(p.ordinal, BinaryWalk<In, Out, Function>));
  return MakeLaunchKernel(p.name, std::move(span_bytes),
                          [walk, relu = p.relu](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                            LaunchAfterPrevious(BinaryWalk<In, Out, Function>, BlocksFor(walk.count), kBlockThreads,
                                                stream, walk, Elements<const In>(args, 0), Elements<const In>(args, 1),
                                                Elements<Out>(args, 2), relu);
                            return SLUICE_CUDA_STATUS(cudaGetLastError());
                          });
}

PreparedKernel Lacks(BinaryKind kind, DataType type) { return LacksType(Backend::kCuda, NameOf(kind), type); }

template <class T>
PreparedKernel MakeNumbers(BinaryKind kind, DataType type, const Prepared& p) {
  switch (kind) {
    case BinaryKind::kAdd:
      return MakeBinary<T, T, Add>(p);
    case BinaryKind::kSub:
      return MakeBinary<T, T, Sub>(p);
    case BinaryKind::kMul:
      return MakeBinary<T, T, Mul>(p);
    case BinaryKind::kDiv:
      return MakeBinary<T, T, Div>(p);
    case BinaryKind::kMax:
      return MakeBinary<T, T, Larger>(p);
    case BinaryKind::kMin:
      return MakeBinary<T, T, Smaller>(p);
    case BinaryKind::kMod:
      return MakeBinary<T, T, Mod>(p);
    case BinaryKind::kPow:
      if constexpr (sizeof(Compute<T>) >= 4) return MakeBinary<T, T, Pow>(p);
      return Lacks(kind, type);
    case BinaryKind::kEqual:
      return MakeBinary<T, uint8_t, Equal>(p);
    case BinaryKind::kGreater:
      return MakeBinary<T, uint8_t, Greater>(p);
    case BinaryKind::kGreaterOrEqual:
      return MakeBinary<T, uint8_t, GreaterOrEqual>(p);
    case BinaryKind::kLess:
      return MakeBinary<T, uint8_t, Less>(p);
    case BinaryKind::kLessOrEqual:
      return MakeBinary<T, uint8_t, LessOrEqual>(p);
    default:
      return Lacks(kind, type);
  }
}

PreparedKernel MakeTruths(BinaryKind kind, const Prepared& p) {
  switch (kind) {
    case BinaryKind::kAnd:
      return MakeBinary<uint8_t, uint8_t, And>(p);
    case BinaryKind::kOr:
      return MakeBinary<uint8_t, uint8_t, Or>(p);
    case BinaryKind::kXor:
      return MakeBinary<uint8_t, uint8_t, Xor>(p);
    case BinaryKind::kEqual:
      return MakeBinary<uint8_t, uint8_t, SameTruth>(p);
    default:
      return Lacks(kind, DataType::kBool);
  }
}

template <class T>
__global__ void Choose(const __grid_constant__ DeviceWalk<3> walk, const uint8_t* condition, const T* x, const T* y,
                       T* output) {
  WaitForPrevious();
  for (int64_t i = GridThread(); i < walk.count; i += GridStep()) {
    int64_t offsets[3];
    walk.Locate(i, offsets);
    output[i] = condition[offsets[0]] != 0 ? x[offsets[1]] : y[offsets[2]];
  }
}

}  // namespace

PreparedKernel CudaKernelLibrary::PrepareBinary(const BinaryDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(StridedWalk walk, MakeBinaryWalk(description));
  SLUICE_ASSIGN_OR_RETURN(const int64_t a_count, ElementCount(description.a));
  SLUICE_ASSIGN_OR_RETURN(const int64_t b_count, ElementCount(description.b));
  const Prepared prepared = {
      ordinal_,
      absl::StrCat(NameOf(description.kind), " ", DimsToString(description.a), " ", DimsToString(description.b)),
      std::move(walk),
      a_count,
      b_count,
      description.activation == Activation::kRelu};
  if (description.type == DataType::kBool) return MakeTruths(description.kind, prepared);
  const auto prepare = [&](auto tag) -> PreparedKernel {
    return MakeNumbers<decltype(tag)>(description.kind, description.type, prepared);
  };
  return DispatchHalf(description.type, prepare, [&] {
    return DispatchType(Backend::kCuda, NumberTypes{}, description.type, NameOf(description.kind), prepare);
  });
}

PreparedKernel CudaKernelLibrary::PrepareWhere(const WhereDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const StridedWalk merged, MakeWhereWalk(description));
  SLUICE_ASSIGN_OR_RETURN(const DeviceWalk<3> walk, MakeDeviceWalk<3>(merged));
  SLUICE_ASSIGN_OR_RETURN(const int64_t conditions, ElementCount(description.condition));
  SLUICE_ASSIGN_OR_RETURN(const int64_t x_count, ElementCount(description.x));
  SLUICE_ASSIGN_OR_RETURN(const int64_t y_count, ElementCount(description.y));
  const std::string name = absl::StrCat("where ", DimsToString(description.condition), " ", DimsToString(description.x),
                                        " ", DimsToString(description.y));
  return DispatchSize(description.type, "where", [&](auto tag) -> PreparedKernel {
    using T = decltype(tag);
    std::vector<size_t> span_bytes = {BytesOf<uint8_t>(conditions), BytesOf<T>(x_count), BytesOf<T>(y_count),
                                      BytesOf<T>(walk.count)};
    if (walk.count == 0) return MakeEmptyKernel(name, std::move(span_bytes));
    SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal_, Choose<T>));
    return MakeLaunchKernel(name, std::move(span_bytes),
                            [walk](cudaStream_t stream, const KernelArgs& args) -> absl::Status {
                              LaunchAfterPrevious(Choose<T>, BlocksFor(walk.count), kBlockThreads, stream, walk,
                                                  Elements<const uint8_t>(args, 0), Elements<const T>(args, 1),
                                                  Elements<const T>(args, 2), Elements<T>(args, 3));
                              return SLUICE_CUDA_STATUS(cudaGetLastError());
                            });
  });
}

}  // namespace sluice::gpu::cuda
