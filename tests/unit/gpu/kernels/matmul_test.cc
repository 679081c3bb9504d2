// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/matmul.h"

#include <cmath>
#include <optional>

#include "tests/unit/gpu/kernels/kernel_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::HasSubstr;

struct Case {
  MatMulDescription description;
  std::vector<float> a, b, c;
};

/// Straight from the formula, in double.
std::vector<double> Reference(const Case& test, const Dims& output) {
  const MatMulDescription& d = test.description;
  const size_t rank = output.size();
  const int64_t rows = output[rank - 2], columns = output[rank - 1];
  const int64_t depth = d.transpose_a ? d.a[d.a.size() - 2] : d.a.back();
  // Offset of the batch in an operand whose own batch dimensions broadcast.
  const auto batch_offset = [&](const Dims& dims, int64_t batch) {
    int64_t offset = 0, stride = dims[dims.size() - 1] * dims[dims.size() - 2];
    for (size_t i = rank - 2; i-- > 0; batch /= output[i]) {
      const int64_t own = static_cast<int64_t>(dims.size()) - static_cast<int64_t>(rank - i);
      if (own < 0) continue;
      offset += dims[own] == 1 ? 0 : batch % output[i] * stride;
      stride *= dims[own];
    }
    return offset;
  };
  std::vector<double> result;
  for (int64_t batch = 0; batch < CountOf(output) / (rows * columns); ++batch) {
    const float* a = test.a.data() + batch_offset(d.a, batch);
    const float* b = test.b.data() + batch_offset(d.b, batch);
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < columns; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          sum += static_cast<double>(d.transpose_a ? a[k * rows + m] : a[m * depth + k]) *
                 (d.transpose_b ? b[n * depth + k] : b[k * columns + n]);
        }
        sum *= d.alpha;
        if (d.c.has_value()) {
          Dims c_dims = *d.c;
          while (c_dims.size() < 2) c_dims.insert(c_dims.begin(), 1);
          const int64_t c_row = c_dims[c_dims.size() - 2] == 1 ? 0 : m * c_dims.back();
          sum +=
              static_cast<double>(d.beta) * test.c[batch_offset(c_dims, batch) + c_row + (c_dims.back() == 1 ? 0 : n)];
        }
        if (d.activation == Activation::kGelu) sum *= 0.5 * (1 + std::erf(sum / std::sqrt(2.0)));
        result.push_back(d.activation == Activation::kRelu && sum < 0 ? 0.0 : sum);
      }
    }
  }
  return result;
}

/// Runs the description with every mix of constant and launched operands, by every library, against the formula.
void ExpectMatchesReference(const MatMulDescription& description, std::mt19937& random) {
  Libraries libraries;
  Case test{
      description, RandomFloats(random, CountOf(description.a)), RandomFloats(random, CountOf(description.b)), {}};
  if (description.c.has_value()) test.c = RandomFloats(random, CountOf(*description.c));
  ASSERT_OK_AND_ASSIGN(const Dims output, MatMulOutputDims(description));
  const std::vector<double> expected = Reference(test, output);
  for (const auto& [name, library] : libraries.all()) {
    if (description.activation == Activation::kGelu && library->backend() == Backend::kCuda) continue;
    for (const bool constant_b : {false, true}) {
      for (const bool constant_c : {false, true}) {
        if (constant_c && !description.c.has_value()) continue;
        MatMulDescription d = description;
        std::vector<GuardedBuffer> inputs = Inputs(test.a);
        if (constant_b) {
          d.b_constant = ConstantOf("b", d.b, test.b);
        } else {
          inputs.push_back(GuardedBuffer::Of(test.b));
        }
        if (constant_c) {
          d.c_constant = ConstantOf("c", *d.c, test.c);
        } else if (d.c.has_value()) {
          inputs.push_back(GuardedBuffer::Of(test.c));
        }
        ExpectNear(RunKernel<float>(library->PrepareMatMul(d), inputs, expected.size()), expected, 2e-5,
                   name + " " + DimsToString(d.a) + (d.transpose_a ? "'" : "") + " by " + DimsToString(d.b) +
                       (d.transpose_b ? "'" : "") + (constant_b ? " constant" : "") +
                       (d.c.has_value() ? " plus " + DimsToString(*d.c) : "") + (constant_c ? " constant" : ""));
      }
    }
  }
}

