// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a model that does not fit is refused with a sum that adds up and leaves memory as it was. Method: a small model
// on host devices whose limits are one byte more or less than it needs; pinned memory shared with the device's and not.
#include "server/execution/model_instance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "model_harness.h"
#include "onnx_writer.h"
#include "tests/support/status_matchers.h"

namespace sluice::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kWidth = 64;
constexpr size_t kSlotsPerPlan = 5;

class ModelInstanceTest : public model::ModelTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    ModelTest::SetUp();
    const std::vector<float> weights(kWidth * kWidth, 0.5f);
    auto loaded = Load(model::OnnxWriter()
                           .Input("x", DataType::kFp32, {-1, kWidth})
                           .Floats("w1", {kWidth, kWidth}, weights)
                           .Floats("w2", {kWidth, kWidth}, weights)
                           .Node("MatMul", {"x", "w1"}, {"h"})
                           .Node("MatMul", {"h", "w2"}, {"y"})
                           .Output("y", DataType::kFp32, {-1, kWidth})
                           .Serialize());
    ASSERT_OK(loaded);
    model_ = *std::move(loaded);
    ServedModel served;
    served.name = "chain";
    served.version = 7;
    served.inputs.resize(1);
    served.inputs[0].type = DataType::kFp32;
    served.outputs = served.inputs;
    served.max_batch_size = 8;
    served.shape_buckets = {{{kWidth}}};
    served_ = std::make_shared<ServedModel>(std::move(served));
  }

  std::unique_ptr<gpu::Device> DeviceWith(size_t limit_bytes) {
    return MakeDevice({.index = 3, .copiers = GetParam(), .memory_limit_bytes = limit_bytes});
  }
  absl::StatusOr<std::unique_ptr<ModelInstance>> Create(gpu::Device& device, std::array<int, 3> slots = {2, 1, 2},
                                                        std::optional<int64_t> batch_rows = std::nullopt) {
    InstanceOptions options;
    options.batch_rows = batch_rows;
    options.batch_buckets = {1, 8};
    options.slot_counts = slots;
    return ModelInstance::Create(*model_, device, *device_, served_, options);
  }
  /// What this model takes on a device with room for it.
  gpu::MemoryUse Need() {
    const std::unique_ptr<gpu::Device> roomy = DeviceWith(0);
    const auto instance = Create(*roomy);
    EXPECT_OK(instance);
    return roomy->memory().use();
  }

  std::unique_ptr<model::Model> model_;
  std::shared_ptr<const ServedModel> served_;
};

TEST_P(ModelInstanceTest, CountsWeightsAndSlotsExactly) {
  const std::unique_ptr<gpu::Device> device = DeviceWith(0);
  {
    ASSERT_OK_AND_ASSIGN(const auto instance, Create(*device));
    size_t slots = 0;
    for (const PreparedPlan& prepared : instance->plans(0)) {
      const model::SlotMemory memory = prepared.plan->slot_memory();
      slots += kSlotsPerPlan * (memory.device_bytes + memory.pinned_bytes);
    }
    EXPECT_EQ(device->memory().use().of(gpu::MemoryKind::kWeights), instance->weight_bytes());
    EXPECT_EQ(device->memory().use().of(gpu::MemoryKind::kSlots), slots);
    EXPECT_EQ(device->memory().use().of(gpu::MemoryKind::kOther), 0u);
  }
  EXPECT_EQ(device->memory().use(), gpu::MemoryUse());
}

TEST_P(ModelInstanceTest, OneByteTooManyIsRefusedFiftyTimesAndLeavesNothing) {
  const gpu::MemoryUse need = Need();
  const size_t slots = need.of(gpu::MemoryKind::kSlots);
  const size_t limit = need.total() - 1;
  const std::unique_ptr<gpu::Device> device = DeviceWith(limit);
  const auto refused = StatusIs(
      absl::StatusCode::kResourceExhausted,
      AllOf(HasSubstr("model 'chain' version 7 does not fit on host:3: "),
            HasSubstr(absl::StrCat(slots, " bytes for slots do not fit: limit ", limit, " bytes")),
            HasSubstr(absl::StrCat("It needs weights ", need.of(gpu::MemoryKind::kWeights), " bytes, slots ")),
            HasSubstr(" bytes = 5 x "), HasSubstr("(rows: 1) + 5 x "), HasSubstr("(rows: 8), pinned memory of slots "),
            HasSubstr(absl::StrCat("Before it: limit ", limit, " bytes, 0 bytes in use"))));
  for (int i = 0; i < 50; ++i) {
    ASSERT_THAT(Create(*device), refused) << i;
    ASSERT_EQ(device->memory().use(), gpu::MemoryUse()) << i;
  }
  ASSERT_OK_AND_ASSIGN(const auto smaller, Create(*device, {1, 0, 1}));
  EXPECT_EQ(device->memory().use().of(gpu::MemoryKind::kWeights), need.of(gpu::MemoryKind::kWeights));
}

