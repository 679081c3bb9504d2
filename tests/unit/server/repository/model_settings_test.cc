// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/repository/model_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/repository/class_settings.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Two inputs and an output, each with an open first dimension.
model::Signature Batchable() {
  return {.inputs = {{"image", DataType::kFp32, {-1, 3, 8, 8}}, {"mask", DataType::kInt64, {-1, 8}}},
          .outputs = {{"scores", DataType::kFp32, {-1, 10}}}};
}

ModelSettings Make(const std::string& text, const model::Signature& signature = Batchable(),
                   const SettingsOptions& options = {}) {
  const absl::StatusOr<ParsedConfig> parsed = ParseConfigText(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  absl::StatusOr<ModelSettings> settings = MakeModelSettings("m", &*parsed, signature, options);
  EXPECT_TRUE(settings.ok()) << settings.status();
  return settings.ok() ? *std::move(settings) : ModelSettings();
}

TEST(ModelSettingsTest, NoConfigIsCompletedFromTheModel) {
  // Goal: a bare model.onnx can be served. Method: no config; every completed field.
  const absl::StatusOr<ModelSettings> settings = MakeModelSettings("m", nullptr, Batchable(), {});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->config.name(), "m");
  EXPECT_EQ(settings->config.platform(), "sluice_onnx");
  EXPECT_EQ(settings->config.backend(), "sluice");
  EXPECT_EQ(settings->config.default_model_filename(), "model.onnx");
  EXPECT_EQ(settings->config.version_policy().latest().num_versions(), 1u);
  EXPECT_EQ(settings->config.max_batch_size(), 8);
  EXPECT_EQ(settings->max_batch_size, 8);
  EXPECT_THAT(settings->batch_buckets, ElementsAre(1, 2, 4, 8));
  ASSERT_EQ(settings->config.input_size(), 2);
  EXPECT_EQ(settings->config.input(0).name(), "image");
  EXPECT_EQ(settings->config.input(0).data_type(), inference::TYPE_FP32);
  EXPECT_THAT(settings->config.input(0).dims(), ElementsAre(3, 8, 8));
  EXPECT_EQ(settings->config.input(1).data_type(), inference::TYPE_INT64);
  ASSERT_EQ(settings->config.output_size(), 1);
  EXPECT_THAT(settings->config.output(0).dims(), ElementsAre(10));
  EXPECT_THAT(settings->inputs[0].dims, ElementsAre(-1, 3, 8, 8));
  EXPECT_THAT(settings->outputs[0].dims, ElementsAre(-1, 10));
  EXPECT_THAT(settings->shape_buckets, ElementsAre(ElementsAre(ElementsAre(3, 8, 8), ElementsAre(8))));
  EXPECT_THAT(settings->slots, ElementsAre(2, 1, 2));
  EXPECT_EQ(settings->class_rules.default_class, RequestClass::kStandard);
  EXPECT_FALSE(settings->class_rules.default_class_is_explicit);
  EXPECT_FALSE(settings->queue_rules.merges_requests);
  EXPECT_TRUE(settings->queue_rules.allow_timeout_override);
  ASSERT_EQ(settings->config.instance_group_size(), 1);
  EXPECT_EQ(settings->config.instance_group(0).kind(), inference::ModelInstanceGroup::KIND_CPU);
  EXPECT_EQ(settings->placement, Placement::kAuto);
  EXPECT_THAT(settings->warnings, IsEmpty());
}

