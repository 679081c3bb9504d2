// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// How a plan is cut into units (the first and last launch are stamps and belong to their neighbours), and how a profile
// shares the device.
#include "model/plan_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/kernels/library.h"
#include "gpu/load_turns.h"
#include "model_harness.h"
#include "onnx_writer.h"
#include "tests/support/faulty_device.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;

std::vector<absl::Duration> Times(std::initializer_list<int> microseconds) {
  std::vector<absl::Duration> times;
  for (const int us : microseconds) times.push_back(absl::Microseconds(us));
  return times;
}

constexpr absl::Duration kTarget = absl::Microseconds(20);

TEST(CutUnits, OnTheHostAUnitIsAKernel) {
  EXPECT_THAT(CutUnits(gpu::Backend::kHost, Times({1, 5, 5, 5, 1}), kTarget), ElementsAre(0, 2, 3));
  EXPECT_THAT(CutUnits(gpu::Backend::kHost, Times({1, 5, 1}), kTarget), ElementsAre(0));
  EXPECT_THAT(CutUnits(gpu::Backend::kHost, Times({1, 1}), kTarget), ElementsAre(0)) << "a plan without kernels";
}

TEST(CutUnits, OnCudaKernelsArePutTogetherUpToTheTarget) {
  EXPECT_THAT(CutUnits(gpu::Backend::kCuda, Times({1, 9, 9, 9, 9, 1}), kTarget), ElementsAre(0, 3));
  EXPECT_THAT(CutUnits(gpu::Backend::kCuda, Times({1, 9, 9, 1}), kTarget), ElementsAre(0));
  EXPECT_THAT(CutUnits(gpu::Backend::kCuda, Times({1, 1}), kTarget), ElementsAre(0));
}

TEST(CutUnits, AKernelLongerThanTheTargetIsAUnitOfItsOwn) {
  EXPECT_THAT(CutUnits(gpu::Backend::kCuda, Times({1, 90, 90, 5, 90, 5, 5, 1}), kTarget), ElementsAre(0, 2, 3, 4, 5));
}

/// Runs until it is over; `run_us` gives the n-th run's time.
template <class RunUs>
int RunsUntilOver(RunUs run_us) {
  WarmUp warm_up;
  int runs = 1;
  while (!warm_up.IsOver(absl::Microseconds(run_us(runs)))) ++runs;
  return runs;
}

TEST(WarmUp, EndsWhenRunsStopGettingShorter) {
  EXPECT_EQ(RunsUntilOver([](int) { return 1000; }), 5) << "the first, and four that are not faster";
  EXPECT_EQ(RunsUntilOver([](int run) { return run < 5 ? 2000 - 200 * run : 1000; }), 9);
  EXPECT_EQ(RunsUntilOver([](int run) { return run % 2 == 0 ? 1000 : 995; }), 5) << "less than a percent is noise";
}

TEST(WarmUp, IsBounded) {
  EXPECT_EQ(RunsUntilOver([](int) { return 9000; }), 3) << "by time";
  EXPECT_EQ(RunsUntilOver([](int run) { return 300 - 4 * run; }), WarmUp::kMostRuns) << "by runs";
  EXPECT_EQ(RunsUntilOver([](int) { return 0; }), WarmUp::kMostRuns);
}

TEST(WarmUp, ShortRunsProveNothingBeforeClocksCouldRise) {
  EXPECT_EQ(RunsUntilOver([](int) { return 100; }), 20) << "2 ms";
}

/// Turns that are granted at once. Counts what is launched inside of them.
class CountingTurns final : public gpu::LoadTurns {
 public:
  CountingTurns(const gpu::FaultyDevice& device, absl::Duration longest) : device_(device), longest_(longest) {}

