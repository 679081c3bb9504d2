// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "base/status_macros.h"
#include "gpu/kernels/features.h"
#include "model_harness.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr char kFiletype[] = SLUICE_SOURCE_DIR "/models/filetype/1/model.onnx";
constexpr int64_t kChannels = 4, kPixels = 6, kClasses = 3;

std::vector<float> Random(size_t count, uint32_t seed, float low = -1, float high = 1) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = low + (high - low) * static_cast<float>(random() % 10'000) / 10'000.0f;
  return values;
}

/// A residual network in small: conv, norm, Relu, a block with a shortcut, pooling, a fully connected layer.
std::string SmallNet() {
  OnnxWriter writer;
  writer.Input("data", DataType::kFp32, {-1, 2, kPixels, kPixels}).Output("logits", DataType::kFp32, {-1, kClasses});
  writer.Floats("w1", {kChannels, 2, 3, 3}, Random(72, 1)).Floats("w2", {kChannels, kChannels, 1, 1}, Random(16, 2));
  for (const char* name : {"scale", "shift", "mean"}) writer.Floats(name, {kChannels}, Random(4, 3));
  writer.Floats("variance", {kChannels}, Random(4, 4, 0.5f, 2.0f));
  writer.Floats("fc", {kClasses, kChannels}, Random(12, 5)).Floats("fc_bias", {kClasses}, Random(3, 6));
  writer.Node("Conv", {"data", "w1"}, {"c1"}, {IntsAttribute("pads", {1, 1, 1, 1})})
      .Node("BatchNormalization", {"c1", "scale", "shift", "mean", "variance"}, {"n1"})
      .Node("Relu", {"n1"}, {"r1"})
      .Node("Conv", {"r1", "w2"}, {"c2"})
      .Node("BatchNormalization", {"c2", "scale", "shift", "mean", "variance"}, {"n2"})
      .Node("Add", {"n2", "r1"}, {"s"})
      .Node("Relu", {"s"}, {"r2"})
      .Node("GlobalAveragePool", {"r2"}, {"p"})
      .Node("Flatten", {"p"}, {"f"})
      .Node("Gemm", {"f", "fc", "fc_bias"}, {"logits"}, {IntAttribute("transB", 1)});
  return writer.Serialize();
}

/// The same network written out as loops.
std::vector<float> SmallNetReference(const std::vector<float>& data, int64_t batch) {
  const auto w1 = Random(72, 1), w2 = Random(16, 2), p = Random(4, 3), variance = Random(4, 4, 0.5f, 2.0f);
  const auto fc = Random(12, 5), fc_bias = Random(3, 6);
  const auto norm = [&](double x, int64_t c) {
    const auto i = static_cast<size_t>(c);
    return (x - p[i]) / std::sqrt(variance[i] + 1e-5) * p[i] + p[i];
  };
  std::vector<float> logits;
  for (int64_t n = 0; n < batch; ++n) {
    double pooled[kChannels] = {};
    for (int64_t y = 0; y < kPixels; ++y) {
      for (int64_t x = 0; x < kPixels; ++x) {
        double r1[kChannels];
        for (int64_t m = 0; m < kChannels; ++m) {
          double sum = 0;
          for (int64_t c = 0; c < 2; ++c) {
            for (int64_t k = 0; k < 9; ++k) {
              const int64_t yy = y + k / 3 - 1, xx = x + k % 3 - 1;
              if (yy < 0 || xx < 0 || yy >= kPixels || xx >= kPixels) continue;
              sum += data[static_cast<size_t>(((n * 2 + c) * kPixels + yy) * kPixels + xx)] *
                     w1[static_cast<size_t>((m * 2 + c) * 9 + k)];
            }
          }
          r1[m] = std::max(0.0, norm(sum, m));
        }
        for (int64_t m = 0; m < kChannels; ++m) {
          double sum = 0;
          for (int64_t c = 0; c < kChannels; ++c) sum += r1[c] * w2[static_cast<size_t>(m * kChannels + c)];
          pooled[m] += std::max(0.0, norm(sum, m) + r1[m]) / (kPixels * kPixels);
        }
      }
    }
    for (int64_t k = 0; k < kClasses; ++k) {
      double sum = fc_bias[static_cast<size_t>(k)];
      for (int64_t m = 0; m < kChannels; ++m) sum += pooled[m] * fc[static_cast<size_t>(k * kChannels + m)];
      logits.push_back(static_cast<float>(sum));
    }
  }
  return logits;
}