TEST(ModelSettingsTest, AnEmptyConfigIsAsNone) {
  // Goal: an empty file means what no file means. Method: compare the completed configs.
  const absl::StatusOr<ModelSettings> none = MakeModelSettings("m", nullptr, Batchable(), {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(Make("# nothing").config.SerializeAsString(), none->config.SerializeAsString());
}

TEST(ModelSettingsTest, MaxBatchSizeFollowsWhatIsWritten) {
  // Goal: the rule in the header, case by case. Method: one config each.
  EXPECT_EQ(Make("max_batch_size: 3").max_batch_size, 3);
  EXPECT_THAT(Make("max_batch_size: 6").batch_buckets, ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(Make("max_batch_size: 1").batch_buckets, ElementsAre(1));
  EXPECT_EQ(Make("parameters { key: 'sluice.buckets' value { string_value: '1, 5' } }").max_batch_size, 5);
  // Declared without the batch: still batched. With it: not.
  EXPECT_EQ(Make("input { name: 'mask' dims: [8] }").max_batch_size, 8);
  const model::Signature full = {.inputs = {{"x", DataType::kFp32, {-1, 4}}},
                                 .outputs = {{"y", DataType::kFp32, {-1}}}};
  const ModelSettings declared = Make("input { name: 'x' dims: [2, 4] }", full);
  EXPECT_EQ(declared.max_batch_size, 0);
  EXPECT_THAT(declared.inputs[0].dims, ElementsAre(2, 4));
  EXPECT_THAT(declared.outputs[0].dims, ElementsAre(-1));
  // A written 0 is obeyed, so the first dimension must then be given.
  EXPECT_EQ(Make("max_batch_size: 0 input { name: 'x' dims: [7, 4] }", full).max_batch_size, 0);
  // A model with a fixed first dimension has no batch.
  const model::Signature fixed = {.inputs = {{"x", DataType::kFp32, {1, 4}}}, .outputs = {{"y", DataType::kFp32, {1}}}};
  const ModelSettings unbatched = Make("", fixed);
  EXPECT_EQ(unbatched.max_batch_size, 0);
  EXPECT_THAT(unbatched.batch_buckets, IsEmpty());
  EXPECT_THAT(unbatched.shape_buckets, ElementsAre(ElementsAre(ElementsAre(1, 4))));
}

TEST(ModelSettingsTest, TensorsAreInTheModelsOrder) {
  // Goal: indexes into inputs are the plan's, whatever order the config uses. Method: declare in reverse, and only
  // some.
  const ModelSettings settings =
      Make("input { name: 'mask' data_type: TYPE_INT64 dims: [8] } input { name: 'image' dims: [3, 8, 8] }");
  ASSERT_THAT(settings.inputs, SizeIs(2));
  EXPECT_EQ(settings.inputs[0].name, "image");
  EXPECT_EQ(settings.config.input(0).name(), "image");
  EXPECT_THAT(Make("input { name: 'mask' }").inputs, SizeIs(2));
}

TEST(ModelSettingsTest, OpenDimensionsAreFixedByTheConfig) {
  // Goal: a model with an open dimension besides the batch can be served at one size. Method: fix it; look at the
  // bucket.
  const model::Signature open = {.inputs = {{"ids", DataType::kInt32, {-1, -1}}},
                                 .outputs = {{"y", DataType::kFp32, {-1, -1, 5}}}};
  const ModelSettings settings = Make("max_batch_size: 2 input { name: 'ids' dims: [128] }", open);
  EXPECT_THAT(settings.shape_buckets, ElementsAre(ElementsAre(ElementsAre(128))));
  EXPECT_THAT(settings.inputs[0].dims, ElementsAre(-1, 128));
  EXPECT_THAT(settings.outputs[0].dims, ElementsAre(-1, -1, 5));
}

TEST(ModelSettingsTest, TheDefaultClassHasOneOrder) {
  // Goal: sluice.default_class, then optimization.priority, then standard. Method: each alone and both together.
  const std::string batch = "parameters { key: 'sluice.default_class' value { string_value: 'batch' } }";
  const std::string max = "optimization { priority: PRIORITY_MAX }";
  EXPECT_EQ(Make(max).class_rules.default_class, RequestClass::kLatency);
  EXPECT_EQ(Make("optimization { priority: PRIORITY_MIN }").class_rules.default_class, RequestClass::kBatch);
  const ModelSettings both = Make(batch + max);
  EXPECT_EQ(both.class_rules.default_class, RequestClass::kBatch);
  EXPECT_TRUE(both.class_rules.default_class_is_explicit);
  EXPECT_EQ(
      Make("parameters { key: 'sluice.allowed_classes' value { string_value: 'batch' } }").class_rules.default_class,
      RequestClass::kBatch);
}

TEST(ModelSettingsTest, AllowedClassesAndSlots) {
  // Goal: slots per class as written, none for a class that is not allowed. Method: the forms of sluice.slots.
  const auto slots = [](const std::string& value) {
    return "parameters { key: 'sluice.slots' value { string_value: '" + value + "' } }";
  };
  const std::string allowed = "parameters { key: 'sluice.allowed_classes' value { string_value: 'batch,standard' } }";
  EXPECT_THAT(Make(slots("3")).slots, ElementsAre(3, 3, 3));
  EXPECT_THAT(Make(slots("latency=4, batch=1")).slots, ElementsAre(4, 1, 1));
  EXPECT_THAT(Make(allowed).slots, ElementsAre(0, 1, 2));
  EXPECT_THAT(Make(allowed + slots("5")).slots, ElementsAre(0, 5, 5));
  EXPECT_THAT(Make(allowed).class_rules.allowed, ElementsAre(RequestClass::kStandard, RequestClass::kBatch));
}

TEST(ModelSettingsTest, BatchRowsAreOneOfTheBuckets) {
  // Goal: sluice.batch_rows is kept as written, and said to be useless where it is. Method: with default buckets, with
  // given ones, and without the classes it is for.
  const auto rows = [](const std::string& value) {
    return "parameters { key: 'sluice.batch_rows' value { string_value: '" + value + "' } }";
  };
  const std::string buckets = "parameters { key: 'sluice.buckets' value { string_value: '3,5' } }";
  EXPECT_EQ(Make("").batch_rows, std::nullopt);
  EXPECT_EQ(Make(rows("4")).batch_rows, 4);
  EXPECT_EQ(Make(buckets + rows(" 3 ")).batch_rows, 3);
  EXPECT_THAT(Make(rows("4")).warnings, IsEmpty());
  const std::string latency = "parameters { key: 'sluice.allowed_classes' value { string_value: 'latency' } }";
  EXPECT_THAT(Make(latency + rows("4")).warnings, ElementsAre(HasSubstr("'sluice.batch_rows' changes nothing")));
}

TEST(ModelSettingsTest, QueuePoliciesAreByClass) {
  // Goal: dynamic_batching becomes queue rules; levels become classes. Method: three levels, default 2, with policies.
  const ModelSettings settings = Make(R"(
    max_batch_size: 8
    dynamic_batching {
      preferred_batch_size: [8, 4, 4]
      max_queue_delay_microseconds: 1500
      priority_levels: 3
      default_priority_level: 2
      default_queue_policy { default_timeout_microseconds: 2000 allow_timeout_override: true max_queue_size: 7 }
      priority_queue_policy { key: 1 value { max_queue_size: 3 } }
      priority_queue_policy { key: 3 value { max_queue_size: 100 default_timeout_microseconds: 9 } }
    })");
  EXPECT_TRUE(settings.queue_rules.merges_requests);
  EXPECT_THAT(settings.queue_rules.preferred_batch_sizes, ElementsAre(4, 8));
  EXPECT_EQ(settings.queue_rules.max_queue_delay, absl::Microseconds(1500));
  EXPECT_EQ(settings.queue_rules.max_queue_size, 7u);
  EXPECT_EQ(settings.queue_rules.default_timeout, absl::Milliseconds(2));
  EXPECT_TRUE(settings.queue_rules.allow_timeout_override);
  EXPECT_EQ(settings.class_rules.priority_levels, 3u);
  EXPECT_EQ(settings.class_rules.default_priority_level, 2u);

  const auto served = settings.MakeServedModel(ModelId(9), 4);
  EXPECT_EQ(served->version, 4);
  EXPECT_EQ(served->RulesFor(RequestClass::kLatency).max_queue_size, 3u);
  EXPECT_FALSE(served->RulesFor(RequestClass::kLatency).allow_timeout_override);
  EXPECT_EQ(served->RulesFor(RequestClass::kLatency).default_timeout, absl::InfiniteDuration());
  EXPECT_EQ(served->RulesFor(RequestClass::kLatency).max_queue_delay, absl::Microseconds(1500));
  EXPECT_EQ(served->RulesFor(RequestClass::kStandard).max_queue_size, 7u);
  EXPECT_EQ(served->RulesFor(RequestClass::kBatch).max_queue_size, 100u);
  EXPECT_EQ(served->RulesFor(RequestClass::kBatch).default_timeout, absl::Microseconds(9));
}

TEST(ModelSettingsTest, LevelsBecomeClasses) {
  // Goal: 1 is latency, up to the default standard, above it batch. Method: five levels, default 3; and default 1.
  EXPECT_EQ(ClassOfLevel(1, 3), RequestClass::kLatency);
  EXPECT_EQ(ClassOfLevel(2, 3), RequestClass::kStandard);
  EXPECT_EQ(ClassOfLevel(3, 3), RequestClass::kStandard);
  EXPECT_EQ(ClassOfLevel(4, 3), RequestClass::kBatch);
  EXPECT_EQ(ClassOfLevel(2, 1), RequestClass::kBatch);
  const ModelSettings settings = Make(
      "dynamic_batching { priority_levels: 2 default_priority_level: 1 } "
      "parameters { key: 'sluice.default_class' value { string_value: 'latency' } }");
  EXPECT_EQ(settings.class_rules.default_priority_level, 1u);
}

TEST(ModelSettingsTest, ExistingRepositoriesLoad) {
  // Goal: a config written for another server that asks for nothing special is accepted, and says what it ignores.
  // Method: the usual fields; the names are kept, each useless setting gives one warning.
  const ModelSettings settings = Make(R"(
    name: "m" platform: "onnxruntime_onnx" max_batch_size: 4
    input [{ name: "image" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [3, 8, 8] },
           { name: "mask" data_type: TYPE_INT64 dims: [8] }]
    output [{ name: "scores" data_type: TYPE_FP32 dims: [10] label_filename: "labels.txt" }]
    instance_group [{ kind: KIND_CPU count: 2 }]
    optimization { graph { level: 1 } }
    parameters { key: "intra_op_thread_count" value { string_value: "2" } })");
  EXPECT_EQ(settings.config.platform(), "onnxruntime_onnx");
  EXPECT_EQ(settings.config.backend(), "onnxruntime");
  EXPECT_EQ(settings.placement, Placement::kHost);
  EXPECT_THAT(settings.warnings, ElementsAre(HasSubstr("optimization.graph"), HasSubstr("label_filename"),
                                             HasSubstr("instance_group.count"), HasSubstr("intra_op_thread_count")));
}

TEST(ModelSettingsTest, PlacementFollowsTheInstanceGroup) {
  // Goal: kinds and gpus decide where a model goes. Method: with a GPU in use.
  const SettingsOptions gpu = {.has_gpu = true};
  const ModelSettings settings = Make("instance_group { kind: KIND_GPU gpus: [0, 1] }", Batchable(), gpu);
  EXPECT_EQ(settings.placement, Placement::kGpu);
  EXPECT_THAT(settings.gpus, ElementsAre(0, 1));
  const ModelSettings automatic = Make("", Batchable(), gpu);
  EXPECT_EQ(automatic.placement, Placement::kAuto);
  EXPECT_EQ(automatic.config.instance_group(0).kind(), inference::ModelInstanceGroup::KIND_GPU);
  EXPECT_EQ(Make("instance_group { kind: KIND_CPU }", Batchable(), gpu).placement, Placement::kHost);
}

}  // namespace
}  // namespace sluice::server
