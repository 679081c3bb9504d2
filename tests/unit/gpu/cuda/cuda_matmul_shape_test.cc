// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/cuda_matmul_shape.h"

#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu::cuda {
namespace {

/// The product that the steps describe, one element at a time.
std::vector<double> Follow(const MatMulShape& s, const std::vector<float>& a, const std::vector<float>& b,
                           const std::vector<float>& c) {
  std::vector<double> result;
  for (int64_t batch = 0; batch < s.batches; ++batch) {
    int64_t rest = batch, a_offset = 0, b_offset = 0, c_offset = 0;
    for (int d = s.batch_rank - 1; d >= 0; rest /= s.batch[d--]) {
      a_offset += rest % s.batch[d] * s.a_batch[d];
      b_offset += rest % s.batch[d] * s.b_batch[d];
      c_offset += rest % s.batch[d] * s.c_batch[d];
    }
    for (int64_t m = 0; m < s.rows; ++m) {
      for (int64_t n = 0; n < s.columns; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < s.depth; ++k) {
          sum += static_cast<double>(a.at(a_offset + m * s.a_row + k * s.a_depth)) *
                 b.at(b_offset + k * s.b_depth + n * s.b_column);
        }
        sum *= s.alpha;
        if (s.has_c) sum += static_cast<double>(s.beta) * c.at(c_offset + m * s.c_row + n * s.c_column);
        result.push_back(s.relu && sum < 0 ? 0.0 : sum);
      }
    }
  }
  return result;
}

// Goal: the steps that device code follows are those of the product. Method: seeded random batches, transposes and C,
// followed on the host, against the host's kernels.
TEST(CudaMatMulShape, StepsGiveTheProduct) {
  Libraries libraries;
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto one_or = [&](int64_t size) { return random() % 3 == 0 ? int64_t{1} : size; };
    const int64_t rows = RandomInt(random, 1, 4), columns = RandomInt(random, 1, 4), depth = RandomInt(random, 1, 4);
    MatMulDescription d{.transpose_a = random() % 2 == 0, .transpose_b = random() % 2 == 0};
    Dims c;
    const bool one_b = random() % 3 == 0;
    for (int64_t i = RandomInt(random, 0, 3); i > 0; --i) {
      const int64_t size = RandomInt(random, 1, 3);
      d.a.push_back(one_b ? size : one_or(size));
      d.b.push_back(one_b ? 1 : one_or(size));
      c.push_back(one_or(std::max(d.a.back(), d.b.back())));
    }
    d.a.insert(d.a.end(), {d.transpose_a ? depth : rows, d.transpose_a ? rows : depth});
    d.b.insert(d.b.end(), {d.transpose_b ? columns : depth, d.transpose_b ? depth : columns});
    c.insert(c.end(), {one_or(rows), one_or(columns)});
    if (random() % 3 != 0) d.c = c;
    d.alpha = 0.5f;
    if (random() % 2 == 0) d.activation = Activation::kRelu;
    const std::vector<float> a = RandomFloats(random, CountOf(d.a)), b = RandomFloats(random, CountOf(d.b)),
                             c_values = RandomFloats(random, CountOf(c));
    ASSERT_OK_AND_ASSIGN(const MatMulGeometry geometry, MakeMatMulGeometry(d));
    ASSERT_OK_AND_ASSIGN(const MatMulOperands operands, MakeMatMulOperands(d, geometry));
    const std::vector<double> followed = Follow(operands.shape, a, b, c_values);
    std::vector<GuardedBuffer> inputs = Inputs(a, b);
    if (d.c.has_value()) inputs.push_back(GuardedBuffer::Of(c_values));
    ExpectNear(RunKernel<float>(libraries.all().front().second->PrepareMatMul(d), std::move(inputs), followed.size()), followed, 1e-5,
               DimsToString(d.a) + " by " + DimsToString(d.b) + " plus " + DimsToString(c));
  }
}

// Goal: the usual layers are one plain product with a bias. Method: the forms of a linear layer.
TEST(CudaMatMulShape, CountsBatchesAsRows) {
  const auto operands = [](const MatMulDescription& d) { return *MakeMatMulOperands(d, *MakeMatMulGeometry(d)); };
  const MatMulOperands linear = operands({.a = {2, 3, 16}, .b = {16, 8}, .c = Dims{8}});
  EXPECT_EQ(linear.shape.rows, 6);
  EXPECT_EQ(linear.shape.batch_rank, 0);
  EXPECT_EQ(linear.c_form, CForm::kRow);
  const MatMulOperands residual = operands({.a = {2, 3, 16}, .b = {16, 8}, .c = Dims{2, 3, 8}});
  EXPECT_EQ(residual.shape.rows, 6);
  EXPECT_EQ(residual.c_form, CForm::kMatrix);
  const MatMulOperands heads = operands({.a = {2, 4, 3, 16}, .b = {2, 4, 5, 16}, .transpose_b = true});
  EXPECT_EQ(heads.shape.batch_rank, 1);
  EXPECT_EQ(heads.shape.batch[0], 8);
  const MatMulOperands grouped = operands({.a = {2, 4, 3, 16}, .b = {2, 1, 16, 5}});
  EXPECT_EQ(grouped.shape.batch_rank, 2);
}

// Goal: what cannot be described is refused. Method: seven batch dimensions that alternate.
TEST(CudaMatMulShape, RefusesTooManyBatchDimensions) {
  const MatMulDescription d{.a = {2, 1, 2, 1, 2, 1, 2, 3, 4}, .b = {1, 2, 1, 2, 1, 2, 1, 4, 5}};
  ASSERT_OK_AND_ASSIGN(const MatMulGeometry geometry, MakeMatMulGeometry(d));
  EXPECT_THAT(MakeMatMulOperands(d, geometry), StatusIs(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace sluice::gpu::cuda