// Goal: MatMul and Gemm as models use them, and every way C broadcasts. Method: against the formula.
TEST(MatMul, MatchesFormulaOnChosenShapes) {
  std::mt19937 random(1);
  const auto check = [&](const MatMulDescription& d) { ExpectMatchesReference(d, random); };
  check({.a = {2, 33, 17}, .b = {17, 24}});                                  // Magika's: batches over one matrix
  check({.a = {3, 70}, .b = {21, 70}, .transpose_b = true, .c = Dims{21}});  // ResNet's last layer
  check({.a = {5, 6}, .b = {6, 7}, .alpha = 0.5f, .beta = -2.0f, .c = Dims{7}, .activation = Activation::kRelu});
  check({.a = {6, 5}, .b = {7, 6}, .transpose_a = true, .transpose_b = true, .alpha = 1.5f, .c = Dims{5, 7}});
  check({.a = {4, 6}, .b = {6, 8}, .c = Dims{4, 1}});
  check({.a = {4, 6}, .b = {6, 8}, .c = Dims{}});
  check({.a = {2, 1, 3, 4}, .b = {5, 4, 6}});
  check({.a = {3, 4}, .b = {2, 3, 4, 5}, .c = Dims{3, 1, 5}});
  check({.a = {2, 4, 3}, .b = {2, 4, 5}, .transpose_a = true, .c = Dims{2, 3, 5}});
  check({.a = {2, 3, 4}, .b = {2, 5, 4}, .transpose_b = true});
  check({.a = {1, 9}, .b = {9, 1}});
}

// Goal: products of few rows, which backends may do by a path of their own. Method: one to four rows and five, counted
// directly or as batches over one matrix; depths on and off multiples of 4, long and short; every place of C.
TEST(MatMul, MatchesFormulaOnFewRows) {
  std::mt19937 random(11);
  const auto check = [&](const MatMulDescription& d) { ExpectMatchesReference(d, random); };
  for (int64_t rows = 1; rows <= 5; ++rows) {
    check({.a = {rows, 64}, .b = {64, 40}, .c = Dims{40}, .activation = Activation::kRelu});
    check({.a = {rows, 37}, .b = {29, 37}, .transpose_b = true, .alpha = 0.5f, .beta = 2.0f, .c = Dims{rows, 1}});
    check({.a = {rows, 1030}, .b = {1030, 5}, .c = Dims{1, 5}});
    check({.a = {rows, 2048}, .b = {3, 2048}, .transpose_b = true, .c = Dims{rows, 3}});
    check({.a = {48, rows}, .b = {48, 20}, .transpose_a = true, .c = Dims{20}});
    check({.a = {rows, 1, 24}, .b = {24, 7}, .beta = -1.5f, .c = Dims{rows, 1, 7}});
    check({.a = {rows, 8, 1}, .b = {8, 6}, .transpose_a = true});
    check({.a = {rows, 1}, .b = {1, 9}, .c = Dims{}});
    check({.a = {2, rows, 12}, .b = {12, 1}, .c = Dims{1}});
  }
  check({.a = {1, 1024}, .b = {1024, 300}, .c = Dims{300}, .activation = Activation::kRelu});
}

// Goal: every way in which batches broadcast and C lies across them. Method: against the formula.
TEST(MatMul, MatchesFormulaOnBatches) {
  std::mt19937 random(12);
  const auto check = [&](const MatMulDescription& d) { ExpectMatchesReference(d, random); };
  check({.a = {1, 4, 5}, .b = {7, 5, 6}});  // one A
  check({.a = {5, 1, 2, 3},
         .b = {1, 1, 4, 2},
         .transpose_a = true,
         .transpose_b = true,
         .c = Dims{3, 1},
         .activation = Activation::kRelu});
  check({.a = {2, 3, 4, 5}, .b = {2, 1, 5, 6}});  // two strides that do not merge
  check({.a = {2, 1, 4, 5}, .b = {1, 3, 5, 6}, .c = Dims{6}});
  check({.a = {18, 1, 2, 3}, .b = {1, 2, 3, 4}, .activation = Activation::kRelu});
  check({.a = {2, 1, 2, 1, 3, 4}, .b = {1, 3, 2, 2, 4, 5}, .c = Dims{3, 1, 1, 3, 5}});
  for (const Dims& c : {Dims{5, 7}, Dims{3, 5, 7}, Dims{2, 1, 5, 7}, Dims{2, 3, 1, 7}, Dims{2, 3, 5, 7}, Dims{3, 5, 1},
                        Dims{1, 1, 1, 7}, Dims{2, 1, 1, 1}}) {
    check({.a = {2, 3, 5, 6}, .b = {2, 3, 6, 7}, .beta = 0.5f, .c = c, .activation = Activation::kRelu});
    check({.a = {2, 3, 5, 6}, .b = {6, 7}, .c = c});
  }
}

