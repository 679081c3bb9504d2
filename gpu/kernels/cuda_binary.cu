// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Elementwise arithmetic of two tensors with numpy broadcasting. All of it is bound by memory, so one kernel per type
// with the kind as a uniform branch is as fast as one per kind.
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/data_type.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/cuda/cuda_status.h"

namespace sluice::gpu::cuda {
namespace {

constexpr int kMaxRank = 8;

/// The result's dimensions with each operand's element strides (0 where it is broadcast); neighbours that both operands
/// walk as one are merged, so that equal shapes have rank 1.
struct BroadcastShape {
  int rank = 0;
  int64_t count = 1;
  int64_t dims[kMaxRank] = {};
  int64_t a_strides[kMaxRank] = {};
  int64_t b_strides[kMaxRank] = {};
};

template <class T>
__device__ T Maximum(T a, T b) {
  return a != a ? a : (b != b ? b : (a > b ? a : b));  // NaN when either is NaN.
}
template <class T>
__device__ T Minimum(T a, T b) {
  return a != a ? a : (b != b ? b : (a < b ? a : b));
}

template <class T>
__device__ T Apply(BinaryKind kind, T a, T b) {
  // Signed overflow is undefined in C++, and wraps in every model format: so integers go through unsigned.
  using Bits = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  switch (kind) {
    case BinaryKind::kSub:
      return static_cast<T>(static_cast<Bits>(a) - static_cast<Bits>(b));
    case BinaryKind::kMul:
      return static_cast<T>(static_cast<Bits>(a) * static_cast<Bits>(b));
    case BinaryKind::kDiv:
      return a / b;
    case BinaryKind::kMax:
      return Maximum(a, b);
    case BinaryKind::kMin:
      return Minimum(a, b);
    default:
      return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
  }
}

template <class T>
__global__ void Binary(BroadcastShape shape, BinaryKind kind, bool relu, const T* a, const T* b, T* out) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < shape.count; i += step) {
    int64_t rest = i;
    int64_t a_index = 0;
    int64_t b_index = 0;
    for (int d = shape.rank - 1; d > 0; --d) {
      const int64_t coordinate = rest % shape.dims[d];
      rest /= shape.dims[d];
      a_index += coordinate * shape.a_strides[d];
      b_index += coordinate * shape.b_strides[d];
    }
    a_index += rest * shape.a_strides[0];
    b_index += rest * shape.b_strides[0];
    T value = Apply(kind, a[a_index], b[b_index]);
    if (relu && value < T(0)) value = T(0);
    out[i] = value;
  }
}

template <class T>
class BinaryKernel final : public CudaKernel {
 public:
  BinaryKernel(std::string name, const BroadcastShape& shape, const BinaryDescription& description, int64_t a_count,
               int64_t b_count)
      : CudaKernel(std::move(name), 0),
        shape_(shape),
        kind_(description.kind),
        relu_(description.activation == Activation::kRelu),
        a_bytes_(static_cast<size_t>(a_count) * sizeof(T)),
        b_bytes_(static_cast<size_t>(b_count) * sizeof(T)) {}

  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const override {
    const size_t out_bytes = static_cast<size_t>(shape_.count) * sizeof(T);
    SLUICE_RETURN_IF_ERROR(CheckSpans(*this, args, {a_bytes_, b_bytes_, out_bytes}));
    if (shape_.count == 0) return absl::OkStatus();
    Binary<T><<<BlocksFor(shape_.count), kBlockThreads, 0, stream>>>(
        shape_, kind_, relu_, reinterpret_cast<const T*>(args.spans[0].data),
        reinterpret_cast<const T*>(args.spans[1].data), reinterpret_cast<T*>(args.spans[2].data));
    return SLUICE_CUDA_STATUS(cudaGetLastError());
  }

 private:
  const BroadcastShape shape_;
  const BinaryKind kind_;
  const bool relu_;
  const size_t a_bytes_;
  const size_t b_bytes_;
};

/// Element strides of `dims` seen as a tensor of the result's rank.
Dims StridesOf(const Dims& dims, size_t rank) {
  Dims strides(rank, 0);
  int64_t stride = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[dims.size() - 1 - i];
    if (dim != 1) strides[rank - 1 - i] = stride;
    stride *= dim;
  }
  return strides;
}

absl::StatusOr<BroadcastShape> MakeShape(const BinaryDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const Dims dims, BroadcastDims(description.a, description.b));
  SLUICE_ASSIGN_OR_RETURN(const int64_t count, ElementCount(dims));
  const Dims a_strides = StridesOf(description.a, dims.size());
  const Dims b_strides = StridesOf(description.b, dims.size());
  BroadcastShape shape;
  shape.count = count;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) continue;
    if (const int last = shape.rank - 1; last >= 0 && shape.a_strides[last] == a_strides[i] * dims[i] &&
                                         shape.b_strides[last] == b_strides[i] * dims[i]) {
      shape.dims[last] *= dims[i];
      shape.a_strides[last] = a_strides[i];
      shape.b_strides[last] = b_strides[i];
      continue;
    }
    if (shape.rank == kMaxRank) {
      return absl::UnimplementedError(absl::StrCat("the CUDA backend broadcasts at most ", kMaxRank, " dimensions"));
    }
    shape.dims[shape.rank] = dims[i];
    shape.a_strides[shape.rank] = a_strides[i];
    shape.b_strides[shape.rank] = b_strides[i];
    ++shape.rank;
  }
  return shape;
}

template <class T>
absl::StatusOr<std::unique_ptr<Kernel>> MakeBinary(int ordinal, const BinaryDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const BroadcastShape shape, MakeShape(description));
  SLUICE_ASSIGN_OR_RETURN(const int64_t a_count, ElementCount(description.a));
  SLUICE_ASSIGN_OR_RETURN(const int64_t b_count, ElementCount(description.b));
  SLUICE_RETURN_IF_ERROR(LoadKernel(ordinal, Binary<T>));
  return std::make_unique<BinaryKernel<T>>(
      absl::StrCat("Binary ", DimsToString(description.a), " ", DimsToString(description.b)), shape, description,
      a_count, b_count);
}

absl::Status NotHere(const char* what) {
  return absl::UnimplementedError(absl::StrCat("the CUDA backend has no kernel for ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> CudaKernelLibrary::PrepareBinary(const BinaryDescription& description) {
  const bool floating = description.type == DataType::kFp32 || description.type == DataType::kFp64;
  switch (description.kind) {
    case BinaryKind::kAdd:
    case BinaryKind::kSub:
    case BinaryKind::kMul:
    case BinaryKind::kMax:
    case BinaryKind::kMin:
      break;
    case BinaryKind::kDiv:
      if (!floating) return NotHere("integer division");
      break;
    default:
      return NotHere("this kind of binary elementwise operator");
  }
  if (description.activation != Activation::kNone && !floating) {
    return absl::InvalidArgumentError("an activation needs a floating type");
  }
  switch (description.type) {
    case DataType::kFp32:
      return MakeBinary<float>(ordinal_, description);
    case DataType::kFp64:
      return MakeBinary<double>(ordinal_, description);
    case DataType::kInt32:
      return MakeBinary<int32_t>(ordinal_, description);
    case DataType::kInt64:
      return MakeBinary<int64_t>(ordinal_, description);
    default:
      return NotHere("binary elementwise operators of this type");
  }
}

}  // namespace sluice::gpu::cuda
