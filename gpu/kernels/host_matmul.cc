// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/status_macros.h"
#include "gpu/kernels/geometry.h"
#include "gpu/kernels/host_constant.h"
#include "gpu/kernels/host_kernels.h"
#include "gpu/kernels/host_loop.h"

namespace sluice::gpu::host {
namespace {

template <class T>
void TransposeMatrix(const T* from, int64_t rows, int64_t columns, T* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
  }
}

/// Row by row: every element of A adds a multiple of a row of B to a row of the result. T is unsigned for integers,
/// whose sums wrap.
template <class T>
class PlainProduct final : public HostKernel {
 public:
  PlainProduct(std::string name, size_t workspace_bytes, const MatMulGeometry& geometry, const StridedLoop<3>& batches,
               const MatMulDescription& d, HostConstant b, HostConstant c)
      : HostKernel(std::move(name), workspace_bytes),
        rows_(geometry.rows),
        columns_(geometry.columns),
        depth_(geometry.depth),
        batches_(batches),
        transpose_a_(d.transpose_a),
        transpose_b_(workspace_bytes > 0),
        has_c_(d.c.has_value()),
        c_row_(!has_c_ || geometry.c[geometry.c.size() - 2] == 1 ? 0 : geometry.c.back()),
        c_column_(!has_c_ || geometry.c.back() == 1 ? 0 : 1),
        alpha_(static_cast<T>(d.alpha)),
        beta_(static_cast<T>(d.beta)),
        activation_(d.activation),
        constant_b_(std::move(b)),
        constant_c_(std::move(c)) {}