class PlanTest : public ModelTest {
 protected:
  /// A plan with all that it needs to live.
  struct Prepared {
    std::unique_ptr<Model> model;
    std::unique_ptr<DeviceModel> device_model;
    std::unique_ptr<Plan> plan;
  };
  absl::StatusOr<Prepared> Prepare(const std::string& file, const Bucket& bucket, gpu::Device& device) {
    Prepared prepared;
    SLUICE_ASSIGN_OR_RETURN(prepared.model, Load(file));
    SLUICE_ASSIGN_OR_RETURN(prepared.device_model, prepared.model->Instantiate(device, *device_));
    SLUICE_ASSIGN_OR_RETURN(prepared.plan, prepared.device_model->BuildPlan(bucket));
    return prepared;
  }
};

TEST_F(PlanTest, SmallNetIsRightInEveryClassAndBatch) {
  // Goal: reading, passes, memory plan and slots together compute what the file says. Method: a small residual network
  // against loops, launched kernel by kernel and as a captured graph, with unified memory and without.
  gpu::HostDeviceOptions apart;
  apart.index = 1;
  apart.copiers = true;
  const std::unique_ptr<gpu::Device> with_copies = MakeDevice(apart);
  for (gpu::Device* device : {device_.get(), with_copies.get()}) {
    for (const int64_t batch : {int64_t{1}, int64_t{3}}) {
      const auto prepared = Prepare(SmallNet(), {{{batch, 2, kPixels, kPixels}}}, *device);
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      // Two fused convolutions, the pool and the product: the flatten is a view. With the channels last the input is
      // turned first.
      EXPECT_EQ(prepared->plan->unit_count(), gpu::KernelFeaturesOf(*device).channels_last ? 5u : 4u);
      EXPECT_THAT(prepared->plan->output_shapes(), ElementsAre(Shape{batch, kClasses}));
      const std::vector<float> data = Random(static_cast<size_t>(batch * 2 * kPixels * kPixels), 9);
      for (const RequestClass request_class : kRequestClasses) {
        const auto outputs = Run(*prepared->plan, request_class, {ToBytes(data)}, *device);
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        EXPECT_THAT(FromBytes<float>((*outputs)[0]), Pointwise(FloatNear(1e-4f), SmallNetReference(data, batch)));
      }
    }
  }
}

