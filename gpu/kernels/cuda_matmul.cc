// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Matrix products: which of cuBLASLt (cuda_matmul_ways.h) and our kernels (cuda_matmul_kernels.h) does which.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/data_type.h"
#include "base/half.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"
#include "gpu/cuda/cuda_library.h"
#include "gpu/cuda/math_libraries.h"
#include "gpu/kernels/cuda_constant.h"
#include "gpu/kernels/cuda_few_rows.h"
#include "gpu/kernels/cuda_matmul_kernels.h"
#include "gpu/kernels/cuda_matmul_shape.h"
#include "gpu/kernels/cuda_matmul_ways.h"
#include "gpu/kernels/geometry.h"

namespace sluice::gpu::cuda {
namespace {

constexpr uintptr_t kAligned = 16;

/// Operands of one launch; c and residual are null when there are none.
template <class T>
struct Launched {
  const T* a = nullptr;
  const T* b = nullptr;
  const T* c = nullptr;
  const T* residual = nullptr;
  T* out = nullptr;
};

/// Stands for both halves here, where elements are only moved and counted.
using HalfBits = uint16_t;

/// What every matrix product has: constants, and spans that are checked and put in order.
template <class T>
class ProductKernel : public CudaKernel {
 public:
  struct Parts {
    std::string name;
    size_t a_bytes = 0, b_bytes = 0, c_bytes = 0, out_bytes = 0;  ///< As the description has them.
    bool has_c = false, has_residual = false;
    CudaConstant b, c;
  };

  absl::Status Submit(cudaStream_t stream, const KernelArgs& args) const final {
    const size_t expected =
        2 + (parts_.b ? 0 : 1) + (parts_.has_c && !parts_.c ? 1 : 0) + (parts_.has_residual ? 1 : 0);
    if (args.spans.size() != expected) {
      return absl::InternalError(
          absl::StrCat("kernel ", name(), " takes ", expected, " spans and got ", args.spans.size()));
    }
    size_t next = 0;
    absl::Status status;
    const auto take = [&](size_t size_bytes) {
      const DeviceSpan span = args.spans[next++];
      if (span.size_bytes < size_bytes || reinterpret_cast<uintptr_t>(span.data) % kAligned != 0) {
        status.Update(
            absl::InternalError(absl::StrCat("kernel ", name(), ": span ", next - 1, " needs ", size_bytes,
                                             " bytes on a multiple of ", kAligned, " and has ", span.size_bytes)));
      }
      return reinterpret_cast<T*>(span.data);
    };
    Launched<T> launched;
    launched.a = take(parts_.a_bytes);
    launched.b = parts_.b ? reinterpret_cast<const T*>(parts_.b.floats()) : take(parts_.b_bytes);
    if (parts_.has_c) launched.c = parts_.c ? reinterpret_cast<const T*>(parts_.c.floats()) : take(parts_.c_bytes);
    if (parts_.has_residual) launched.residual = take(parts_.out_bytes);
    launched.out = take(parts_.out_bytes);
    SLUICE_RETURN_IF_ERROR(status);
    if (parts_.out_bytes == 0) return absl::OkStatus();
    return Multiply(stream, launched, args.workspace);
  }

 protected:
  ProductKernel(Parts parts, absl::string_view by, size_t workspace_bytes)
      : CudaKernel(absl::StrCat(parts.name, " (", by, ")"), workspace_bytes), parts_(std::move(parts)) {}

 private:
  virtual absl::Status Multiply(cudaStream_t stream, const Launched<T>& launched, DeviceSpan workspace) const = 0;

  const Parts parts_;
};

template <class T>
class TilesKernel final : public ProductKernel<T> {
 public:
  TilesKernel(typename ProductKernel<T>::Parts parts, const MatMulShape& shape)
      : ProductKernel<T>(std::move(parts), "tiles", 0), shape_(shape) {}

 private:
  absl::Status Multiply(cudaStream_t stream, const Launched<T>& launched, DeviceSpan) const override {
    return SubmitTiles<T>(stream, shape_, launched.a, launched.b, launched.c, launched.out);
  }
  const MatMulShape shape_;
};

/// T is float or HalfBits.
template <class T>
class FewRowsKernel final : public ProductKernel<T> {
 public:
  FewRowsKernel(typename ProductKernel<T>::Parts parts, const FewRowsProduct& product)
      : ProductKernel<T>(std::move(parts), "few rows", 0), product_(product) {}

