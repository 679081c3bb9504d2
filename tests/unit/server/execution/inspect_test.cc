// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: what /inspect answers is JSON that says what the model became, in sums that add up, and is bounded. Method: a
// small model on a host device, its document parsed back and compared with the device's own counts.
#include "server/execution/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "model_harness.h"
#include "onnx_writer.h"
#include "tests/support/status_matchers.h"

namespace sluice::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kWidth = 16;

class InspectTest : public model::ModelTest {
 protected:
  /// y = relu(x w), `layers` times, with buckets of 1 and 4 rows; on device_.
  void Make(int layers, std::optional<int64_t> batch_rows = std::nullopt, const std::string& prefix = "layer") {
    const std::vector<float> weights(kWidth * kWidth, 0.5f);
    model::OnnxWriter writer;
    writer.Input("x", DataType::kFp32, {-1, kWidth}).Floats("w", {kWidth, kWidth}, weights);
    std::string last = "x";
    for (int i = 0; i < layers; ++i) {
      const std::string product = absl::StrCat(prefix, i);
      const std::string result = i + 1 == layers ? "y" : absl::StrCat(product, "_relu");
      writer.Node("MatMul", {last, "w"}, {product}).Node("Relu", {product}, {result});
      last = result;
    }
    auto loaded = Load(writer.Output("y", DataType::kFp32, {-1, kWidth}).Serialize());
    ASSERT_OK(loaded);
    model_ = *std::move(loaded);
    ServedModel served;
    served.name = name_;
    served.version = 3;
    served.inputs.resize(1);
    served.inputs[0].type = DataType::kFp32;
    served.outputs = served.inputs;
    served.max_batch_size = 4;
    served.shape_buckets = {{{kWidth}}};
    InstanceOptions options;
    options.batch_buckets = {1, 4};
    options.slot_counts = {2, 1, 3};
    options.batch_rows = batch_rows;
    auto instance =
        ModelInstance::Create(*model_, *device_, *device_, std::make_shared<ServedModel>(std::move(served)), options);
    ASSERT_OK(instance);
    instance_ = *std::move(instance);
  }

  std::string Document() const {
    const InspectedInstance inspected[] = {{"host:0", instance_.get()}};
    return InspectModel(inspected);
  }
  json Inspect() const { return json::parse(Document(), nullptr, false); }

  std::string name_ = "chain";
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<ModelInstance> instance_;
};

TEST_F(InspectTest, SaysWhatTheModelBecame) {
  Make(3);
  const json inspection = Inspect();
  ASSERT_TRUE(inspection.is_object());
  EXPECT_EQ(inspection["model"], "chain");
  EXPECT_EQ(inspection["version"], 3);
  EXPECT_EQ(inspection["max_batch_size"], 4);
  ASSERT_EQ(inspection["devices"].size(), 1u);
  const json& device = inspection["devices"][0];
  EXPECT_EQ(device["device"], "host:0");
  ASSERT_EQ(device["shape_buckets"].size(), 1u);
  const json& bucket = device["shape_buckets"][0];
  EXPECT_EQ(bucket["input_shapes"], json::parse("[[16]]"));
  EXPECT_EQ(bucket["micro_batch"]["rows"], 4);
  EXPECT_EQ(bucket["micro_batch"]["rule"], "largest");
  EXPECT_EQ(bucket["micro_batch"]["uncuttable"], false);
  ASSERT_EQ(bucket["plans"].size(), 2u);
  for (const json& plan : bucket["plans"]) {
    EXPECT_EQ(plan["micro_batch"], plan["rows"] == 4);
    EXPECT_EQ(plan["classes"], json::array({"latency", "standard", "batch"}));
    EXPECT_EQ(plan["cut"], false);
    // On a host device a unit is one kernel, its neighbouring stamps included: they cover all kernels, in order, and
    // take what these take.
    ASSERT_EQ(plan["kernels"].size(), 5u);
    ASSERT_EQ(plan["units"].size(), 3u);
    EXPECT_EQ(plan["unit_count"], 3);
    EXPECT_EQ(plan["kernel_count"], 5);
    EXPECT_EQ(plan["captured_unit_count"], 0);
    size_t next = 0;
    double longest = 0;
    for (const json& unit : plan["units"]) {
      EXPECT_EQ(unit["first_launch"], next);
      double sum = 0;
      for (size_t i = 0; i < unit["launch_count"].get<size_t>(); ++i)
        sum += plan["kernels"][next++]["us"].get<double>();
      EXPECT_NEAR(unit["us"].get<double>(), sum, 1e-6);
      EXPECT_GT(sum, 0);
      longest = std::max(longest, sum);
      EXPECT_EQ(unit["first_kernel"], unit["last_kernel"]);
      EXPECT_THAT(unit["first_kernel"].get<std::string>(), HasSubstr("atmul"));
    }
    EXPECT_EQ(next, 5u);
    EXPECT_NEAR(plan["longest_unit_us"].get<double>(), longest, 1e-6);
    EXPECT_GT(plan["whole_us"].get<double>(), 0);
    EXPECT_NEAR(plan["us_per_row"].get<double>() * plan["rows"].get<double>(), plan["whole_us"].get<double>(), 1e-6);
  }
}

