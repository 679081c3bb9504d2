// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/repository/config_pbtxt.h"
#include "server/repository/model_settings.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kRefused = absl::StatusCode::kUnimplemented;
constexpr absl::StatusCode kNoDevice = absl::StatusCode::kFailedPrecondition;

struct BadConfig {
  const char* name;
  std::string text;
  absl::StatusCode code;
  const char* message;  ///< A part of it.
};

std::string Parameter(const std::string& key, const std::string& value) {
  return absl::StrCat("parameters { key: '", key, "' value { string_value: '", value, "' } } ");
}

class BadConfigTest : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigTest, IsRefusedWithItsReason) {
  // Goal: each mistake fails the load with a message that names the field, what was expected and what came. Method: a
  // table against one model with inputs image FP32 [-1,3,8,8] and mask INT64 [-1,8] and output scores FP32 [-1,10].
  const model::Signature signature = {
      .inputs = {{"image", DataType::kFp32, {-1, 3, 8, 8}}, {"mask", DataType::kInt64, {-1, 8}}},
      .outputs = {{"scores", DataType::kFp32, {-1, 10}}}};
  const absl::StatusOr<ParsedConfig> parsed = ParseConfigText(GetParam().text);
  absl::Status status = parsed.status();
  if (parsed.ok()) {
    status = MakeModelSettings("m", &*parsed, signature, {}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("model 'm': config.pbtxt: "));
  }
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Syntax, BadConfigTest,
    ::testing::Values(
        BadConfig{"UnknownField", "name: 'm'\n  batch: 8", kInvalid,
                  R"(config.pbtxt:2:8: Message type "inference.ModelConfig" has no field named "batch".)"},
        BadConfig{"WrongType", "max_batch_size: 'eight'", kInvalid, "config.pbtxt:1:17: Expected integer"},
        BadConfig{"UnknownEnum", "input { name: 'image' data_type: TYPE_FP8 }", kInvalid, "TYPE_FP8"},
        BadConfig{"Unclosed", "input { name: 'image'", kInvalid, "config.pbtxt:1:22: Expected"},
        BadConfig{"NotUtf8", R"(parameters { key: 'k' value { string_value: '\xff' } })", kInvalid, "not valid UTF-8"},
        BadConfig{"Twice", "max_batch_size: 1 max_batch_size: 2", kInvalid, "specified multiple times"},
        BadConfig{"OutOfRange", "max_batch_size: 9999999999", kInvalid, "Integer out of range"},
        BadConfig{"TwoSchedulers", "dynamic_batching {} sequence_batching {}", kInvalid, "config.pbtxt:1:39:"},
        BadConfig{"TooLong", std::string(kMaxConfigBytes + 1, ' '), kInvalid, "at most 1048576 are read"},
        BadConfig{"Binary", std::string("\x08\x00\x01", 3), kInvalid, "config.pbtxt:1:1:"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Model, BadConfigTest,
    ::testing::Values(
        BadConfig{"OtherName", "name: 'n'", kInvalid, "name: expected 'm', as the folder is called, got 'n'"},
        BadConfig{"OtherPlatform", "platform: 'tensorrt_plan'", kInvalid,
                  "platform: 'tensorrt_plan': Sluice runs ONNX"},
        BadConfig{"OtherBackend", "backend: 'python'", kInvalid, "backend: 'python'"},
        BadConfig{"NegativeBatch", "max_batch_size: -1", kInvalid, "max_batch_size: must be 0 to 4096, not -1"},
        BadConfig{"HugeBatch", "max_batch_size: 5000", kInvalid, "max_batch_size: must be 0 to 4096, not 5000"},
        BadConfig{"NoBatch", "max_batch_size: 0", kInvalid, "input 'image': dims: dimension 0 of [-1,3,8,8] is open"},
        BadConfig{"UnknownInput", "input { name: 'img' }", kInvalid,
                  "input 'img': the model has no such input; it has 'image', 'mask'"},
        BadConfig{"UnknownOutput", "output { name: 'mask' }", kInvalid,
                  "output 'mask': the model has no such output; it has 'scores'"},
        BadConfig{"InputTwice", "input { name: 'mask' } input { name: 'mask' }", kInvalid,
                  "input 'mask': declared twice"},
        BadConfig{"NoInputName", "input { dims: [8] }", kInvalid, "input: each needs a name"},
        BadConfig{"InputType", "input { name: 'mask' data_type: TYPE_INT32 }", kInvalid,
                  "input 'mask': data_type: expected TYPE_INT64, got TYPE_INT32"},
        BadConfig{"InputDims", "max_batch_size: 4 input { name: 'image' dims: [3, 8, 9] }", kInvalid,
                  "input 'image': dims: expected [3,8,8] (without the batch), got [3,8,9]"},
        BadConfig{"InputRank", "max_batch_size: 4 input { name: 'image' dims: [4, 3, 8, 8] }", kInvalid,
                  "input 'image': dims: expected [3,8,8] (without the batch), got [4,3,8,8]"},
        BadConfig{"InputOpened", "max_batch_size: 4 input { name: 'mask' dims: [-1] }", kInvalid,
                  "input 'mask': dims: expected [8] (without the batch), got [-1]"},
        BadConfig{"ZeroDim",
                  "max_batch_size: 0 input { name: 'mask' dims: [0, 8] } input { name: 'image' dims: [1,3,8,8] }",
                  kInvalid, "input 'mask': dims: expected [-1,8], got [0,8]"},
        BadConfig{"OutputType", "output { name: 'scores' data_type: TYPE_STRING }", kInvalid,
                  "output 'scores': data_type: expected TYPE_FP32, got TYPE_STRING"},
        BadConfig{"OutputDims", "output { name: 'scores' dims: [11] }", kInvalid,
                  "output 'scores': dims: expected [10] (without the batch), got [11]"},
        BadConfig{"NoGpu", "instance_group { kind: KIND_GPU }", kNoDevice, "KIND_GPU, but this server uses no GPU"},
        BadConfig{"NoGpuNumber", "instance_group { gpus: [0] }", kNoDevice, "this server uses no GPU"},
        BadConfig{"GpusOfCpu", "instance_group { kind: KIND_CPU gpus: [0] }", kInvalid,
                  "instance_group.gpus: cannot be given with KIND_CPU"},
        BadConfig{"NegativeCount", "instance_group { kind: KIND_CPU count: -2 }", kInvalid,
                  "instance_group.count: must not be -2"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Parameters, BadConfigTest,
    ::testing::Values(
        BadConfig{"UnknownKey", Parameter("sluice.buckts", "1"), kInvalid,
                  "unknown parameter 'sluice.buckts'; known are"},
        BadConfig{"NoMode", Parameter("sluice.mode", "partition"), kInvalid, "unknown parameter 'sluice.mode'"},
        BadConfig{"NoSlack", Parameter("sluice.latency_slack", "1"), kInvalid,
                  "unknown parameter 'sluice.latency_slack'"},
        BadConfig{"NoPrecision", Parameter("sluice.precision", "int8"), kInvalid,
                  "parameter 'sluice.precision' takes fp32, tf32, fp16 or bf16, not 'int8'"},
        BadConfig{"DefaultClass", Parameter("sluice.default_class", "fast"), kInvalid,
                  "parameter 'sluice.default_class' takes latency, standard or batch, not 'fast'"},
        BadConfig{"AllowedClass", Parameter("sluice.allowed_classes", "latency,fast"), kInvalid, "not 'fast'"},
        BadConfig{"AllowedTwice", Parameter("sluice.allowed_classes", "batch,batch"), kInvalid,
                  "each class at most once"},
        BadConfig{"AllowedEmpty", Parameter("sluice.allowed_classes", ""), kInvalid, "not ''"},
        BadConfig{"DefaultNotAllowed",
                  Parameter("sluice.allowed_classes", "standard,batch") + Parameter("sluice.default_class", "latency"),
                  kInvalid, "class latency is not among sluice.allowed_classes"},
        BadConfig{"PriorityNotAllowed",
                  Parameter("sluice.allowed_classes", "standard") + "optimization { priority: PRIORITY_MAX }", kInvalid,
                  "optimization.priority: class latency is not among"},
        BadConfig{"BucketZero", Parameter("sluice.buckets", "0,1"), kInvalid, "takes ascending batch sizes"},
        BadConfig{"BucketOrder", Parameter("sluice.buckets", "1,4,2"), kInvalid, "not '1,4,2'"},
        BadConfig{"BucketWord", Parameter("sluice.buckets", "1,two"), kInvalid, "not '1,two'"},
        BadConfig{"BucketCount", Parameter("sluice.buckets", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"), kInvalid,
                  "at most 16"},
        BadConfig{"BucketsLong", "max_batch_size: 8 " + Parameter("sluice.buckets", "1,2,16"), kInvalid,
                  "the largest must be at most max_batch_size (8), not 16"},
        BadConfig{"BucketsWithoutBatch",
                  "max_batch_size: 0 input { name: 'image' dims: [1,3,8,8] } input { name: 'mask' dims: [1,8] } " +
                      Parameter("sluice.buckets", "1"),
                  kInvalid, "the model has no batch dimension"},
        BadConfig{"BatchRowsWord", Parameter("sluice.batch_rows", "few"), kInvalid,
                  "parameter 'sluice.batch_rows' takes one of the model's batch sizes (sluice.buckets), not 'few'"},
        BadConfig{"BatchRowsZero", Parameter("sluice.batch_rows", "0"), kInvalid, "not '0'"},
        BadConfig{"BatchRowsMany", Parameter("sluice.batch_rows", "4097"), kInvalid, "not '4097'"},
        BadConfig{"BatchRowsBetween", Parameter("sluice.batch_rows", "3"), kInvalid,
                  "parameter 'sluice.batch_rows': expected one of the batch sizes 1,2,4,8, got 3"},
        BadConfig{"BatchRowsUnbatched", "max_batch_size: 0 " + Parameter("sluice.batch_rows", "1"), kInvalid,
                  "the model has no batch dimension"},
        BadConfig{"SlotsZero", Parameter("sluice.slots", "0"), kInvalid, "takes a number from 1 to 64"},
        BadConfig{"SlotsMany", Parameter("sluice.slots", "latency=65"), kInvalid, "not 'latency=65'"},
        BadConfig{"SlotsClass", Parameter("sluice.slots", "fast=1"), kInvalid, "not 'fast=1'"},
        BadConfig{"SlotsTwice", Parameter("sluice.slots", "batch=1,batch=2"), kInvalid, "each class at most once"},
        BadConfig{"SlotsNotAllowed",
                  Parameter("sluice.slots", "latency=1") + Parameter("sluice.allowed_classes", "standard"), kInvalid,
                  "parameter 'sluice.slots': class latency is not among"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Queue, BadConfigTest,
    ::testing::Values(
        BadConfig{"PreferredZero", "max_batch_size: 8 dynamic_batching { preferred_batch_size: 0 }", kInvalid,
                  "preferred_batch_size: must be 1 to max_batch_size (8), not 0"},
        BadConfig{"PreferredLarge", "max_batch_size: 8 dynamic_batching { preferred_batch_size: 9 }", kInvalid,
                  "must be 1 to max_batch_size (8), not 9"},
        BadConfig{"DelayLong", "dynamic_batching { max_queue_delay_microseconds: 3600000001 }", kInvalid,
                  "max_queue_delay_microseconds: at most 3600000000"},
        BadConfig{"DefaultWithoutLevels", "dynamic_batching { default_priority_level: 2 }", kInvalid,
                  "default_priority_level: 2 needs priority_levels"},
        BadConfig{"LevelsWithoutDefault", "dynamic_batching { priority_levels: 3 }", kInvalid,
                  "default_priority_level: must be 1 to priority_levels (3), not 0"},
        BadConfig{"DefaultTooHigh", "dynamic_batching { priority_levels: 3 default_priority_level: 4 }", kInvalid,
                  "must be 1 to priority_levels (3), not 4"},
        BadConfig{"DefaultIsLatency", "dynamic_batching { priority_levels: 3 default_priority_level: 1 }", kInvalid,
                  "set parameter sluice.default_class to latency"},
        BadConfig{"Delay", "dynamic_batching { default_queue_policy { timeout_action: DELAY } }", kRefused,
                  "dynamic_batching.default_queue_policy.timeout_action: only REJECT"},
        BadConfig{"TimeoutLong",
                  "dynamic_batching { default_queue_policy { default_timeout_microseconds: 18446744073709551615 } }",
                  kInvalid, "default_queue_policy.default_timeout_microseconds: at most 3600000000"},
        BadConfig{"PolicyWithoutLevels", "dynamic_batching { priority_queue_policy { key: 1 value {} } }", kInvalid,
                  "priority_queue_policy[1]: the key must be 1 to priority_levels (0)"},
        BadConfig{"PolicyPastLevels",
                  "dynamic_batching { priority_levels: 2 default_priority_level: 2 "
                  "priority_queue_policy { key: 3 value {} } }",
                  kInvalid, "priority_queue_policy[3]: the key must be 1 to priority_levels (2)"},
        BadConfig{"PoliciesDisagree",
                  "dynamic_batching { priority_levels: 4 default_priority_level: 3 "
                  "priority_queue_policy { key: 2 value { max_queue_size: 1 } } "
                  "priority_queue_policy { key: 3 value { max_queue_size: 2 } } }",
                  kInvalid, "levels 2 and 3 are both class standard and must have the same policy"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Refused, BadConfigTest,
    ::testing::Values(
        BadConfig{"Sequence", "sequence_batching {}", kRefused, "sequence_batching: sequences are not served"},
        BadConfig{"Ensemble", "ensemble_scheduling {}", kRefused, "ensemble_scheduling: ensembles are not served"},
        BadConfig{"Decoupled", "model_transaction_policy { decoupled: true }", kRefused, "exactly one response"},
        BadConfig{"Ordering", "dynamic_batching { preserve_ordering: true }", kRefused, "preserve_ordering"},
        BadConfig{"Cache", "response_cache { enable: true }", kRefused, "response_cache.enable"},
        BadConfig{"Warmup", "model_warmup { name: 'w' batch_size: 1 }", kRefused, "model_warmup"},
        BadConfig{"Operators", "model_operations { op_library_filename: 'x.so' }", kRefused, "model_operations"},
        BadConfig{"Agents", "model_repository_agents {}", kRefused, "model_repository_agents"},
        BadConfig{"Metrics", "model_metrics {}", kRefused, "model_metrics"},
        BadConfig{"Runtime", "runtime: 'x'", kRefused, "runtime: there is one"},
        BadConfig{"Filenames", "cc_model_filenames { key: '8.0' value: 'x' }", kRefused, "use default_model_filename"},
        BadConfig{"Accelerators", "optimization { execution_accelerators {} }", kRefused, "execution_accelerators"},
        BadConfig{"BatchInput", "batch_input {}", kRefused, "batch_input"},
        BadConfig{"BatchOutput", "batch_output {}", kRefused, "batch_output"},
        BadConfig{"Reshape", "input { name: 'mask' dims: [8] reshape { shape: [2, 4] } }", kRefused,
                  "input 'mask' reshape: dims must be the model's own"},
        BadConfig{"OutputReshape", "output { name: 'scores' reshape {} }", kRefused, "output 'scores' reshape"},
        BadConfig{"Ragged", "input { name: 'mask' allow_ragged_batch: true }", kRefused,
                  "input 'mask' allow_ragged_batch"},
        BadConfig{"Optional", "input { name: 'mask' optional: true }", kRefused, "every input is required"},
        BadConfig{"ShapeTensor", "input { name: 'mask' is_shape_tensor: true }", kRefused, "is_shape_tensor"},
        BadConfig{"TwoGroups", "instance_group { kind: KIND_CPU } instance_group { kind: KIND_CPU }", kRefused,
                  "instance_group: one group"},
        BadConfig{"KindModel", "instance_group { kind: KIND_MODEL }", kRefused, "KIND_MODEL"},
        BadConfig{"RateLimiter", "instance_group { rate_limiter {} }", kRefused, "instance_group.rate_limiter"}),
    [](const auto& info) { return info.param.name; });

TEST(ConfigTextTest, SaysSeveralErrorsAtOnceButNotAll) {
  // Goal: one run shows more than one mistake and the message stays bounded. Method: 100 bad lines.
  std::string text;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&text, "max_batch_size: 'x'\n");
  const absl::Status status = ParseConfigText(text).status();
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("config.pbtxt:1:17: "));
  EXPECT_LT(status.message().size(), 400u);
}

TEST(ConfigTextTest, TellsAWrittenZeroFromNone) {
  // Goal: max_batch_size: 0 is a statement, leaving it out is not. Method: both.
  EXPECT_TRUE(ParseConfigText("max_batch_size: 0")->has_max_batch_size);
  EXPECT_FALSE(ParseConfigText("name: 'm'")->has_max_batch_size);
}

}  // namespace
}  // namespace sluice::server