  absl::Duration LongestTurn() override { return longest_; }
  absl::StatusOr<bool> Run(absl::Duration, absl::FunctionRef<absl::Status()> work) override {
    const int launches = device_.call_count(gpu::DeviceMethod::kLaunch);
    const int graphs = device_.call_count(gpu::DeviceMethod::kLaunchGraph);
    const int waits = device_.call_count(gpu::DeviceMethod::kSynchronize);
    const absl::Status status = work();
    launches_ += device_.call_count(gpu::DeviceMethod::kLaunch) - launches;
    graphs_ += device_.call_count(gpu::DeviceMethod::kLaunchGraph) - graphs;
    unawaited_ += device_.call_count(gpu::DeviceMethod::kSynchronize) == waits ? 1 : 0;
    ++turns_;
    if (!status.ok()) return status;
    return turns_ % disturbed_every_ != 0;
  }

  const gpu::FaultyDevice& device_;
  const absl::Duration longest_;
  int disturbed_every_ = 1 << 30;
  int turns_ = 0, launches_ = 0, graphs_ = 0, unawaited_ = 0;
};

class SharedProfile : public ModelTest {
 protected:
  void SetUp() override {
    ModelTest::SetUp();
    faulty_ = std::make_unique<gpu::FaultyDevice>(MakeDevice({}));
    OnnxWriter writer;
    writer.Input("x", DataType::kFp32, {-1, 8}).Output("y", DataType::kFp32, {-1, 8});
    writer.Floats("w", {8, 8}, std::vector<float>(64, 0.5f));
    writer.Node("MatMul", {"x", "w"}, {"a"}).Node("Softmax", {"a"}, {"b"}).Node("MatMul", {"b", "w"}, {"y"});
    auto model = Load(writer.Serialize());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  void Build(CountingTurns& turns) {
    faulty_->kernels().SetLoadTurns(&turns);
    device_model_ = *model_->Instantiate(*faulty_, *device_);
    auto plan = device_model_->BuildPlan({{{2, 8}}});
    ASSERT_TRUE(plan.ok()) << plan.status();
    launch_count_ = static_cast<int>((*plan)->unit_count()) + 2;  // On the host a unit is a kernel; two stamps.
  }

  std::unique_ptr<gpu::FaultyDevice> faulty_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<DeviceModel> device_model_;
  int launch_count_ = 0;
};

TEST_F(SharedProfile, LaunchesNothingOutsideOfATurnAndWaitsInsideOfIt) {
  CountingTurns turns(*faulty_, absl::InfiniteDuration());
  ASSERT_NO_FATAL_FAILURE(Build(turns));
  EXPECT_EQ(turns.launches_, 2 * launch_count_) << "each once, then measured";
  EXPECT_EQ(faulty_->call_count(gpu::DeviceMethod::kLaunch), 3 * launch_count_) << "and once into the graph";
  EXPECT_EQ(turns.graphs_, 3) << "all of them in a row";
  EXPECT_EQ(faulty_->call_count(gpu::DeviceMethod::kLaunchGraph), turns.graphs_);
  EXPECT_EQ(turns.unawaited_, 0);
}

TEST_F(SharedProfile, TakesShortTurnsBesideLatencyRequests) {
  // Goal: beside traffic nothing longer than a turn is launched. Method: turns too short for the plan as a whole.
  CountingTurns turns(*faulty_, absl::Nanoseconds(1));
  ASSERT_NO_FATAL_FAILURE(Build(turns));
  EXPECT_EQ(turns.launches_, 2 * launch_count_);
  EXPECT_EQ(faulty_->call_count(gpu::DeviceMethod::kLaunchGraph), 0);
}

TEST_F(SharedProfile, MeasuresAgainWhatWasDisturbedAtMostTwice) {
  CountingTurns turns(*faulty_, absl::Nanoseconds(1));
  turns.disturbed_every_ = 1;
  ASSERT_NO_FATAL_FAILURE(Build(turns));
  EXPECT_EQ(turns.launches_, 3 * 2 * launch_count_);
}

}  // namespace
}  // namespace sluice::model