// Goal: sizes at which backends choose other algorithms. Method: against the formula.
TEST(MatMul, MatchesFormulaOnLargerShapes) {
  std::mt19937 random(13);
  const auto check = [&](const MatMulDescription& d) { ExpectMatchesReference(d, random); };
  check({.a = {130, 257}, .b = {257, 129}, .c = Dims{129}, .activation = Activation::kRelu});
  check({.a = {256, 512}, .b = {192, 512}, .transpose_b = true, .alpha = 0.25f, .beta = 3.0f, .c = Dims{1, 192}});
  check({.a = {300, 64}, .b = {300, 200}, .transpose_a = true, .c = Dims{64, 200}, .activation = Activation::kRelu});
  check({.a = {16, 64, 64}, .b = {16, 64, 64}, .transpose_b = true, .alpha = 0.125f});
}

// Goal: few rows of deep products, whose depth a backend may share among several. Method: every transpose and place of
// C, depths that divide and one that does not, against the formula.
TEST(MatMul, MatchesFormulaOnDeepShapes) {
  std::mt19937 random(14);
  const auto check = [&](const MatMulDescription& d) { ExpectMatchesReference(d, random); };
  check({.a = {24, 2048}, .b = {2048, 48}, .c = Dims{48}, .activation = Activation::kRelu});
  check({.a = {24, 2048}, .b = {40, 2048}, .transpose_b = true, .alpha = 0.5f, .beta = 2.0f, .c = Dims{24, 40}});
  check({.a = {1024, 12}, .b = {1024, 36}, .transpose_a = true, .c = Dims{12, 1}, .activation = Activation::kRelu});
  check({.a = {1024, 20}, .b = {28, 1024}, .transpose_a = true, .transpose_b = true});
  check({.a = {10, 1026}, .b = {1026, 30}, .c = Dims{30}});
  check({.a = {2, 8, 1024}, .b = {1024, 64}, .c = Dims{2, 8, 64}});
}

// Goal: Gelu behind a product, as transformers have it. Method: against the formula, with rows enough and too few for
// every path, and with C where it is no row.
TEST(MatMul, MatchesFormulaWithGelu) {
  std::mt19937 random(15);
  const auto check = [&](MatMulDescription d) {
    d.activation = Activation::kGelu;
    ExpectMatchesReference(d, random);
  };
  check({.a = {2, 9, 40}, .b = {40, 24}, .c = Dims{24}});
  check({.a = {2, 33}, .b = {20, 33}, .transpose_b = true, .c = Dims{20}});
  check({.a = {16, 32}, .b = {32, 48}, .beta = 0.5f, .c = Dims{48}});
  check({.a = {16, 32}, .b = {32, 48}, .alpha = 0.5f, .c = Dims{16, 1}});
  check({.a = {3, 5, 7}, .b = {3, 7, 4}});
}

// Goal: any shape. Method: seeded random batches, transposes, alpha, beta and C.
TEST(MatMul, MatchesFormulaOnRandomShapes) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int64_t rows = RandomInt(random, 1, 20), columns = RandomInt(random, 1, 20), depth = RandomInt(random, 1, 20);
    MatMulDescription d{.transpose_a = random() % 2 == 0, .transpose_b = random() % 2 == 0};
    for (int64_t i = RandomInt(random, 0, 2); i > 0; --i) {
      const int64_t size = RandomInt(random, 1, 3);
      d.a.push_back(random() % 3 == 0 ? 1 : size);
      d.b.push_back(random() % 3 == 0 ? 1 : size);
    }
    d.a.insert(d.a.end(), {d.transpose_a ? depth : rows, d.transpose_a ? rows : depth});
    d.b.insert(d.b.end(), {d.transpose_b ? columns : depth, d.transpose_b ? depth : columns});
    if (random() % 2 == 0) d.alpha = 0.75f;
    if (random() % 2 == 0) d.beta = 1.25f;
    if (random() % 2 == 0) d.c = Dims{random() % 2 == 0 ? 1 : rows, random() % 2 == 0 ? 1 : columns};
    if (random() % 2 == 0) d.activation = Activation::kRelu;
    ExpectMatchesReference(d, random);
  }
}

