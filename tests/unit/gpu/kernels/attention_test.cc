// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/attention.h"

#include <cmath>
#include <limits>

#include "tests/unit/gpu/kernels/half_harness.h"

namespace sluice::gpu {
namespace {

using ::testing::HasSubstr;

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Largest error, relative to 1 + the value, by type.
double ToleranceOf(DataType type) { return type == DataType::kFp32 ? 1e-5 : 4 * RoundingOf(type); }

/// A problem with every number that the spans hold. A mask of BOOL is given as bytes.
struct Case {
  AttentionDescription description;
  std::vector<float> q, k, v, mask;
  std::vector<uint8_t> bool_mask;
};

/// Q, K and V contiguous, each in a span of its own.
AttentionDescription Dense(int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t head_size) {
  const int64_t row = heads * head_size;
  return {.batch = batch,
          .heads = heads,
          .queries = queries,
          .keys = keys,
          .head_size = head_size,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size))),
          .q_row = row,
          .k_row = row,
          .v_row = row};
}

/// Random numbers for `d`; scores spread over a few units, so that the softmax is neither flat nor a choice of one.
Case Fill(const AttentionDescription& d, std::mt19937& random) {
  Case test;
  test.description = d;
  const int64_t token = d.heads * d.head_size;
  test.q = RandomFloats(random, d.q_offset + (d.batch * d.queries - 1) * d.q_row + token);
  test.k = RandomFloats(random, d.k_offset + (d.batch * d.keys - 1) * d.k_row + token);
  test.v = RandomFloats(random, d.v_offset + (d.batch * d.keys - 1) * d.v_row + token);
  for (float& value : test.q) value *= 4;
  if (d.mask.has_value() && d.mask_type == DataType::kBool) {
    for (int64_t i = 0; i < CountOf(*d.mask); ++i) test.bool_mask.push_back(random() % 3 != 0);
  } else if (d.mask.has_value()) {
    test.mask = RandomFloats(random, CountOf(*d.mask));
    for (float& value : test.mask) value = value < -0.3f ? kNever : value;
  }
  return test;
}

/// What the mask does to one score.
double Masked(const Case& test, double score, const Dims& at) {
  const AttentionDescription& d = test.description;
  if (d.causal && at[3] > at[2]) return kNever;
  if (!d.mask.has_value()) return score;
  size_t offset = 0;
  for (size_t i = 0; i < d.mask->size(); ++i) {
    const int64_t dim = (*d.mask)[i];
    offset = offset * dim + (dim == 1 ? 0 : at[at.size() - d.mask->size() + i]);
  }
  if (d.mask_type == DataType::kBool) return test.bool_mask[offset] != 0 ? score : kNever;
  return score + static_cast<double>(test.mask[offset]);
}

/// Straight from the formula, in double.
std::vector<double> Reference(const Case& test) {
  const AttentionDescription& d = test.description;
  std::vector<double> result(d.batch * d.queries * d.heads * d.head_size, 0.0);
  std::vector<double> scores(d.keys);
  for (int64_t b = 0; b < d.batch; ++b) {
    for (int64_t h = 0; h < d.heads; ++h) {
      for (int64_t i = 0; i < d.queries; ++i) {
        const float* q = test.q.data() + d.q_offset + (b * d.queries + i) * d.q_row + h * d.head_size;
        double largest = kNever;
        for (int64_t j = 0; j < d.keys; ++j) {
          const float* k = test.k.data() + d.k_offset + (b * d.keys + j) * d.k_row + h * d.head_size;
          double sum = 0;
          for (int64_t x = 0; x < d.head_size; ++x) sum += static_cast<double>(q[x]) * static_cast<double>(k[x]);
          scores[j] = Masked(test, static_cast<double>(d.scale) * sum, {b, h, i, j});
          largest = std::max(largest, scores[j]);
        }
        if (largest == static_cast<double>(kNever)) continue;
        double sum = 0;
        for (double& score : scores) sum += score = std::exp(score - largest);
        double* output = result.data() + ((b * d.queries + i) * d.heads + h) * d.head_size;
        for (int64_t j = 0; j < d.keys; ++j) {
          const float* v = test.v.data() + d.v_offset + (b * d.keys + j) * d.v_row + h * d.head_size;
          for (int64_t x = 0; x < d.head_size; ++x) output[x] += scores[j] / sum * static_cast<double>(v[x]);
        }
      }
    }
  }
  return result;
}

std::string Describe(const AttentionDescription& d) {
  return DimsToString({d.batch, d.heads, d.queries, d.keys, d.head_size}) + (d.causal ? " causal" : "") +
         (d.mask.has_value() ? " mask " + DimsToString(*d.mask) : "");
}

std::vector<GuardedBuffer> SpansOf(const Case& test) {
  const DataType type = test.description.type;
  std::vector<GuardedBuffer> inputs;
  for (const auto* values : {&test.q, &test.k, &test.v}) inputs.push_back(BufferOf(type, *values));
  if (!test.bool_mask.empty()) inputs.push_back(GuardedBuffer::Of(test.bool_mask));
  if (!test.mask.empty()) inputs.push_back(BufferOf(type, test.mask));
  return inputs;
}