 private:
  absl::Status Multiply(cudaStream_t stream, const Launched<T>& launched, DeviceSpan) const override {
    return SubmitFewRows(stream, product_, launched.a, launched.b, launched.c, launched.residual, launched.out);
  }
  const FewRowsProduct product_;
};

/// T is float or HalfBits.
template <class T>
class LtKernel final : public ProductKernel<T> {
 public:
  LtKernel(typename ProductKernel<T>::Parts parts, const MatMulWay& way)
      : ProductKernel<T>(std::move(parts), way.name(), way.workspace_bytes()), way_(way) {}

 private:
  absl::Status Multiply(cudaStream_t stream, const Launched<T>& launched, DeviceSpan workspace) const override {
    return way_.Submit(stream, launched.a, launched.b, launched.c, launched.residual, launched.out, workspace);
  }
  const MatMulWay way_;
};

/// Element `i` of FP32 bytes, which in a file need not be aligned.
float FloatAt(std::span<const std::byte> bytes, int64_t i) {
  float value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(i) * sizeof(float), sizeof(float));
  return value;
}

/// Writes element `i` of a tensor of `type`: FP32 or a half.
void Put(DataType type, std::byte* to, int64_t i, float value) {
  if (type == DataType::kFp32) {
    reinterpret_cast<float*>(to)[i] = value;
  } else {
    reinterpret_cast<HalfBits*>(to)[i] = HalfFromFloat(type, value);
  }
}

/// [depth, columns] as [columns, depth].
void PackColumns(DataType type, std::span<const std::byte> from, int64_t depth, int64_t columns, std::byte* to) {
  constexpr int64_t kBlock = 32;  // Both sides stay in the cache.
  for (int64_t first_k = 0; first_k < depth; first_k += kBlock) {
    for (int64_t first_n = 0; first_n < columns; first_n += kBlock) {
      for (int64_t n = first_n; n < std::min(first_n + kBlock, columns); ++n) {
        for (int64_t k = first_k; k < std::min(first_k + kBlock, depth); ++k) {
          Put(type, to, n * depth + k, FloatAt(from, k * columns + n));
        }
      }
    }
  }
}

/// The constant in the product's type, each element times `factor`.
absl::StatusOr<CudaConstant> PackPlain(int ordinal, const MatMulDescription& d, const Constant& constant,
                                       float factor) {
  if (d.type == DataType::kFp32 && factor == 1.0f) {
    return CudaConstant::MakePlain(ordinal, d.packed_weights, constant);
  }
  const auto count = static_cast<int64_t>(constant.data.size() / sizeof(float));
  return CudaConstant::Make(ordinal, d.packed_weights, constant.name,
                            absl::StrCat(std::string(WireName(d.type)), " times ", factor),
                            static_cast<size_t>(count) * ElementBytes(d.type), [&](std::span<std::byte> to) {
                              for (int64_t i = 0; i < count; ++i) {
                                Put(d.type, to.data(), i, FloatAt(constant.data, i) * factor);
                              }
                              return absl::OkStatus();
                            });
}

/// B where it is constant. One matrix is always kept as [columns, depth], however the file has it, so that kernels for
/// few rows and cuBLASLt share one copy in all buckets; `operands` are changed to say so.
absl::StatusOr<CudaConstant> PackB(int ordinal, const MatMulDescription& d, MatMulOperands& operands) {
  const Constant& constant = *d.b_constant;
  if (!operands.one_b || operands.transpose_b) return PackPlain(ordinal, d, constant, 1.0f);
  MatMulShape& shape = operands.shape;
  operands.transpose_b = true;
  shape.b_depth = 1;
  shape.b_column = shape.depth;
  const size_t size_bytes = constant.data.size() / sizeof(float) * ElementBytes(d.type);
  const std::string layout = absl::StrCat("columns", d.type == DataType::kFp32 ? "" : std::string(WireName(d.type)));
  return CudaConstant::Make(ordinal, d.packed_weights, constant.name, layout, size_bytes, [&](std::span<std::byte> to) {
    PackColumns(d.type, constant.data, shape.depth, shape.columns, to.data());
    return absl::OkStatus();
  });
}

template <class T>
absl::StatusOr<typename ProductKernel<T>::Parts> MakeParts(const MatMulDescription& d, const MatMulGeometry& geometry) {
  typename ProductKernel<T>::Parts parts;
  parts.name = absl::StrCat("matmul ", DimsToString(d.a), " by ", DimsToString(d.b));
  SLUICE_ASSIGN_OR_RETURN(const int64_t a, ElementCount(d.a));
  SLUICE_ASSIGN_OR_RETURN(const int64_t b, ElementCount(d.b));
  SLUICE_ASSIGN_OR_RETURN(const int64_t out, ElementCount(geometry.Output()));
  parts.a_bytes = static_cast<size_t>(a) * sizeof(T);
  parts.b_bytes = static_cast<size_t>(b) * sizeof(T);
  parts.out_bytes = static_cast<size_t>(out) * sizeof(T);
  parts.has_c = d.c.has_value();
  if (parts.has_c) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t c, ElementCount(*d.c));
    parts.c_bytes = static_cast<size_t>(c) * sizeof(T);
  }
  parts.has_residual = d.residual;
  return parts;
}

