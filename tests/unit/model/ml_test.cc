// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kMl[] = "ai.onnx.ml";

class MlTest : public ModelTest {
 protected:
  static OnnxWriter Writer(int64_t opset = 1) {
    OnnxWriter writer(13);
    writer.Import(kMl, opset);
    return writer;
  }

  /// Features of `data`, FP32, named by INT64 indices.
  absl::StatusOr<std::vector<std::string>> Extract(const Shape& data, const std::vector<float>& values,
                                                   const Shape& indices, const std::vector<int64_t>& picks, size_t rank,
                                                   int64_t opset) {
    const std::string file = Writer(opset)
                                 .Input("x", DataType::kFp32, Shape(data.size(), -1))
                                 .Input("i", DataType::kInt64, Shape(indices.size(), -1))
                                 .Node("ArrayFeatureExtractor", {"x", "i"}, {"y"}, {}, kMl)
                                 .Output("y", DataType::kFp32, Shape(rank, -1))
                                 .Serialize();
    return Run(file, {data, indices}, {ToBytes(values), ToBytes(picks)});
  }

  absl::StatusOr<std::vector<std::string>> Scale(DataType type, const Shape& dims, const std::string& values,
                                                 const std::vector<std::string>& attributes, int64_t opset = 1) {
    const std::string file = Writer(opset)
                                 .Input("x", type, Shape(dims.size(), -1))
                                 .Node("Scaler", {"x"}, {"y"}, attributes, kMl)
                                 .Output("y", DataType::kFp32, Shape(dims.size(), -1))
                                 .Serialize();
    return Run(file, {dims}, {values});
  }
};

