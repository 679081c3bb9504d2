// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "convert_fixture.h"

namespace sluice::rpc {
namespace {

using inference::ModelInferRequest;
using testing::HasSubstr;

struct TypedRow {
  const char* type;
  std::function<void(inference::InferTensorContents&)> fill;
  std::string raw;
};

template <class T>
std::string Raw(T first, T second) {
  std::string bytes(2 * sizeof(T), '\0');
  __builtin_memcpy(bytes.data(), &first, sizeof(T));
  __builtin_memcpy(bytes.data() + sizeof(T), &second, sizeof(T));
  return bytes;
}

// Goal: typed contents become the raw form of their type. Method: a pair of extreme values for each.
TEST_F(ConvertTest, TypedContents) {
  using C = inference::InferTensorContents;
  const std::vector<TypedRow> rows = {
      {"BOOL", [](C& c) { c.add_bool_contents(true), c.add_bool_contents(false); }, std::string("\1\0", 2)},
      {"INT8", [](C& c) { c.add_int_contents(-128), c.add_int_contents(127); }, "\x80\x7f"},
      {"INT16", [](C& c) { c.add_int_contents(-32768), c.add_int_contents(32767); },
       std::string("\x00\x80\xff\x7f", 4)},
      {"INT32", [](C& c) { c.add_int_contents(-2), c.add_int_contents(7); }, Raw<int32_t>(-2, 7)},
      {"INT64", [](C& c) { c.add_int64_contents(-2), c.add_int64_contents(1); }, Raw<int64_t>(-2, 1)},
      {"UINT8", [](C& c) { c.add_uint_contents(255), c.add_uint_contents(1); }, "\xff\x01"},
      {"UINT16", [](C& c) { c.add_uint_contents(65535), c.add_uint_contents(1); }, Raw<uint16_t>(65535, 1)},
      {"UINT32", [](C& c) { c.add_uint_contents(~0u), c.add_uint_contents(1); }, Raw<uint32_t>(~0u, 1)},
      {"UINT64", [](C& c) { c.add_uint64_contents(~0ull), c.add_uint64_contents(1); }, Raw<uint64_t>(~0ull, 1)},
      {"FP32", [](C& c) { c.add_fp32_contents(-1.5f), c.add_fp32_contents(2); }, Raw<float>(-1.5f, 2)},
      {"FP64", [](C& c) { c.add_fp64_contents(-1.5), c.add_fp64_contents(2); }, Raw<double>(-1.5, 2)},
      {"BYTES", [](C& c) { c.add_bytes_contents("ab"), c.add_bytes_contents(""); },
       std::string("\2\0\0\0ab\0\0\0\0", 10)},
  };
  for (const TypedRow& row : rows) {
    ModelInferRequest message = Typed(row.type);
    row.fill(Contents(message));
    const auto got = Convert(message, backend_);
    ASSERT_TRUE(got->status.ok()) << row.type << ": " << got->status;
    EXPECT_EQ(JoinPieces(got->request.inputs[0].pieces), row.raw) << row.type;
    EXPECT_EQ(got->request.bytes, row.raw.size());
  }
}

// Goal: typed contents that do not belong to the type are refused. Method: one row per mistake.
TEST_F(ConvertTest, BadTypedContents) {
  using C = inference::InferTensorContents;
  struct BadRow {
    const char* type;
    std::function<void(C&)> fill;
    const char* text;
  };
  const std::vector<BadRow> rows = {
      {"FP16", [](C& c) { c.add_fp32_contents(1), c.add_fp32_contents(2); }, "FP16 has no field in contents"},
      {"BF16", [](C& c) { c.add_fp32_contents(1), c.add_fp32_contents(2); }, "BF16 has no field in contents"},
      {"FP32", [](C& c) { c.add_fp64_contents(1), c.add_fp64_contents(2); }, "got elements in fp64_contents"},
      {"INT64", [](C& c) { c.add_int_contents(1), c.add_int_contents(2); }, "expected only int64_contents"},
      {"INT32", [](C& c) { c.add_int_contents(1), c.add_int_contents(2), c.add_fp32_contents(1); }, "fp32_contents"},
      {"INT32", [](C& c) { c.add_int_contents(1); }, "expected 2 elements in int_contents, got 1"},
      {"INT32", [](C&) {}, "got 0"},
      {"FP64", [](C& c) { c.add_fp64_contents(1), c.add_fp64_contents(2), c.add_fp64_contents(3); }, "got 3"},
      {"INT8", [](C& c) { c.add_int_contents(128), c.add_int_contents(0); }, "value 128 in int_contents"},
      {"INT8", [](C& c) { c.add_int_contents(0), c.add_int_contents(-129); }, "value -129"},
      {"INT16", [](C& c) { c.add_int_contents(32768), c.add_int_contents(0); }, "does not fit INT16"},
      {"UINT8", [](C& c) { c.add_uint_contents(256), c.add_uint_contents(0); }, "value 256"},
      {"UINT16", [](C& c) { c.add_uint_contents(65536), c.add_uint_contents(0); }, "does not fit UINT16"},
  };
  for (const BadRow& row : rows) {
    ModelInferRequest message = Typed(row.type);
    row.fill(Contents(message));
    const absl::Status status = Convert(message, backend_)->status;
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << row.type;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.text));
    EXPECT_THAT(std::string(status.message()), HasSubstr("input 'v'"));
  }
}

// Goal: BYTES elements are walked, never trusted. Method: good ones, then each way of lying about a length.
TEST_F(ConvertTest, BytesElements) {
  const auto text = [](std::string raw) {
    ModelInferRequest message;
    message.set_model_name("text");
    auto& input = *message.add_inputs();
    input.set_name("s");
    input.set_datatype("BYTES");
    input.add_shape(1);
    input.add_shape(2);
    message.add_raw_input_contents(std::move(raw));
    return message;
  };
  EXPECT_TRUE(Convert(text(std::string("\2\0\0\0ab\0\0\0\0", 10)), backend_)->status.ok());
  EXPECT_TRUE(Convert(text(std::string(8, '\0')), backend_)->status.ok());
  const std::pair<std::string, const char*> bad[] = {
      {"", "expected 2 elements, got 0"},
      {std::string("\2\0\0\0ab", 6), "expected 2 elements, got 1"},
      {std::string("\2\0\0\0ab\0\0", 8), "truncated length"},
      {std::string("\2\0\0\0ab\3\0\0\0xy", 12), "element 1 has length 3, but only 2 bytes"},
      {"\xff\xff\xff\xff"
       "abcd",
       "element 0 has length 4294967295"},
      {std::string("\0\0\0\0\0\0\0\0x", 9), "1 bytes behind"},
      {std::string(12, '\0'), "4 bytes behind"},
  };
  for (const auto& [raw, expected] : bad) {
    const absl::Status status = Convert(text(raw), backend_)->status;
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
    EXPECT_THAT(std::string(status.message()), HasSubstr("input 's'"));
  }
}

}  // namespace
}  // namespace sluice::rpc
