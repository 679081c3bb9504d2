// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/tensor_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "client/convert.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;

// Goal: half precision conversion is exact both ways. Method: every finite half survives the round trip; known
// roundings.
TEST(Half, RoundTripsAndRounds) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if ((half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0) {
      EXPECT_TRUE(std::isnan(HalfToFloat(half)));
      continue;
    }
    ASSERT_EQ(FloatToHalf(HalfToFloat(half)), half);
  }
  EXPECT_EQ(FloatToHalf(1.0f), 0x3c00);
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f), 0x3c00);      // A tie goes to the even one,
  EXPECT_EQ(FloatToHalf(1.0f + 3 * 0x1p-11f), 0x3c02);  // which may be above.
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(std::numeric_limits<float>::quiet_NaN()))));
}

// Goal: bfloat16 rounds to nearest even. Method: ties on both sides and the specials.
TEST(Bfloat, Rounds) {
  EXPECT_EQ(FloatToBfloat(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBfloat(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(FloatToBfloat(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(BfloatToFloat(0xc000), -2.0f);
  EXPECT_TRUE(std::isnan(BfloatToFloat(FloatToBfloat(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(BfloatToFloat(FloatToBfloat(std::numeric_limits<float>::infinity()))));
}

// Goal: values that do not fit a type are refused, those that just fit are kept. Method: both sides of every integer
// bound.
TEST(AppendElement, KeepsToTheRange) {
  const auto fits = [](const json& value, DataType type) {
    std::string bytes;
    return AppendElement(value, type, bytes).ok();
  };
  EXPECT_TRUE(fits(255, DataType::kUint8));
  EXPECT_FALSE(fits(256, DataType::kUint8));
  EXPECT_FALSE(fits(-1, DataType::kUint8));
  EXPECT_TRUE(fits(-128, DataType::kInt8));
  EXPECT_FALSE(fits(-129, DataType::kInt8));
  EXPECT_FALSE(fits(128, DataType::kInt8));
  EXPECT_TRUE(fits(2147483647, DataType::kInt32));
  EXPECT_FALSE(fits(2147483648, DataType::kInt32));
  EXPECT_TRUE(fits(std::numeric_limits<int64_t>::min(), DataType::kInt64));
  EXPECT_FALSE(fits(std::numeric_limits<uint64_t>::max(), DataType::kInt64));
  EXPECT_TRUE(fits(std::numeric_limits<uint64_t>::max(), DataType::kUint64));
  EXPECT_FALSE(fits(1.0, DataType::kInt32));
  EXPECT_FALSE(fits("1", DataType::kInt32));
  EXPECT_FALSE(fits(nullptr, DataType::kFp32));
  EXPECT_FALSE(fits("x", DataType::kFp64));
  EXPECT_TRUE(fits(true, DataType::kBool));
  EXPECT_TRUE(fits(0, DataType::kBool));
  EXPECT_FALSE(fits(2, DataType::kBool));
  EXPECT_FALSE(fits(3, DataType::kBytes));
}

// Goal: what is appended is what is read. Method: one value of every type there and back.
TEST(Elements, ReadWhatWasAppended) {
  for (const DataTypeFacts& facts : kDataTypes) {
    Tensor tensor{"t", facts.type, {2}, {}};
    json values = {1, 0};
    if (facts.type == DataType::kBool) values = {true, false};
    if (facts.type == DataType::kBytes) values = {"one", ""};
    for (const json& value : values) ASSERT_TRUE(AppendElement(value, facts.type, tensor.bytes).ok());
    ASSERT_TRUE(CheckTensor(ViewOf(tensor)).ok()) << facts.wire_name;
    EXPECT_EQ(Elements(tensor, 10), values) << facts.wire_name;
    EXPECT_EQ(Elements(tensor, 1).size(), 1u);
  }
  Tensor big{"t", DataType::kUint64, {1}, {}};
  ASSERT_TRUE(AppendElement(std::numeric_limits<uint64_t>::max(), DataType::kUint64, big.bytes).ok());
  EXPECT_EQ(Elements(big, 1)[0].get<uint64_t>(), std::numeric_limits<uint64_t>::max());
}

// Goal: random inputs repeat by seed, have the right size and stay in range. Method: every type, twice and with another
// seed.
TEST(RandomTensor, RepeatsBySeed) {
  for (const DataTypeFacts& facts : kDataTypes) {
    const auto first = RandomTensor("x", facts.type, {8, 16}, 1);
    const auto again = RandomTensor("x", facts.type, {8, 16}, 1);
    const auto other = RandomTensor("x", facts.type, {8, 16}, 2);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_TRUE(CheckTensor(ViewOf(*first)).ok()) << facts.wire_name;
    EXPECT_EQ(first->bytes, again->bytes);
    EXPECT_NE(first->bytes, other->bytes) << facts.wire_name;
    if (facts.type == DataType::kBytes) continue;
    for (size_t i = 0; i < 128; ++i) {
      EXPECT_GE(ElementAsDouble(*first, i), 0);
      EXPECT_LE(ElementAsDouble(*first, i), 255);
    }
  }
  EXPECT_FALSE(RandomTensor("x", DataType::kFp32, {-1, 2}, 1).ok());
  EXPECT_FALSE(RandomTensor("x", DataType::kFp32, {1 << 20, 1 << 20}, 1).ok());
}

}  // namespace
}  // namespace sluice::client