// Goal: integers and doubles too, wrapping rather than undefined. Method: small products worked by hand.
TEST(MatMul, MultipliesOtherTypes) {
  Libraries libraries;
  const MatMulDescription d{.type = DataType::kInt64, .a = {2, 2}, .b = {2, 1}};
  EXPECT_EQ(
      RunKernel<int64_t>(libraries.fast().PrepareMatMul(d),
                         Inputs(std::vector<int64_t>{1, -2, INT64_MAX, INT64_MAX}, std::vector<int64_t>{3, 4}), 2),
      (std::vector<int64_t>{-5, INT64_MAX - 6}));
  const MatMulDescription e{.type = DataType::kFp64, .a = {1, 2}, .b = {1, 2}, .transpose_b = true};
  EXPECT_EQ(RunKernel<double>(libraries.fast().PrepareMatMul(e),
                              Inputs(std::vector<double>{0.5, 2}, std::vector<double>{3, 0.25}), 1),
            (std::vector<double>{2.0}));
  const MatMulDescription f{.type = DataType::kInt8, .a = {1, 2}, .b = {2, 1}};
  EXPECT_THAT(libraries.fast().PrepareMatMul(f), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("INT8")));
}

// Goal: other types take transposes, batches and C as well, and wrap. Method: 32-bit products against 64-bit sums.
TEST(MatMul, MultipliesOtherTypesInBatches) {
  Libraries libraries;
  std::mt19937 random(14);
  std::vector<int32_t> a(2 * 18 * 5), b(5 * 19), c(19);
  for (std::vector<int32_t>* values : {&a, &b, &c}) {
    for (int32_t& value : *values) value = static_cast<int32_t>(random());
  }
  for (const bool transposed : {false, true}) {
    std::vector<int32_t> expected;
    for (int64_t batch = 0; batch < 2; ++batch) {
      for (int64_t m = 0; m < 18; ++m) {
        for (int64_t n = 0; n < 19; ++n) {
          uint64_t sum = static_cast<uint64_t>(c[n]);
          for (int64_t k = 0; k < 5; ++k) {
            const int64_t x = a[batch * 90 + (transposed ? k * 18 + m : m * 5 + k)];
            sum += static_cast<uint64_t>(x) * static_cast<uint64_t>(b[transposed ? n * 5 + k : k * 19 + n]);
          }
          expected.push_back(static_cast<int32_t>(static_cast<uint32_t>(sum)));
        }
      }
    }
    const MatMulDescription d{.type = DataType::kInt32,
                              .a = transposed ? Dims{2, 5, 18} : Dims{2, 18, 5},
                              .b = transposed ? Dims{19, 5} : Dims{5, 19},
                              .transpose_a = transposed,
                              .transpose_b = transposed,
                              .c = Dims{19}};
    for (const auto& [name, library] : libraries.all()) {
      EXPECT_EQ(RunKernel<int32_t>(library->PrepareMatMul(d), Inputs(a, b, c), expected.size()), expected) << name;
    }
  }
}

// Goal: an empty batch is no error and touches nothing. Method: zero batches.
TEST(MatMul, AcceptsEmptyBatches) {
  Libraries libraries;
  for (const auto& [name, library] : libraries.all()) {
    EXPECT_TRUE(RunKernel<float>(library->PrepareMatMul({.a = {0, 2, 3}, .b = {3, 4}}),
                                 Inputs(std::vector<float>{}, std::vector<float>(12)), 0)
                    .empty())
        << name;
  }
}

// Goal: a constant matrix exists once for all buckets. Method: two row counts over one counting pool.
TEST(MatMul, SharesPackedWeightsBetweenBuckets) {
  std::mt19937 random(7);
  const std::vector<float> weights = RandomFloats(random, 64 * 48), bias = RandomFloats(random, 48);
  Libraries libraries;
  for (const auto& [name, library] : libraries.all()) {
    TestPackedWeights pool;
    MatMulDescription d{.a = {4, 64},
                        .b = {48, 64},
                        .transpose_b = true,
                        .b_constant = ConstantOf("w", {48, 64}, weights),
                        .c = Dims{48},
                        .c_constant = ConstantOf("c", {48}, bias),
                        .packed_weights = &pool};
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Kernel> small, library->PrepareMatMul(d));
    EXPECT_EQ(pool.packed(), 2) << name;
    d.a = {8, 64};
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Kernel> large, library->PrepareMatMul(d));
    EXPECT_EQ(pool.packed(), 2) << name;
  }
}