  absl::Status Run(const KernelArgs& args) const override {
    size_t next = 0;
    const T* a = Elements<T>(args, next++);
    const T* b = constant_b_ ? reinterpret_cast<const T*>(constant_b_.data()) : Elements<T>(args, next++);
    const T* c = nullptr;
    if (has_c_) c = constant_c_ ? reinterpret_cast<const T*>(constant_c_.data()) : Elements<T>(args, next++);
    T* output = Elements<T>(args, next);
    batches_.RunRange(0, batches_.outer_count(), [&](int64_t index, const StridedLoop<3>::Offsets& offsets) {
      for (int64_t i = 0; i < batches_.inner_count(); ++i) {
        const T* matrix = b + offsets[1] + i * batches_.inner_step(1);
        if (transpose_b_) {
          T* packed = reinterpret_cast<T*>(args.workspace.data);
          TransposeMatrix(matrix, columns_, depth_, packed);
          matrix = packed;
        }
        Multiply(a + offsets[0] + i * batches_.inner_step(0), matrix,
                 has_c_ ? c + offsets[2] + i * batches_.inner_step(2) : nullptr,
                 output + (index * batches_.inner_count() + i) * rows_ * columns_);
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kBlock = 4;  // rows that share one pass over B

  void Multiply(const T* a, const T* b, const T* c, T* output) const {
    const int64_t row_step = transpose_a_ ? 1 : depth_, depth_step = transpose_a_ ? rows_ : 1;
    const int64_t blocks = (rows_ + kBlock - 1) / kBlock;
    ParallelRanges(blocks, kBlock * depth_ * columns_, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlock, count = std::min(kBlock, rows_ - first);
        T* to = output + first * columns_;
        std::fill(to, to + count * columns_, T(0));
        for (int64_t k = 0; k < depth_; ++k) {
          const T* from = a + first * row_step + k * depth_step;
          const T* row = b + k * columns_;
          if (count == kBlock) {
            AddRows(from, row_step, row, to);
          } else {
            for (int64_t r = 0; r < count; ++r) {
              for (int64_t i = 0; i < columns_; ++i) to[r * columns_ + i] += from[r * row_step] * row[i];
            }
          }
        }
        for (int64_t r = 0; r < count; ++r) Finish(c, first + r, to + r * columns_);
      }
    });
  }

  void AddRows(const T* from, int64_t row_step, const T* row, T* to) const {
    T* __restrict p = to;
    T* __restrict q = to + columns_;
    T* __restrict r = to + 2 * columns_;
    T* __restrict s = to + 3 * columns_;
    const T w0 = from[0], w1 = from[row_step], w2 = from[2 * row_step], w3 = from[3 * row_step];
    for (int64_t i = 0; i < columns_; ++i) {
      p[i] += w0 * row[i];
      q[i] += w1 * row[i];
      r[i] += w2 * row[i];
      s[i] += w3 * row[i];
    }
  }

  void Finish(const T* c, int64_t row, T* to) const {
    const bool scale = alpha_ != T(1);
    for (int64_t i = 0; i < columns_; ++i) {
      T value = scale ? alpha_ * to[i] : to[i];
      if (c != nullptr) value += beta_ * c[row * c_row_ + i * c_column_];
      if constexpr (std::is_floating_point_v<T>) {
        if (activation_ == Activation::kRelu && value < T(0)) value = T(0);
        if constexpr (std::is_same_v<T, float>) {
          if (activation_ == Activation::kGelu) value = 0.5f * value * (1.0f + std::erf(value * 0.70710678f));
        }
      }
      to[i] = value;
    }
  }

  const int64_t rows_, columns_, depth_;
  const StridedLoop<3> batches_;  // a, b, c
  const bool transpose_a_;
  const bool transpose_b_;  // at every launch, into the workspace
  const bool has_c_;
  const int64_t c_row_, c_column_;
  const T alpha_, beta_;
  const Activation activation_;
  const HostConstant constant_b_;
  const HostConstant constant_c_;
};

/// Strides of the batch dimensions of an operand whose matrices have `matrix` elements.
Dims BatchStrides(const Dims& own, const Dims& batch, int64_t matrix) {
  Dims strides = BroadcastStrides(own, batch);
  for (int64_t& stride : strides) stride *= matrix;
  return strides;
}

template <class T>
absl::StatusOr<std::unique_ptr<Kernel>> MatMulKernel(const MatMulDescription& d, const MatMulGeometry& geometry) {
  const int64_t b_matrix = geometry.depth * geometry.columns;
  Dims c_batch(geometry.batch.size(), 1);
  int64_t c_matrix = 0;
  if (d.c.has_value()) {
    c_batch.assign(geometry.c.begin(), geometry.c.end() - 2);
    c_matrix = geometry.c.back() * geometry.c[geometry.c.size() - 2];
  }
  const StridedWalk walk = {.dims = geometry.batch,
                            .strides = {BatchStrides(geometry.a_batch, geometry.batch, geometry.rows * geometry.depth),
                                        BatchStrides(geometry.b_batch, geometry.batch, b_matrix),
                                        BatchStrides(c_batch, geometry.batch, c_matrix)}};
  SLUICE_ASSIGN_OR_RETURN(const StridedLoop<3> batches, StridedLoop<3>::Make(MergeDims(walk)));
  HostConstant b, c;
  size_t workspace_bytes = 0;
  if (d.b_constant.has_value() && d.transpose_b) {
    const auto pack = [&](std::span<std::byte> to) {
      // Not a span of floats: bytes of a file need not be aligned.
      const std::byte* from = d.b_constant->data.data();
      auto* packed = reinterpret_cast<float*>(to.data());
      const int64_t matrices = b_matrix == 0 ? 0 : static_cast<int64_t>(to.size() / sizeof(float)) / b_matrix;
      for (int64_t i = 0; i < matrices; ++i) {
        std::vector<float> matrix(b_matrix);
        std::memcpy(matrix.data(), from + i * b_matrix * sizeof(float), b_matrix * sizeof(float));
        TransposeMatrix(matrix.data(), geometry.columns, geometry.depth, packed + i * b_matrix);
      }
      return absl::OkStatus();
    };
    SLUICE_ASSIGN_OR_RETURN(b, HostConstant::Make(d.packed_weights, d.b_constant->name, "matrices transposed",
                                                  d.b_constant->data.size(), pack));
  } else if (d.b_constant.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(b, HostConstant::MakePlain(d.packed_weights, *d.b_constant));
  } else if (d.transpose_b) {
    workspace_bytes = static_cast<size_t>(b_matrix) * sizeof(T);
  }
  if (d.c_constant.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(c, HostConstant::MakePlain(d.packed_weights, *d.c_constant));
  }
  return std::make_unique<PlainProduct<T>>(absl::StrCat("matmul ", DimsToString(d.a), " by ", DimsToString(d.b)),
                                           workspace_bytes, geometry, batches, d, std::move(b), std::move(c));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> PlainMatMul(const MatMulDescription& description) {
  SLUICE_ASSIGN_OR_RETURN(const MatMulGeometry geometry, MakeMatMulGeometry(description));
  if (description.type == DataType::kFp32) return MatMulKernel<float>(description, geometry);
  if (description.alpha != 1.0f || description.beta != 1.0f || description.activation != Activation::kNone) {
    return absl::UnimplementedError(absl::StrCat("the host backend multiplies ", WireName(description.type),
                                                 " matrices with alpha and beta 1 and no activation only"));
  }
  return DispatchType(TypeList<double, int32_t, int64_t>{}, description.type, "matrix product",
                      [&](auto tag) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                        using T = decltype(tag);
                        if constexpr (std::is_integral_v<T>) {
                          return MatMulKernel<std::make_unsigned_t<T>>(description, geometry);
                        } else {
                          return MatMulKernel<T>(description, geometry);
                        }
                      });
}

}  // namespace sluice::gpu::host
