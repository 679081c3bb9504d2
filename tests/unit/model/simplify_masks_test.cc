// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "model/passes/passes.h"
#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;

class SimplifyMasksTest : public ModelTest {
 protected:
  /// Attention of two heads under a mask made by And and Where; `never` is what a false becomes.
  std::string Masked(float never, bool all_true) {
    const std::string yes = RawTensorBytes("yes", DataType::kBool, {1, 1, 4, 1}, std::string(4, all_true ? 1 : 0));
    return OnnxWriter(23)
        .Input("q", DataType::kFp32, {-1, 4, 8})
        .Input("keys", DataType::kBool, {-1, 1, 1, 4})
        .Output("y", DataType::kFp32, {-1, 4, 8})
        .Initializer(yes)
        .Floats("zero", {1}, {0})
        .Floats("never", {1}, {never})
        .Node("And", {"yes", "keys"}, {"both"})
        .Node("Where", {"both", "zero", "never"}, {"mask"})
        .Node("Attention", {"q", "q", "q", "mask"}, {"y"},
              {IntAttribute("q_num_heads", 2), IntAttribute("kv_num_heads", 2)})
        .Serialize();
  }
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
};

TEST_F(SimplifyMasksTest, TakesTruthValuesWhereTheyAreMeant) {
  // Goal: a mask of 0 and minus infinity becomes the values it was chosen by, without what is true everywhere; a finite
  // number is another thing, and so is an And with something false. Method: each of them.
  const auto names = [&](float never, bool all_true) {
    Graph graph = Bound(Masked(never, all_true), {{2, 4, 8}, {2, 1, 1, 4}});
    SimplifyMasks(graph);
    RemoveDeadCode(graph);
    return OperatorNames(graph);
  };
  EXPECT_THAT(names(-kInfinity, true), ElementsAre("Attention"));
  EXPECT_THAT(names(-kInfinity, false), ElementsAre("And", "Attention"));
  EXPECT_THAT(names(-1e30f, true), ElementsAre("And", "Where", "Attention"));
}

TEST_F(SimplifyMasksTest, ComputesTheSame) {
  // Goal: the rewritten graph's outputs are the old one's. Method: both on the host, with one key masked in one row.
  const std::vector<Shape> shapes = {{2, 4, 8}, {2, 1, 1, 4}};
  std::vector<float> q;
  for (int i = 0; i < 64; ++i) q.push_back(static_cast<float>(i % 7) * 0.3f - 0.8f);
  const std::vector<std::string> inputs = {ToBytes(q), std::string{1, 1, 0, 1, 1, 1, 1, 1}};
  // The mask of numbers that no pass touches, since it is no constant of minus infinity but nearly one.
  const auto expected = Run(Masked(-1e30f, true), shapes, inputs);
  const auto actual = Run(Masked(-kInfinity, true), shapes, inputs);
  ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
  const auto a = FromBytes<float>((*actual)[0]), b = FromBytes<float>((*expected)[0]);
  EXPECT_THAT(a, ::testing::Pointwise(::testing::FloatNear(1e-6f), b));
}

}  // namespace
}  // namespace sluice::model