/// The same problem in another type, with its numbers rounded to it.
Case In(DataType type, Case test) {
  AttentionDescription& d = test.description;
  if (d.mask.has_value() && d.mask_type == d.type) d.mask_type = type;
  d.type = type;
  for (auto* values : {&test.q, &test.k, &test.v, &test.mask}) *values = RoundedTo(type, *values);
  return test;
}

/// Runs the case in every type by every library that has a kernel for it, against the formula; false when none has.
bool ExpectMatchesReference(const Case& fp32) {
  Libraries libraries;
  bool ran = false;
  for (const DataType type : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    const Case test = In(type, fp32);
    std::vector<double> expected;
    for (const auto& [name, library] : libraries.all()) {
      const absl::StatusOr<std::unique_ptr<Kernel>> kernel = library->PrepareAttention(test.description);
      if (absl::IsUnimplemented(kernel.status())) continue;
      ran = true;
      if (expected.empty()) expected = Reference(test);
      ExpectNear(RunKernelOf(type, kernel, SpansOf(test), expected.size()), expected, ToleranceOf(type),
                 name + " " + std::string(WireName(type)) + " " + Describe(test.description));
    }
  }
  return ran;
}

#define SKIP_UNLESS(ran) \
  if (!(ran)) GTEST_SKIP() << "the backend has no such kernel"

// Goal: head sizes and lengths of real networks, and those around a tile's edge. Method: against the formula, few heads
// where the lengths are large.
TEST(Attention, MatchesFormulaAtEveryLength) {
  std::mt19937 random(1);
  bool ran = false;
  for (const int64_t head_size : {8, 16, 32, 64, 80, 128}) {
    for (const int64_t length : {1, 7, 64, 128, 197, 384}) {
      const int64_t heads = length > 64 ? 1 : 3;
      ran |= ExpectMatchesReference(Fill(Dense(length > 128 ? 1 : 2, heads, length, length, head_size), random));
      if (HasFailure()) return;
    }
  }
  SKIP_UNLESS(ran);
}

// Goal: queries and keys of different numbers, and head sizes no kernel is tiled for. Method: against the formula.
TEST(Attention, MatchesFormulaWhenQueriesAreNotKeys) {
  std::mt19937 random(2);
  bool ran = false;
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 197}, {7, 64}, {65, 3}, {130, 129}, {33, 1}}) {
    for (const int64_t head_size : {1, 20, 64}) {
      ran |= ExpectMatchesReference(Fill(Dense(2, 2, queries, keys, head_size), random));
    }
  }
  SKIP_UNLESS(ran);
}

// Goal: every way a mask broadcasts, of numbers and of BOOL, also with whole queries masked. Method: random masks, a
// third of them minus infinity, against the formula.
TEST(Attention, MatchesFormulaUnderMasks) {
  std::mt19937 random(3);
  bool ran = false;
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{5, 5}, {64, 64}, {70, 131}, {3, 1}}) {
    for (const DataType type : {DataType::kFp32, DataType::kBool}) {
      for (const Dims& mask : {Dims{2, 1, 1, keys}, Dims{1, 1, queries, keys}, Dims{queries, keys}, Dims{keys},
                               Dims{2, 3, queries, keys}, Dims{3, 1, keys}, Dims{2, 1, queries, 1}, Dims{}}) {
        AttentionDescription d = Dense(2, 3, queries, keys, 16);
        d.mask = mask;
        d.mask_type = type;
        ran |= ExpectMatchesReference(Fill(d, random));
        if (HasFailure()) return;
      }
    }
  }
  SKIP_UNLESS(ran);
}

// Goal: a query that sees no key gives zeros, and its neighbours are right; a large finite mask, as eager exports write
// it, gives the mean instead. Method: against the formula.
TEST(Attention, GivesZerosWhereNoKeyIsSeen) {
  std::mt19937 random(4);
  bool ran = false;
  for (const int64_t length : {3, 64, 100}) {
    for (const float never : {kNever, std::numeric_limits<float>::lowest()}) {
      AttentionDescription d = Dense(2, 2, length, length, 32);
      d.mask = Dims{2, 1, length, length};
      d.mask_type = DataType::kFp32;
      Case test = Fill(d, random);
      for (size_t i = 0; i < test.mask.size(); ++i) {
        const int64_t query = static_cast<int64_t>(i) / length;
        test.mask[i] = query == 1 || query >= length ? never : 0;
      }
      ran |= ExpectMatchesReference(test);
    }
  }
  SKIP_UNLESS(ran);
}