TEST_F(MlTest, LabelsByArgMax) {
  // Goal: what scikit-learn's classifiers end in: the labels of the greatest scores, INT64 from a table of INT32, one a
  // row. Method: the nodes as skl2onnx writes them, three rows.
  const std::string table = RawTensor("classes", DataType::kInt32, {3}, std::vector<int32_t>{7, -2, 1000000});
  const std::string file = Writer()
                               .Input("x", DataType::kFp32, {-1, 3})
                               .Initializer(table)
                               .Ints("rows", {1}, {-1})
                               .Node("ArgMax", {"x"}, {"best"}, {IntAttribute("axis", 1)})
                               .Node("ArrayFeatureExtractor", {"classes", "best"}, {"picked"}, {}, kMl)
                               .Node("Reshape", {"picked", "rows"}, {"flat"})
                               .Node("Cast", {"flat"}, {"label"}, {IntAttribute("to", 7)})
                               .Output("label", DataType::kInt64, {-1})
                               .Serialize();
  const auto outputs = Run(file, {{3, 3}}, {ToBytes<float>({0, 1, 2, 5, 1, 2, 0, 3, 2})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(FromBytes<int64_t>((*outputs)[0]), ElementsAre(1000000, 7, -2));
}

TEST_F(MlTest, ExtractsFeatures) {
  // Goal: columns of a matrix and of more, with indices of any shape, and a row of what is a single row; at both ends
  // of the domain's opsets. Method: results worked out by hand.
  const std::vector<float> v = {0, 1, 2, 3, 4, 5};
  for (const int64_t opset : {1, 5}) {
    const auto columns = Extract({2, 3}, v, {2, 1}, {2, 0}, 2, opset);
    ASSERT_TRUE(columns.ok()) << columns.status();
    EXPECT_THAT(FromBytes<float>((*columns)[0]), ElementsAre(2, 0, 5, 3));
    const auto deep = Extract({1, 3, 2}, v, {1}, {1}, 3, opset);
    ASSERT_TRUE(deep.ok()) << deep.status();
    EXPECT_THAT(FromBytes<float>((*deep)[0]), ElementsAre(1, 3, 5));
    const auto row = Extract({6}, v, {2, 2}, {5, 5, 0, 3}, 2, opset);
    ASSERT_TRUE(row.ok()) << row.status();
    EXPECT_THAT(FromBytes<float>((*row)[0]), ElementsAre(5, 5, 0, 3));
  }
}

TEST_F(MlTest, Scales) {
  // Goal: (x - offset) * scale in FP32 whatever type comes in, one number for all features or one for each, and FP64
  // loses nothing before the result is rounded. Method: each type, results worked out by hand.
  const std::vector<std::string> each = {FloatsAttribute("offset", {1, 2}), FloatsAttribute("scale", {10, 0.5f})};
  const std::vector<std::string> all = {FloatsAttribute("offset", {1}), FloatsAttribute("scale", {2})};
  const auto numbers = [](const absl::StatusOr<std::vector<std::string>>& outputs) {
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? FromBytes<float>((*outputs)[0]) : std::vector<float>();
  };
  EXPECT_THAT(numbers(Scale(DataType::kFp32, {2, 2}, ToBytes<float>({1, 2, 3, 4}), each)), ElementsAre(0, 0, 20, 1));
  EXPECT_THAT(numbers(Scale(DataType::kFp32, {2}, ToBytes<float>({3, 4}), each, 5)), ElementsAre(20, 1));
  EXPECT_THAT(numbers(Scale(DataType::kInt32, {2, 2}, ToBytes<int32_t>({1, 2, 3, -4}), each)),
              ElementsAre(0, 0, 20, -3));
  EXPECT_THAT(numbers(Scale(DataType::kInt64, {1, 1, 3}, ToBytes<int64_t>({1, 2, -3}), all)), ElementsAre(0, 2, -8));
  const double close = 1 + 1e-12;
  EXPECT_THAT(numbers(Scale(DataType::kFp64, {1, 2}, ToBytes<double>({close, 4}), all)),
              ElementsAre(static_cast<float>((close - 1) * 2), 6));
}

TEST_F(MlTest, RefusesBadNodesByName) {
  // Goal: what cannot be run is refused when the plan is built, naming node, operator and reason. Method: a table.
  const std::string four = ToBytes<float>({1, 2, 3, 4});
  const std::string two = FloatsAttribute("offset", {1, 2}), twice = FloatsAttribute("scale", {1, 2});
  const std::string file = Writer()
                               .Input("x", DataType::kFp32, {2, 3})
                               .Initializer(RawTensor("i", DataType::kInt32, {1}, std::vector<int32_t>{0}))
                               .Node("ArrayFeatureExtractor", {"x", "i"}, {"y"}, {}, kMl)
                               .Output("y", DataType::kFp32, {-1, -1})
                               .Serialize();
  const struct {
    absl::Status status;
    absl::StatusCode code;
    const char* message;
  } cases[] = {
      {Scale(DataType::kFp32, {1, 4}, four, {two, twice}).status(), absl::StatusCode::kInvalidArgument,
       "node 'y_node' (Scaler): an offset of 2 and a scale of 2 numbers for an input [1,4]"},
      {Scale(DataType::kFp32, {1, 2, 2}, four, {two, twice}).status(), absl::StatusCode::kInvalidArgument,
       "input [1,2,2]"},
      {Scale(DataType::kFp32, {2, 2}, four, {two}).status(), absl::StatusCode::kInvalidArgument,
       "an offset of 2 and a scale of 0"},
      {Scale(DataType::kFp32, {2, 2}, four, {}).status(), absl::StatusCode::kInvalidArgument,
       "an offset of 0 and a scale of 0"},
      {Scale(DataType::kFp32, {2, 2}, four, {two, FloatAttribute("scale", 1)}).status(),
       absl::StatusCode::kInvalidArgument, "attribute 'scale' has the wrong type"},
      {Scale(DataType::kUint8, {2, 2}, "1234", {two, twice}).status(), absl::StatusCode::kUnimplemented,
       "elements of type UINT8"},
      {Extract({}, {1}, {1}, {0}, 1, 1).status(), absl::StatusCode::kInvalidArgument,
       "node 'y_node' (ArrayFeatureExtractor): the data is a scalar"},
      {Run(file, {{2, 3}}, {}).status(), absl::StatusCode::kInvalidArgument, "the indices are INT32, not INT64"},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(test.status.code(), test.code) << test.message << ": " << test.status;
    EXPECT_THAT(std::string(test.status.message()), HasSubstr(test.message));
  }
}

}  // namespace
}  // namespace sluice::model