TEST_F(PlanTest, SlotsFollowTheContract) {
  // Goal: stamps first and last, one unit a kernel, a profile, events as the class needs, and no memory shared between
  // slots. Method: two slots of one plan, looked at.
  const auto prepared = Prepare(SmallNet(), {{{1, 2, kPixels, kPixels}}}, *device_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  Plan& plan = *prepared->plan;
  EXPECT_GT(plan.predicted_compute(), absl::ZeroDuration()) << "measured when the plan was built";
  EXPECT_GT(plan.profile(), absl::ZeroDuration());
  EXPECT_LE(plan.longest_unit(), plan.predicted_compute());
  const auto slot = plan.MakeSlot(RequestClass::kBatch);
  const auto second = plan.MakeSlot(RequestClass::kStandard);
  const auto other = plan.MakeSlot(RequestClass::kLatency);
  ASSERT_TRUE(slot.ok() && second.ok() && other.ok());
  ASSERT_EQ((*slot)->launches.size(), plan.unit_count() + 2);
  EXPECT_EQ((*slot)->launches.front().kernel, (*slot)->launches.back().kernel) << "the stamp";
  size_t next = 0;
  std::set<const MovingAverage*> averages;
  for (size_t i = 0; i < (*slot)->units.size(); ++i) {
    EXPECT_EQ((*slot)->units[i].first_launch, next);
    next += (*slot)->units[i].launch_count;
    averages.insert((*slot)->units[i].predicted);
    EXPECT_EQ((*slot)->units[i].predicted, (*second)->units[i].predicted) << "shared by the plan's slots";
  }
  EXPECT_EQ(next, (*slot)->launches.size());
  EXPECT_EQ(averages.size(), plan.unit_count());
  EXPECT_EQ((*slot)->unit_done.size(), plan.unit_count());
  EXPECT_FALSE(static_cast<bool>((*slot)->graph));
  EXPECT_TRUE(static_cast<bool>((*other)->graph));
  EXPECT_TRUE((*other)->units.empty()) << "one graph, nothing to cut";
  EXPECT_EQ((*slot)->inputs[0].pinned.size_bytes, 2u * kPixels * kPixels * sizeof(float));
  EXPECT_EQ((*slot)->inputs[0].device, (*slot)->inputs[0].pinned.device_span()) << "unified memory";
  EXPECT_NE((*slot)->inputs[0].pinned.data, (*other)->inputs[0].pinned.data);
  EXPECT_GT(plan.slot_bytes(), (*slot)->inputs[0].pinned.size_bytes);
}

TEST_F(PlanTest, WeightsExistOnce) {
  // Goal: a second bucket adds no weights. Method: the pool's size after one plan and after two.
  const auto prepared = Prepare(SmallNet(), {{{1, 2, kPixels, kPixels}}}, *device_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const size_t weight_bytes = prepared->device_model->weight_bytes();
  EXPECT_GE(weight_bytes, (72 + 16 + 12) * sizeof(float));
  const auto second = prepared->device_model->BuildPlan({{{1, 2, kPixels, kPixels}}});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(prepared->device_model->weight_bytes(), weight_bytes);
}

TEST_F(PlanTest, OutputsMayBeInputsConstantsAndViews) {
  // Goal: outputs that no kernel writes are copied into the output area. Method: outputs that are an input, a view of
  // one, a constant, one result under two shapes, and a result that later nodes read.
  const std::string file = OnnxWriter()
                               .Input("x", DataType::kFp32, {-1, 2})
                               .Floats("k", {2}, {7, 8})
                               .Ints("flat", {1}, {-1})
                               .Node("Reshape", {"x", "flat"}, {"xv"})
                               .Node("Relu", {"x"}, {"r"})
                               .Node("Reshape", {"r", "flat"}, {"rv"})
                               .Node("Neg", {"r"}, {"n"})
                               .Node("Add", {"n", "r"}, {"z"})
                               .Output("x", DataType::kFp32, {-1, 2})
                               .Output("xv", DataType::kFp32, {-1})
                               .Output("k", DataType::kFp32, {2})
                               .Output("rv", DataType::kFp32, {-1})
                               .Output("r", DataType::kFp32, {-1, 2})
                               .Output("z", DataType::kFp32, {-1, 2})
                               .Serialize();
  const auto outputs = Run(file, {{1, 2}}, {ToBytes<float>({-3, 4})});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(FromBytes<float>((*outputs)[0]), ElementsAre(-3, 4));
  EXPECT_THAT(FromBytes<float>((*outputs)[1]), ElementsAre(-3, 4));
  EXPECT_THAT(FromBytes<float>((*outputs)[2]), ElementsAre(7, 8));
  EXPECT_THAT(FromBytes<float>((*outputs)[3]), ElementsAre(0, 4));
  EXPECT_THAT(FromBytes<float>((*outputs)[4]), ElementsAre(0, 4));
  EXPECT_THAT(FromBytes<float>((*outputs)[5]), ElementsAre(0, 0));
}

TEST_F(PlanTest, InPlaceKernelsDoNotDestroyWhatIsStillRead) {
  // Goal: sharing memory in place never changes a result. Method: 60 seeded random graphs of elementwise nodes and
  // views, against the same graph computed value by value.
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    OnnxWriter writer;
    writer.Input("v0", DataType::kFp32, {4}).Ints("shape", {2}, {2, 2}).Ints("flat", {1}, {4});
    std::vector<std::vector<float>> values = {Random(4, seed)};
    for (size_t i = 1; i < 14; ++i) {
      const size_t a = random() % i, b = random() % i;
      const auto name = [](size_t index) { return "v" + std::to_string(index); };
      std::vector<float> result = values[a];
      switch (random() % 4) {
        case 0:
          writer.Node("Neg", {name(a)}, {name(i)});
          for (float& value : result) value = -value;
          break;
        case 1:
          writer.Node("Reshape", {name(a), "shape"}, {name(i) + "m"});
          writer.Node("Tanh", {name(i) + "m"}, {name(i) + "t"});
          writer.Node("Reshape", {name(i) + "t", "flat"}, {name(i)});
          for (float& value : result) value = std::tanh(value);
          break;
        default:
          writer.Node("Sub", {name(a), name(b)}, {name(i)});
          for (size_t k = 0; k < 4; ++k) result[k] -= values[b][k];
      }
      values.push_back(result);
    }
    writer.Output("v13", DataType::kFp32, {4}).Output("v9", DataType::kFp32, {4});
    const auto outputs = Run(writer.Serialize(), {{4}}, {ToBytes(values[0])});
    ASSERT_TRUE(outputs.ok()) << outputs.status() << " seed " << seed;
    EXPECT_THAT(FromBytes<float>((*outputs)[0]), Pointwise(FloatNear(1e-4f), values[13])) << "seed " << seed;
    EXPECT_THAT(FromBytes<float>((*outputs)[1]), Pointwise(FloatNear(1e-4f), values[9])) << "seed " << seed;
  }
}

TEST_F(PlanTest, RefusesBucketsAndDeclarationsThatDoNotFit) {
  // Goal: a plan's errors name what does not fit. Method: a wrong bucket, and an output declared with another shape.
  auto prepared = Prepare(SmallNet(), {{{1, 3, kPixels, kPixels}}}, *device_);
  EXPECT_EQ(prepared.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(prepared.status().message()), HasSubstr("input 'data': shape [1,3,6,6]"));
  const std::string wrong = OnnxWriter()
                                .Input("x", DataType::kFp32, {-1, 2})
                                .Node("Relu", {"x"}, {"y"})
                                .Output("y", DataType::kFp32, {-1, 3})
                                .Serialize();
  prepared = Prepare(wrong, {{{1, 2}}}, *device_);
  EXPECT_THAT(std::string(prepared.status().message()),
              HasSubstr("output 'y' is declared as FP32[-1,3] but comes out as FP32[1,2]"));
}

TEST_F(PlanTest, OutOfMemoryLeavesNothingBehind) {
  // Goal: slots are refused when memory is out, and what was taken is given back. Method: a device with room for a few
  // slots: made until refused, dropped, and made again just as often.
  gpu::HostDeviceOptions options;
  options.index = 2;
  options.memory_limit_bytes = 256 << 10;
  const std::unique_ptr<gpu::Device> small = MakeDevice(options);
  const auto prepared = Prepare(SmallNet(), {{{8, 2, kPixels, kPixels}}}, *small);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const auto fill = [&] {
    std::vector<std::unique_ptr<gpu::Slot>> slots;
    while (slots.size() < 1000) {
      auto slot = prepared->plan->MakeSlot(RequestClass::kStandard);
      if (!slot.ok()) {
        EXPECT_EQ(slot.status().code(), absl::StatusCode::kResourceExhausted) << slot.status();
        break;
      }
      slots.push_back(*std::move(slot));
    }
    return slots.size();
  };
  const size_t first = fill();
  EXPECT_GT(first, 0u);
  EXPECT_LT(first, 1000u);
  EXPECT_EQ(fill(), first);
}

TEST_F(PlanTest, FiletypeModelRuns) {
  // Goal: the demo model loads, folds to few kernels and gives probabilities that depend on the input. Method: the file
  // itself, two inputs: C source and noise. (Parity with another runtime is a test of the whole server.)
  const auto model = LoadOnnxModel(kFiletype);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->opset(), 15);
  ASSERT_EQ((*model)->signature().inputs.size(), 1u);
  EXPECT_EQ((*model)->signature().inputs[0].type, DataType::kInt32);
  EXPECT_EQ((*model)->signature().outputs[0].dims, (Shape{-1, 214}));
  const auto device_model = (*model)->Instantiate(*device_, *device_);
  ASSERT_TRUE(device_model.ok()) << device_model.status();
  const auto plan = (*device_model)->BuildPlan({{{2, 2048}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE((*plan)->unit_count(), 45u) << "95 nodes before";
  std::vector<int32_t> tokens(2 * 2048);
  const std::string source = "#include <stdio.h>\nint main(void) { printf(\"hello\\n\"); return 0; }\n";
  for (size_t i = 0; i < 2048; ++i) tokens[i] = source[i % source.size()];
  std::mt19937 random(1);
  for (size_t i = 2048; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(random() % 256);
  const auto outputs = Run(**plan, RequestClass::kStandard, {ToBytes(tokens)}, *device_);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const std::vector<float> scores = FromBytes<float>((*outputs)[0]);
  ASSERT_EQ(scores.size(), 2u * 214);
  EXPECT_THAT(scores, Each(::testing::AllOf(::testing::Ge(0.0f), ::testing::Le(1.0f))));
  const auto middle = scores.begin() + 214;
  EXPECT_NEAR(std::accumulate(scores.begin(), middle, 0.0), 1.0, 1e-4);
  EXPECT_NEAR(std::accumulate(middle, scores.end(), 0.0), 1.0, 1e-4);
  // "c" is the 18th of the labels in models/filetype/config.min.json.
  EXPECT_EQ(std::max_element(scores.begin(), middle) - scores.begin(), 17);
  EXPECT_NE(std::max_element(middle, scores.end()) - middle, 17);
}

}  // namespace
}  // namespace sluice::model
