// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/tensor_values.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Npy(int version, const std::string& header, const std::string& data) {
  std::string file = absl::StrCat("\x93NUMPY", std::string(1, static_cast<char>(version)), std::string(1, '\0'));
  const size_t length_bytes = version == 1 ? 2 : 4;
  for (size_t i = 0; i < length_bytes; ++i) file.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return file + header + data;
}

std::string Header(const std::string& type, const std::string& shape, const std::string& order = "False") {
  return absl::StrCat("{'descr': '", type, "', 'fortran_order': ", order, ", 'shape': ", shape, ", }      \n");
}

std::string WriteTemporary(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

// Goal: arrays as NumPy writes them are read, in both header versions. Method: files built byte by byte.
TEST(Npy, ReadsArrays) {
  for (const int version : {1, 2, 3}) {
    const auto tensor = ParseNpy(Npy(version, Header("<i2", "(2, 3)"), std::string("\1\0\2\0\3\0\4\0\5\0\6\0", 12)));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->type, DataType::kInt16);
    EXPECT_THAT(tensor->shape, ElementsAre(2, 3));
    EXPECT_EQ(Elements(*tensor, 9), nlohmann::json({1, 2, 3, 4, 5, 6}));
  }
  EXPECT_THAT(ParseNpy(Npy(1, Header("|u1", "(3,)"), "abc"))->shape, ElementsAre(3));
  EXPECT_THAT(ParseNpy(Npy(1, Header("<f4", "()"), std::string(4, '\0')))->shape, IsEmpty());
  EXPECT_THAT(ParseNpy(Npy(1, Header("<f8", "(0, 4)"), ""))->shape, ElementsAre(0, 4));
}

struct BadFile {
  std::string file;
  const char* mentions;
};