template <class T>
absl::StatusOr<std::unique_ptr<Kernel>> MakeTiles(int ordinal, const MatMulDescription& d,
                                                  const MatMulGeometry& geometry) {
  if (d.alpha != 1.0f || d.beta != 1.0f || d.activation != Activation::kNone) {
    return absl::UnimplementedError(absl::StrCat("the CUDA backend multiplies ", std::string(WireName(d.type)),
                                                 " matrices with alpha and beta 1 and no activation only"));
  }
  SLUICE_ASSIGN_OR_RETURN(const MatMulOperands operands, MakeMatMulOperands(d, geometry));
  SLUICE_ASSIGN_OR_RETURN(auto parts, MakeParts<T>(d, geometry));
  SLUICE_RETURN_IF_ERROR(LoadTiles<T>(ordinal));
  return std::make_unique<TilesKernel<T>>(std::move(parts), operands.shape);
}

/// T is float or HalfBits, and says nothing that the description does not.
template <class T>
absl::StatusOr<std::unique_ptr<Kernel>> MakeFloat(int ordinal, MathLibraries& math, MatMulChoices& choices,
                                                  const MatMulDescription& d, const MatMulGeometry& geometry) {
  constexpr bool kIsFloat = std::is_same_v<T, float>;
  if (d.activation != Activation::kNone && d.activation != Activation::kRelu) {
    return absl::UnimplementedError("the CUDA backend multiplies with Relu as the only activation");
  }
  SLUICE_ASSIGN_OR_RETURN(MatMulOperands operands, MakeMatMulOperands(d, geometry));
  MatMulShape& shape = operands.shape;
  SLUICE_ASSIGN_OR_RETURN(auto parts, MakeParts<T>(d, geometry));
  if (d.b_constant.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(parts.b, PackB(ordinal, d, operands));
  }
  if (d.c_constant.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(parts.c, PackPlain(ordinal, d, *d.c_constant, std::exchange(shape.beta, 1.0f)));
  }
  if (parts.b && parts.out_bytes > 0 && TakesFewRows(operands)) {
    SLUICE_ASSIGN_OR_RETURN(const int multiprocessors, math.MultiprocessorCount());
    SLUICE_RETURN_IF_ERROR(LoadFewRows(ordinal, d.type));
    return std::make_unique<FewRowsKernel<T>>(std::move(parts), MakeFewRows(operands, multiprocessors));
  }
  if (parts.out_bytes > 0) {
    SLUICE_ASSIGN_OR_RETURN(const cublasLtHandle_t handle, math.CublasLt());
    SLUICE_ASSIGN_OR_RETURN(const std::optional<MatMulWay> way, choices.Choose(handle, operands));
    if (way.has_value()) return std::make_unique<LtKernel<T>>(std::move(parts), *way);
  }
  if constexpr (kIsFloat) {
    SLUICE_RETURN_IF_ERROR(LoadTiles<float>(ordinal));
    return std::make_unique<TilesKernel<float>>(std::move(parts), shape);
  } else {
    return absl::UnimplementedError(absl::StrCat("cuBLASLt takes no ", std::string(WireName(d.type)), " product of ",
                                                 DimsToString(d.a), " and ", DimsToString(d.b)));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> CudaKernelLibrary::PrepareMatMul(const MatMulDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const MatMulGeometry geometry, MakeMatMulGeometry(description));
  switch (description.type) {
    case DataType::kFp32:
      return MakeFloat<float>(ordinal_, *math_, *matmul_choices_, description, geometry);
    case DataType::kFp16:
    case DataType::kBf16:
      return MakeFloat<HalfBits>(ordinal_, *math_, *matmul_choices_, description, geometry);
    case DataType::kFp64:
      return MakeTiles<double>(ordinal_, description, geometry);
    case DataType::kInt32:
      return MakeTiles<uint32_t>(ordinal_, description, geometry);
    case DataType::kInt64:
      return MakeTiles<uint64_t>(ordinal_, description, geometry);
    default:
      return absl::UnimplementedError(
          absl::StrCat("matrix product: the CUDA backend has no kernel for ", std::string(WireName(description.type))));
  }
}

}  // namespace sluice::gpu::cuda