TEST_F(InspectTest, MemoryAddsUpToWhatTheDeviceCounts) {
  Make(2, 1);
  const json memory = Inspect()["devices"][0]["memory"];
  size_t slot_bytes = 0;
  for (const json& plan : memory["plans"]) {
    const size_t count = plan["slots"]["latency"].get<size_t>() + plan["slots"]["standard"].get<size_t>() +
                         plan["slots"]["batch"].get<size_t>();
    EXPECT_EQ(plan["slot_count"], count);
    EXPECT_EQ(count, plan["rows"] == 1 ? 6u : 2u) << "no standard or batch slots above the micro-batch";
    EXPECT_EQ(plan["device_bytes"], count * plan["slot_device_bytes"].get<size_t>());
    EXPECT_EQ(plan["pinned_bytes"], count * plan["slot_pinned_bytes"].get<size_t>());
    EXPECT_EQ(plan["input_bytes"], plan["rows"].get<size_t>() * kWidth * sizeof(float));
    slot_bytes += plan["device_bytes"].get<size_t>() + plan["pinned_bytes"].get<size_t>();
  }
  const gpu::MemoryUse use = device_->memory().use();
  EXPECT_EQ(memory["weight_bytes"], use.of(gpu::MemoryKind::kWeights));
  EXPECT_EQ(slot_bytes, use.of(gpu::MemoryKind::kSlots));
  EXPECT_EQ(memory["slot_device_bytes"].get<size_t>() + memory["slot_pinned_bytes"].get<size_t>(), slot_bytes);
  EXPECT_EQ(memory["total_bytes"], use.total());
}

TEST_F(InspectTest, AConfiguredMicroBatchSaysSoAndWhatItCosts) {
  Make(2, 1);
  const json bucket = Inspect()["devices"][0]["shape_buckets"][0];
  EXPECT_EQ(bucket["micro_batch"]["rows"], 1);
  EXPECT_EQ(bucket["micro_batch"]["rule"], "configured");
  EXPECT_THAT(bucket["micro_batch"]["why"].get<std::string>(), HasSubstr("sluice.batch_rows"));
  EXPECT_EQ(bucket["plans"][1]["classes"], json::array({"latency"}));
}

TEST_F(InspectTest, ShowsTheGraphBeforeAndAfterPasses) {
  Make(2);
  const json graph = Inspect()["graph"];
  EXPECT_EQ(graph["after_rows"], 4);
  EXPECT_EQ(graph["before"]["node_count"], 4);
  EXPECT_EQ(graph["before"]["cut"], false);
  std::vector<std::string> before;
  for (const json& node : graph["before"]["nodes"]) before.push_back(node["op"]);
  EXPECT_THAT(before, ElementsAre("MatMul", "Relu", "MatMul", "Relu"));
  EXPECT_EQ(graph["before"]["inputs"], json::parse(R"([{"name": "x", "type": "FP32", "dims": [-1, 16]}])"));
  EXPECT_EQ(graph["before"]["nodes"][0]["inputs"][1],
            json::parse(R"({"name": "w", "type": "FP32", "dims": [16, 16], "constant": true})"));
  EXPECT_EQ(graph["before"]["nodes"][0]["outputs"][0]["dims"], json()) << "not known before shapes are bound";
  ASSERT_EQ(graph["after"]["nodes"].size(), 2u) << "each Relu went into its product";
  for (const json& node : graph["after"]["nodes"]) {
    EXPECT_EQ(node["op"], "MatMul");
    EXPECT_EQ(node["fused"], "Relu");
    EXPECT_EQ(node["outputs"][0]["dims"], json({4, 16}));
  }
}

TEST_F(InspectTest, ALongModelIsCutAndSaysSo) {
  // Names of 4,000 bytes make a graph that does not fit; the document stays bounded.
  Make(100, std::nullopt, std::string(4000, 'n'));
  const std::string document = Document();
  EXPECT_LT(document.size(), size_t{3} << 20);
  const json inspection = json::parse(document, nullptr, false);
  ASSERT_TRUE(inspection.is_object());
  const json& before = inspection["graph"]["before"];
  EXPECT_EQ(before["node_count"], 200);
  EXPECT_EQ(before["cut"], true);
  EXPECT_LT(before["nodes"].size(), 200u);
  EXPECT_GT(before["nodes"].size(), 10u);
}

TEST_F(InspectTest, BytesThatAreNotUtf8AreReplaced) {
  // Names inside a file are UTF-8, or it is refused; a model's own is its folder's.
  name_ = "bad\xFF\"";
  Make(2);
  EXPECT_EQ(Inspect()["model"], "bad\xEF\xBF\xBD\"");
}

TEST_F(InspectTest, ReadingsOfTheBatchPlanHaveTheirLabels) {
  Make(2, 1);
  std::vector<metrics::ReadingSample> samples;
  ReadBatchPlan(*instance_, "host:0", samples);
  std::map<std::string, double> values;
  for (const metrics::ReadingSample& sample : samples) {
    EXPECT_THAT(sample.labels, ElementsAre("chain", "3", "host:0"));
    values[std::string(metrics::FactsOf(sample.reading).name)] = sample.value;
  }
  EXPECT_EQ(values.at("sluice_batch_plan_rows"), 1);
  EXPECT_EQ(values.at("sluice_batch_plan_units"), 2);
  EXPECT_EQ(values.at("sluice_batch_plan_uncuttable"), 0);
  EXPECT_GT(values.at("sluice_batch_plan_seconds"), 0);
  EXPECT_GT(values.at("sluice_batch_plan_longest_unit_seconds"), 0);
  EXPECT_EQ(values.at("sluice_batch_plan_cost_ratio"), instance_->row_choice(0).cost);
}

}  // namespace
}  // namespace sluice::server