// Goal: malformed and unsupported files are refused with the reason, never read past the end. Method: a table of files.
TEST(Npy, RefusesMalformedFiles) {
  const std::string good = Npy(1, Header("<i2", "(2,)"), std::string(4, '\0'));
  const std::vector<BadFile> table = {
      {"", "NUMPY"},
      {"PK\3\4 an archive", "NUMPY"},
      {good.substr(0, 6), "cut short"},
      {good.substr(0, 8), "cut short"},
      {good.substr(0, 30), "cut short"},
      {good.substr(0, good.size() - 1), "needs 4 bytes, but has 3"},
      {good + "x", "needs 4 bytes, but has 5"},
      {Npy(4, Header("<i2", "(2,)"), ""), "version 4"},
      {Npy(2, Header("<i2", "(2,)"), "").replace(8, 4, "\xff\xff\xff\xff"), "cut short"},
      {Npy(1, Header(">i2", "(2,)"), std::string(4, '\0')), "big-endian"},
      {Npy(1, Header("<i2", "(2,)", "True"), std::string(4, '\0')), "Fortran"},
      {Npy(1, Header("<U5", "(1,)"), std::string(20, '\0')), "'<U5'"},
      {Npy(1, Header("|O", "(1,)"), "x"), "'|O'"},
      {Npy(1, "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,), }", "abcd"), "records"},
      {Npy(1, Header("<i2", "(-2,)"), ""), "bad dimension"},
      {Npy(1, Header("<i2", "(99999999999999999999,)"), ""), "bad dimension"},
      {Npy(1, Header("<i8", "(4611686018427387904, 4)"), ""), "no element count"},
      {Npy(1, Header("<i8", "(4611686018427387904,)"), ""), "needs"},
      {Npy(1, Header("<i2", "[2]"), std::string(4, '\0')), "tuple"},
      {Npy(1, "{'descr': '<i2', 'shape': (2,)}", std::string(4, '\0')), "lacks"},
      {Npy(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2", std::string(4, '\0')), "no ','"},
      {Npy(1, "{'descr': '<i2", std::string(4, '\0')), "no end"},
      {Npy(1, "not a dictionary", ""), "'{'"},
      {Npy(1, Header("<i2", "(2,)") + "x", std::string(4, '\0')), "follows"},
      {Npy(1, "", ""), "'{'"},
  };
  for (size_t i = 0; i < table.size(); ++i) {
    const auto tensor = ParseNpy(table[i].file);
    ASSERT_FALSE(tensor.ok()) << i;
    EXPECT_THAT(std::string(tensor.status().message()), HasSubstr(table[i].mentions)) << i;
  }
  // Every cut of a good file is refused too.
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(ParseNpy(good.substr(0, size)).ok()) << size;
}

// Goal: nesting becomes the shape. Method: a matrix, a scalar and an empty array.
TEST(JsonTensor, NestingIsTheShape) {
  const auto matrix = ParseJsonTensor("[[1,2,3],[4,5,6]]", "x", DataType::kInt32);
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_THAT(matrix->shape, ElementsAre(2, 3));
  EXPECT_EQ(Elements(*matrix, 9), nlohmann::json({1, 2, 3, 4, 5, 6}));
  EXPECT_THAT(ParseJsonTensor("1.5", "x", DataType::kFp32)->shape, IsEmpty());
  EXPECT_THAT(ParseJsonTensor("[]", "x", DataType::kFp32)->shape, ElementsAre(0));
  EXPECT_THAT(ParseJsonTensor("[[],[]]", "x", DataType::kFp32)->shape, ElementsAre(2, 0));
}

// Goal: anything uneven or of another kind is refused, naming the input. Method: a table.
TEST(JsonTensor, RefusesUnevenAndWrongKinds) {
  for (const char* text : {"", "[1,2", "[[1,2],[3]]", "[[1],2]", "[1,[2]]", "[[1],[]]", "[[],[1]]", "{\"a\":1}",
                           "[null]", "[\"1\"]", "[1.5]", "[4294967296]"}) {
    const auto tensor = ParseJsonTensor(text, "x", DataType::kInt32);
    ASSERT_FALSE(tensor.ok()) << text;
    EXPECT_THAT(std::string(tensor.status().message()), HasSubstr("'x'")) << text;
  }
  EXPECT_FALSE(ParseJsonTensor(std::string(40, '[') + "1" + std::string(40, ']'), "x", DataType::kInt32).ok());
}

// Goal: both documents for all inputs are understood and mistakes are named. Method: one of each, then wrong ones.
TEST(JsonInputs, BothForms) {
  const std::vector<TensorInfo> infos = {{"a", DataType::kFp32, {-1, 2}}, {"b", DataType::kInt64, {1}}};
  const auto plain = ParseJsonInputs(R"({"a": [1, 2], "b": [7]})", infos);
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_EQ(plain->size(), 2u);
  EXPECT_THAT((*plain)[0].shape, ElementsAre(1, 2));  // The missing batch dimension is added.
  EXPECT_THAT((*plain)[1].shape, ElementsAre(1));
  const auto http = ParseJsonInputs(
      R"({"inputs": [{"name": "a", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]})", infos);
  ASSERT_TRUE(http.ok()) << http.status();
  EXPECT_THAT((*http)[0].shape, ElementsAre(2, 2));
  const std::pair<const char*, const char*> wrong[] = {
      {"[1]", "object"},
      {"{", "JSON"},
      {R"({"c": [1]})", "'c'"},
      {R"({"inputs": [{"name": "a", "shape": [2, 2], "data": [1, 2, 3]}]})", "needs 16 bytes, but has 12"},
      {R"({"inputs": [{"name": "a", "datatype": "FP64", "data": [1]}]})", "FP64"},
      {R"({"inputs": [{"name": "a", "shape": [-1], "data": [1]}]})", "shape"},
      {R"({"inputs": [{"data": [1]}]})", "lacks"},
      {R"({"inputs": [5]})", "lacks"}};
  for (const auto& [text, mentions] : wrong) {
    const auto inputs = ParseJsonInputs(text, infos);
    ASSERT_FALSE(inputs.ok()) << text;
    EXPECT_THAT(std::string(inputs.status().message()), HasSubstr(mentions)) << text;
  }
}

// Goal: a raw file's free dimension comes from its size; a misfit says so. Method: files of 24 and 25 bytes for rows
// of 12.
TEST(LoadInput, RawFile) {
  const TensorInfo info = {"x", DataType::kFp32, {-1, 3}};
  const auto tensor = LoadInput(info, {WriteTemporary("two_rows.bin", std::string(24, '\0')), std::nullopt}, 1, 1);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->shape, ElementsAre(2, 3));
  const auto misfit = LoadInput(info, {WriteTemporary("misfit.bin", std::string(25, '\0')), std::nullopt}, 1, 1);
  EXPECT_THAT(std::string(misfit.status().message()), HasSubstr("not a multiple of the 12 bytes"));
  const auto shaped =
      LoadInput(info, {WriteTemporary("one_row.bin", std::string(12, '\0')), std::vector<int64_t>{1, 3}}, 1, 1);
  ASSERT_TRUE(shaped.ok()) << shaped.status();
  EXPECT_THAT(shaped->shape, ElementsAre(1, 3));
  EXPECT_EQ(LoadInput(info, {"no/such/file", std::nullopt}, 1, 1).status().code(), absl::StatusCode::kNotFound);
}

// Goal: other sources: an array of the wrong type is refused, random content takes the batch. Method: one of each.
TEST(LoadInput, NpyAndRandom) {
  const TensorInfo info = {"x", DataType::kFp32, {-1, 3}};
  const std::string path = WriteTemporary("ints.npy", Npy(1, Header("<i4", "(3,)"), std::string(12, '\0')));
  EXPECT_THAT(std::string(LoadInput(info, {path, std::nullopt}, 1, 1).status().message()),
              HasSubstr("holds INT32, the model takes FP32"));
  const auto row = LoadInput({"x", DataType::kInt32, {-1, 3}}, {path, std::nullopt}, 1, 1);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_THAT(row->shape, ElementsAre(1, 3));
  const auto random = LoadInput(info, {"random", std::nullopt}, 5, 1);
  ASSERT_TRUE(random.ok()) << random.status();
  EXPECT_THAT(random->shape, ElementsAre(5, 3));
  EXPECT_FALSE(LoadInput({"x", DataType::kFp32, {-1, -1}}, {"random", std::nullopt}, 5, 1).ok());
}

}  // namespace
}  // namespace sluice::client
