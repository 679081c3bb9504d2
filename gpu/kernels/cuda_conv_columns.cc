// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/cuda_conv_columns.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_kernel.h"

namespace sluice::gpu::cuda {
namespace {

// Two pieces of a slot's workspace; above, cuDNN has blocks enough and moves fewer bytes.
constexpr size_t kMaxColumnsBytes = size_t{16} << 20;
// A result of so many elements is some 250 tiles of 64 x 64: every multiprocessor has work without parts.
constexpr int64_t kManyElements = int64_t{1} << 20;
constexpr int64_t kMostParts = 16;
constexpr int64_t kLeastPartDepth = 64;

int64_t Area(const int64_t (&dims)[3]) { return dims[0] * dims[1] * dims[2]; }

int64_t Depth(const ConvShape& shape) { return shape.channels * Area(shape.kernel); }

/// `parts` divides the depth; more than one only when not pointwise.
MatMulOperands Product(const ConvShape& shape, bool pointwise, bool residual, int64_t parts) {
  const int64_t area = Area(shape.output);
  MatMulOperands product;
  MatMulShape& to = product.shape;
  to.rows = shape.filters;
  to.depth = Depth(shape) / parts;
  to.columns = pointwise ? area : area * shape.batch;
  to.a_row = to.depth;
  to.a_depth = 1;
  to.b_depth = to.columns;
  to.b_column = 1;
  if (!pointwise) {
    if (parts == 1) return product;
    to.a_row = product.a_lead = Depth(shape);
    to.batch_rank = 1;
    to.batches = to.batch[0] = parts;
    to.a_batch[0] = to.depth;
    to.b_batch[0] = to.depth * to.columns;
    return product;
  }
  if (residual) {
    to.has_c = true;
    to.c_row = to.columns;
    to.c_column = 1;
    product.c_form = CForm::kMatrix;
  }
  if (shape.batch == 1) return product;
  to.batch_rank = 1;
  to.batches = to.batch[0] = shape.batch;
  to.b_batch[0] = to.depth * to.columns;
  to.c_batch[0] = to.rows * to.columns;
  return product;
}

}  // namespace

bool ColumnsWay::IsPointwise(const ConvShape& shape) {
  for (int i = 0; i < 3; ++i) {
    if (shape.kernel[i] != 1 || shape.strides[i] != 1 || shape.padded[i] != shape.input[i]) return false;
  }
  return true;
}

ColumnsWay::ColumnsWay(const ConvShape& shape, const LtProduct& product, int64_t parts)
    : shape_(shape), product_(product), parts_(parts), pointwise_(parts == 1 && IsPointwise(shape)) {
  if (pointwise_) return;
  const int64_t columns = shape.batch * Area(shape.output);
  columns_bytes_ = AlignWorkspace(static_cast<size_t>(Depth(shape) * columns) * sizeof(float));
  result_bytes_ = AlignWorkspace(static_cast<size_t>(parts * shape.filters * columns) * sizeof(float));
}

absl::StatusOr<std::vector<ColumnsWay>> ColumnsWay::Ways(cublasLtHandle_t handle, const ConvShape& shape, bool residual,
                                                         bool tf32, int most) {
  std::vector<ColumnsWay> ways;
  // All in int64_t: geometry.h bounds the tensors, and the depth is bounded by the weights.
  const int64_t column_count = shape.batch * Area(shape.output);
  const auto most_elements = static_cast<int64_t>(kMaxColumnsBytes / sizeof(float));
  if (shape.groups != 1 || column_count == 0 || Depth(shape) > most_elements / column_count ||
      shape.filters > most_elements / column_count) {
    return ways;
  }
  for (int64_t parts = 1; parts <= kMostParts; parts *= 2) {
    const int64_t elements = parts * shape.filters * column_count;
    const bool divides = Depth(shape) % parts == 0 && Depth(shape) / parts >= kLeastPartDepth;
    if (parts > 1 && (!divides || elements > kManyElements)) break;
    const bool pointwise = parts == 1 && IsPointwise(shape);
    MatMulOperands operands = Product(shape, pointwise, residual, parts);
    operands.tf32 = tf32;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<LtProduct> products, LtProduct::Candidates(handle, operands, most));
    for (const LtProduct& product : products) {
      if (!product.leaves_c()) ways.push_back(ColumnsWay(shape, product, parts));
    }
  }
  return ways;
}

absl::StatusOr<std::string> ColumnsWay::LongName() const {
  SLUICE_ASSIGN_OR_RETURN(const std::string product, product_.Name());
  return absl::StrCat("columns in ", parts_, ": ", product);
}

absl::Status ColumnsWay::Load(int ordinal) {
  SLUICE_RETURN_IF_ERROR(LoadAddBias(ordinal));
  return LoadColumns(ordinal);
}

absl::Status ColumnsWay::Submit(cudaStream_t stream, const ConvOperands& operands) const {
  auto* workspace = static_cast<std::byte*>(operands.workspace);
  std::byte* const library = workspace + columns_bytes_ + result_bytes_;
  const DeviceSpan scratch = {library, product_.workspace_bytes()};
  if (pointwise_) {
    SLUICE_RETURN_IF_ERROR(product_.Submit(stream, operands.weights, operands.input, operands.residual, nullptr,
                                           operands.output, scratch));
    if (operands.bias == nullptr && !shape_.relu) return absl::OkStatus();
    return SubmitAddBias(stream, shape_, static_cast<const float*>(operands.bias),
                         static_cast<float*>(operands.output));
  }
  auto* columns = reinterpret_cast<float*>(workspace);
  auto* result = reinterpret_cast<float*>(workspace + columns_bytes_);
  SLUICE_RETURN_IF_ERROR(SubmitUnfold(stream, shape_, static_cast<const float*>(operands.input), columns));
  SLUICE_RETURN_IF_ERROR(product_.Submit(stream, operands.weights, columns, nullptr, nullptr, result, scratch));
  return SubmitFold(stream, shape_, parts_, result, static_cast<const float*>(operands.bias),
                    static_cast<const float*>(operands.residual), static_cast<float*>(operands.output));
}

}  // namespace sluice::gpu::cuda