// Goal: buckets share constants also where small ones take another path than large ones, and where the file's layout or
// beta asks for packing; oneDNN has one form more, for four rows and up. Method: one to sixteen rows over one counting
// pool, results checked.
TEST(MatMul, SharesPackedWeightsBetweenSmallAndLargeBuckets) {
  std::mt19937 random(15);
  Libraries libraries;
  for (const auto& [name, library] : libraries.all()) {
    TestPackedWeights pool;
    Case test{{.a = {1, 64}, .b = {64, 48}, .beta = 0.5f, .c = Dims{48}},
              {},
              RandomFloats(random, 64 * 48),
              RandomFloats(random, 48)};
    int first = 0;
    for (const int64_t rows : {1, 4, 16}) {
      test.description.a = {rows, 64};
      test.a = RandomFloats(random, rows * 64);
      MatMulDescription d = test.description;
      d.b_constant = ConstantOf("w", {64, 48}, test.b);
      d.c_constant = ConstantOf("c", {48}, test.c);
      d.packed_weights = &pool;
      ExpectNear(RunKernel<float>(library->PrepareMatMul(d), Inputs(test.a), rows * 48), Reference(test, {rows, 48}),
                 2e-5, name);
      if (rows == 1) first = pool.packed();
    }
    EXPECT_EQ(first, 2) << name;
    EXPECT_EQ(pool.packed(), first + (name == "oneDNN" ? 1 : 0)) << name << ": larger buckets must not pack again";
  }
}

// Goal: one square constant used straight and transposed is not mixed up in the pool. Method: both over one pool.
TEST(MatMul, KeepsTransposesApartInThePool) {
  std::mt19937 random(8);
  Libraries libraries;
  for (const auto& [name, library] : libraries.all()) {
    TestPackedWeights pool;
    Case test{{.a = {3, 40}, .b = {40, 40}}, RandomFloats(random, 120), RandomFloats(random, 1600), {}};
    for (const bool transpose : {false, true}) {
      test.description.transpose_b = transpose;
      const std::vector<double> expected = Reference(test, {3, 40});
      MatMulDescription d = test.description;
      d.b_constant = ConstantOf("w", {40, 40}, test.b);
      d.packed_weights = &pool;
      ExpectNear(RunKernel<float>(library->PrepareMatMul(d), Inputs(test.a), 120), expected, 2e-5, name);
    }
  }
}

// Goal: descriptions that do not fit are refused by name. Method: one thing wrong at a time.
TEST(MatMul, RefusesInconsistentDescriptions) {
  Libraries libraries;
  const std::vector<float> twelve(12);
  const auto expect = [&](const char* message, const MatMulDescription& d) {
    for (const auto& [name, library] : libraries.all()) {
      EXPECT_THAT(library->PrepareMatMul(d), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message))) << name;
    }
  };
  expect("at least two dimensions", {.a = {3}, .b = {3, 4}});
  expect("do not fit", {.a = {2, 3}, .b = {4, 3}});
  expect("do not fit", {.a = {2, 0}, .b = {0, 3}});
  expect("do not broadcast", {.a = {2, 2, 3}, .b = {3, 3, 4}});
  expect("must broadcast to [2,4]", {.a = {2, 3}, .b = {3, 4}, .c = Dims{3}});
  expect("must broadcast to [2,4]", {.a = {2, 3}, .b = {3, 4}, .c = Dims{2, 2, 4}});
  expect("must be FP32 [3,4]", {.a = {2, 3}, .b = {3, 4}, .b_constant = ConstantOf("b", {4, 3}, twelve)});
  expect("bytes", {.a = {2, 3}, .b = {3, 4}, .b_constant = ConstantOf("b", {3, 5}, twelve)});
  expect("dimensions are missing", {.a = {2, 3}, .b = {3, 4}, .c_constant = ConstantOf("c", {3, 4}, twelve)});
}

}  // namespace
}  // namespace sluice::gpu