TEST_P(ModelInstanceTest, ExactlyWhatItNeedsIsEnough) {
  const gpu::MemoryUse need = Need();
  const std::unique_ptr<gpu::Device> device = DeviceWith(need.total());
  ASSERT_OK_AND_ASSIGN(const auto instance, Create(*device));
  EXPECT_EQ(device->memory().use(), need);
  EXPECT_THAT(Create(*device),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr(absl::StrCat("Before it: limit ", need.total(), " bytes, ", need.ToString()))));
  EXPECT_EQ(device->memory().use(), need);
}

TEST_P(ModelInstanceTest, WeightsThatDoNotFitAreRefusedWithTheFilesOwnSize) {
  const std::unique_ptr<gpu::Device> device = DeviceWith(kWidth * kWidth);
  for (int i = 0; i < 50; ++i) {
    ASSERT_THAT(Create(*device),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr(absl::StrCat("weights of at least ", 2 * kWidth * kWidth * sizeof(float)))));
    ASSERT_EQ(device->memory().use(), gpu::MemoryUse()) << i;
  }
}

TEST_P(ModelInstanceTest, AHostDeviceFillsItsLargestPlans) {
  // A unit is one kernel there, however many rows.
  const std::unique_ptr<gpu::Device> device = DeviceWith(0);
  ASSERT_OK_AND_ASSIGN(const auto instance, Create(*device));
  EXPECT_EQ(instance->row_choice(0).rule, RowRule::kLargest);
  EXPECT_EQ(&instance->micro_batch(0), &instance->plans(0)[1]);
  for (const RequestClass request_class : kRequestClasses) {
    EXPECT_THAT(instance->plan_rows(0, request_class), ElementsAre(1, 8));
  }
}

TEST_P(ModelInstanceTest, PlansAboveTheMicroBatchHaveLatencySlotsOnly) {
  const std::unique_ptr<gpu::Device> device = DeviceWith(0);
  ASSERT_OK_AND_ASSIGN(const auto instance, Create(*device, {2, 1, 2}, 1));
  EXPECT_EQ(instance->row_choice(0).rule, RowRule::kConfigured);
  EXPECT_EQ(instance->micro_batch(0).rows, 1);
  EXPECT_THAT(instance->plan_rows(0, RequestClass::kLatency), ElementsAre(1, 8));
  EXPECT_THAT(instance->plan_rows(0, RequestClass::kStandard), ElementsAre(1));
  EXPECT_THAT(instance->plan_rows(0, RequestClass::kBatch), ElementsAre(1));
  const PreparedPlan& largest = instance->plans(0)[1];
  EXPECT_NE(largest.slots[static_cast<size_t>(RequestClass::kLatency)], nullptr);
  EXPECT_EQ(largest.slots[static_cast<size_t>(RequestClass::kStandard)], nullptr);
  EXPECT_EQ(largest.slots[static_cast<size_t>(RequestClass::kBatch)], nullptr);
  const model::SlotMemory small = instance->plans(0)[0].plan->slot_memory();
  const model::SlotMemory large = largest.plan->slot_memory();
  const size_t slots = 5 * (small.device_bytes + small.pinned_bytes) + 2 * (large.device_bytes + large.pinned_bytes);
  EXPECT_EQ(device->memory().use().of(gpu::MemoryKind::kSlots), slots);
  // Eight rows one at a time, unless somebody waits for them.
  const absl::Duration one = instance->plans(0)[0].plan->predicted_compute();
  EXPECT_EQ(instance->PredictedCompute(0, 8, RequestClass::kBatch), 8 * one);
  EXPECT_EQ(instance->PredictedCompute(0, 8, RequestClass::kLatency), largest.plan->predicted_compute());

  const std::unique_ptr<gpu::Device> tight = DeviceWith(device->memory().use().total());
  EXPECT_OK(Create(*tight, {2, 1, 2}, 1));
  EXPECT_THAT(Create(*tight), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(" + 5 x ")));
}

INSTANTIATE_TEST_SUITE_P(PinnedMemory, ModelInstanceTest, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "Apart" : "Shared"); });

}  // namespace
}  // namespace sluice::server
