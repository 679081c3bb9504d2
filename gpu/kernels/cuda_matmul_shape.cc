// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/cuda_matmul_shape.h"

#include "absl/strings/str_cat.h"

namespace sluice::gpu::cuda {
namespace {

int64_t Product(const Dims& dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

/// Steps of batch dimensions whose matrices have `matrix` elements: 0 where the operand is broadcast.
Dims BatchSteps(const Dims& own, int64_t matrix) {
  Dims steps(own.size(), 0);
  int64_t step = matrix;
  for (size_t i = own.size(); i-- > 0; step *= own[i]) {
    if (own[i] != 1) steps[i] = step;
  }
  return steps;
}

absl::Status AddBatches(const MatMulGeometry& geometry, MatMulShape& shape) {
  const Dims a = BatchSteps(geometry.a_batch, shape.rows * shape.depth);
  const Dims b = BatchSteps(geometry.b_batch, shape.depth * shape.columns);
  Dims c(geometry.batch.size(), 0);
  if (shape.has_c) {
    c = BatchSteps(Dims(geometry.c.begin(), geometry.c.end() - 2),
                   geometry.c.back() * geometry.c[geometry.c.size() - 2]);
  }
  for (size_t i = 0; i < geometry.batch.size(); ++i) {
    const int64_t dim = geometry.batch[i];
    shape.batches *= dim;
    if (dim == 1) continue;
    if (const int last = shape.batch_rank - 1; last >= 0 && shape.a_batch[last] == a[i] * dim &&
                                               shape.b_batch[last] == b[i] * dim && shape.c_batch[last] == c[i] * dim) {
      shape.batch[last] *= dim;
      shape.a_batch[last] = a[i];
      shape.b_batch[last] = b[i];
      shape.c_batch[last] = c[i];
      continue;
    }
    if (shape.batch_rank == kMaxBatchRank) {
      return absl::UnimplementedError(absl::StrCat("matrix product: the CUDA backend broadcasts at most ",
                                                   kMaxBatchRank, " batch dimensions that cannot be merged, these are ",
                                                   DimsToString(geometry.a_batch), " and ",
                                                   DimsToString(geometry.b_batch)));
    }
    shape.batch[shape.batch_rank] = dim;
    shape.a_batch[shape.batch_rank] = a[i];
    shape.b_batch[shape.batch_rank] = b[i];
    shape.c_batch[shape.batch_rank] = c[i];
    ++shape.batch_rank;
  }
  return absl::OkStatus();
}

CForm FormOf(const MatMulGeometry& geometry) {
  if (geometry.c.empty()) return CForm::kNone;
  const int64_t c_columns = geometry.c.back();
  const int64_t c_rows = geometry.c[geometry.c.size() - 2];
  if (c_columns == geometry.columns && Product(geometry.c) == c_columns) return CForm::kRow;
  if (c_columns == geometry.columns && c_rows == geometry.rows) return CForm::kMatrix;
  return CForm::kOther;
}

}  // namespace

absl::StatusOr<MatMulOperands> MakeMatMulOperands(const MatMulDescription& description,
                                                  const MatMulGeometry& geometry) {
  MatMulOperands result;
  result.type = result.out_type = description.type;
  result.tf32 = description.tf32;
  result.residual = description.residual;
  MatMulShape& shape = result.shape;
  shape.rows = geometry.rows;
  shape.columns = geometry.columns;
  shape.depth = geometry.depth;
  shape.alpha = description.alpha;
  shape.beta = description.beta;
  shape.relu = description.activation == Activation::kRelu;
  shape.has_c = !geometry.c.empty();
  result.one_b = Product(geometry.b_batch) == 1;
  result.c_form = FormOf(geometry);
  // A vector is the same bytes either way.
  result.transpose_a = description.transpose_a && shape.rows > 1 && shape.depth > 1;
  result.transpose_b = description.transpose_b;
  shape.a_row = result.transpose_a ? 1 : shape.depth;
  shape.a_depth = result.transpose_a ? shape.rows : 1;
  shape.b_depth = result.transpose_b ? 1 : shape.columns;
  shape.b_column = result.transpose_b ? shape.depth : 1;
  if (shape.has_c) {
    shape.c_row = geometry.c[geometry.c.size() - 2] == 1 ? 0 : geometry.c.back();
    shape.c_column = geometry.c.back() == 1 ? 0 : 1;
  }
  const int64_t batches = Product(geometry.batch);
  const bool full_c = shape.has_c && Product(geometry.c) == batches * shape.rows * shape.columns;
  const bool one_row_c = shape.has_c && Product(geometry.c) == geometry.c.back();
  if (result.one_b && !result.transpose_a && batches > 0 && (!shape.has_c || full_c || one_row_c)) {
    shape.rows *= batches;
    if (full_c && !one_row_c) shape.c_row = shape.columns;
    return result;
  }
  if (absl::Status status = AddBatches(geometry, shape); !status.ok()) return status;
  return result;
}

}  // namespace sluice::gpu::cuda