// Goal: Q, K and V as parts of one memory, with tokens further apart than they are long. Method: one packed buffer
// named three times, against the formula over the same numbers.
TEST(Attention, MatchesFormulaInPackedMemory) {
  std::mt19937 random(5);
  Libraries libraries;
  bool ran = false;
  for (const auto& [length, heads, size] :
       {std::tuple<int64_t, int64_t, int64_t>{7, 3, 8}, {65, 2, 64}, {128, 2, 32}}) {
    for (const int64_t gap : {0, 5}) {
      AttentionDescription d = Dense(2, heads, length, length, size);
      const int64_t token = heads * size;
      d.q_row = d.k_row = d.v_row = 3 * token + gap;
      d.q_offset = gap;
      d.k_offset = token + gap;
      d.v_offset = 2 * token + gap;
      Case test = Fill(d, random);
      test.q = test.k = test.v;  // V's part ends last
      const std::vector<double> expected = Reference(test);
      for (const auto& [name, library] : libraries.all()) {
        const absl::StatusOr<std::unique_ptr<Kernel>> kernel = library->PrepareAttention(d);
        if (absl::IsUnimplemented(kernel.status())) continue;
        ran = true;
        const GuardedBuffer packed = GuardedBuffer::Of(test.v), output(expected.size() * sizeof(float));
        RunOver(kernel, {&packed, &packed, &packed, &output});
        ExpectNear(output.Values<float>(), expected, ToleranceOf(d.type), name + " packed " + Describe(d));
      }
    }
  }
  SKIP_UNLESS(ran);
}

// Goal: query i sees keys 0 to i, also where there are fewer or more keys than queries, and under a mask. Method:
// against the formula.
TEST(Attention, MatchesFormulaWhenCausal) {
  std::mt19937 random(6);
  bool ran = false;
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 1}, {64, 64}, {130, 130}, {40, 17}, {9, 80}}) {
    for (const bool masked : {false, true}) {
      AttentionDescription d = Dense(2, 2, queries, keys, 16);
      d.causal = true;
      if (masked) d.mask = Dims{2, 1, 1, keys};
      if (masked) d.mask_type = DataType::kBool;
      ran |= ExpectMatchesReference(Fill(d, random));
    }
  }
  SKIP_UNLESS(ran);
}

// Goal: scores beyond exp's range. Method: against the formula, with scores of several hundreds, which are exact in
// float since all factors are small multiples of a quarter.
TEST(Attention, SurvivesLargeScores) {
  std::mt19937 random(7);
  AttentionDescription d = Dense(1, 2, 70, 70, 32);
  d.scale = 40;
  Case test = Fill(d, random);
  for (std::vector<float>* values : {&test.q, &test.k}) {
    for (float& value : *values) value = std::round(4 * value) / 4;
  }
  SKIP_UNLESS(ExpectMatchesReference(test));
}

// Goal: descriptions come from files. Method: each field out of its bounds; the message names it.
TEST(Attention, RefusesInconsistentDescriptions) {
  Libraries libraries;
  const AttentionDescription good = Dense(2, 3, 5, 7, 16);
  if (absl::IsUnimplemented(libraries.fast().PrepareAttention(good).status())) GTEST_SKIP();
  EXPECT_OK(libraries.fast().PrepareAttention(good));
  const auto expect_refused = [&](const char* message, auto change) {
    AttentionDescription bad = good;
    change(bad);
    EXPECT_THAT(libraries.fast().PrepareAttention(bad),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  using D = AttentionDescription;
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  expect_refused("batch 0", [](D& d) { d.batch = 0; });
  expect_refused("heads -1", [](D& d) { d.heads = -1; });
  expect_refused("queries 0", [](D& d) { d.queries = 0; });
  expect_refused("keys 0", [](D& d) { d.keys = 0; });
  expect_refused("head_size 0", [](D& d) { d.head_size = 0; });
  expect_refused("scale", [](D& d) { d.scale = std::numeric_limits<float>::quiet_NaN(); });
  expect_refused("too large", [](D& d) { d.batch = kHuge; });
  expect_refused("too large", [](D& d) { d.head_size = kHuge; });
  expect_refused("too large", [](D& d) { d.k_row = kHuge; });
  expect_refused("q_row must be at least heads * head_size = 48, it is 47", [](D& d) { d.q_row = 47; });
  expect_refused("v_offset", [](D& d) { d.v_offset = -1; });
  expect_refused("k_offset", [](D& d) { d.k_offset = kHuge; });
  const auto mask = [](Dims dims, DataType type) {
    return [=](D& d) {
      d.mask = dims;
      d.mask_type = type;
    };
  };
  expect_refused("mask_type must be FP32 or BOOL, it is INT64", mask({7}, DataType::kInt64));
  expect_refused("mask must broadcast to [2,3,5,7], it is [2,7]", mask({2, 7}, DataType::kBool));
  expect_refused("mask must broadcast", mask({1, 1, 2, 3, 5, 7}, DataType::kFp32));
  expect_refused("mask must broadcast", mask({4, 1, 1, 7}, DataType::kFp32));
  EXPECT_THAT(libraries.fast().PrepareAttention([&] {
    D d = good;
    d.type = DataType::kInt32;
    return d;
  }()),
              StatusIs(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace sluice::gpu
