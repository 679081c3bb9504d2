// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Graphs: capture, launch, priority, and captures that go wrong.
#include <memory>
#include <utility>

#include "base/thread.h"
#include "tests/conformance/device_suite.h"

namespace sluice::gpu::conformance {
namespace {

class GraphSuite : public DeviceTest {
 protected:
  static constexpr int64_t kCount = 2047;

  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    a_ = MakeBuffer(kCount * sizeof(float));
    b_ = MakeBuffer(kCount * sizeof(float));
    sum_ = MakeBuffer(kCount * sizeof(float));
    add_args_ = Args({a_.device, b_.device, sum_.device});
    double_args_ = Args({sum_.device, sum_.device, sum_.device});
  }
  void TearDown() override {
    a_ = {};
    b_ = {};
    sum_ = {};
    DeviceTest::TearDown();
  }

  /// sum = 2 (a + b), with the copies.
  void IssuePlan(StreamRef stream) {
    Upload(stream, a_);
    Upload(stream, b_);
    EXPECT_OK(device().Launch(stream, add_kernel(kCount), add_args_));
    EXPECT_OK(device().Launch(stream, add_kernel(kCount), double_args_));
    Download(stream, sum_);
  }
  Graph CapturePlan(StreamRef stream) {
    add_kernel(kCount);  // Prepared before the capture begins.
    EXPECT_OK(device().BeginCapture(stream));
    IssuePlan(stream);
    absl::StatusOr<Graph> graph = device().EndCapture(stream);
    EXPECT_OK(graph);
    return graph.ok() ? *std::move(graph) : Graph();
  }
  void SetInputs(float a, float b) {
    for (float& value : a_.floats()) value = a;
    for (float& value : b_.floats()) value = b;
  }

  StagedBuffer a_, b_, sum_;
  KernelArgs add_args_, double_args_;
};

// Goal: a graph does what the captured calls do. Method: the same plan, directly and as a graph.
TEST_F(GraphSuite, LaunchEqualsDirectIssue) {
  Stream stream = MakeStream();
  SetInputs(1.0f, 2.0f);
  IssuePlan(stream);
  Finish(stream);
  EXPECT_THAT(sum_.floats(), ::testing::Each(6.0f));
  Graph graph = CapturePlan(stream);
  SetInputs(3.0f, 4.0f);
  EXPECT_OK(device().LaunchGraph(stream, graph));
  Finish(stream);
  EXPECT_THAT(sum_.floats(), ::testing::Each(14.0f));
}

// Goal: capturing runs nothing. Method: after the capture and a wait the result is as before.
TEST_F(GraphSuite, CaptureRunsNothing) {
  Stream stream = MakeStream();
  SetInputs(1.0f, 1.0f);
  Graph graph = CapturePlan(stream);
  Finish(stream);
  EXPECT_THAT(sum_.floats(), ::testing::Each(0.0f));
}

// Goal: a graph can be launched again, with other data in the same memory. Method: ten launches.
TEST_F(GraphSuite, LaunchesAgainWithChangedData) {
  Stream stream = MakeStream();
  Graph graph = CapturePlan(stream);
  for (int i = 0; i < 10; ++i) {
    SetInputs(static_cast<float>(i), 0.5f);
    EXPECT_OK(device().LaunchGraph(stream, graph));
    Finish(stream);
    EXPECT_THAT(sum_.floats(), ::testing::Each(2.0f * static_cast<float>(i) + 1.0f));
  }
}

// Goal: launches queue up in order without a wait between. Method: sum = sum + sum, launched eight times in a row.
TEST_F(GraphSuite, LaunchesQueueInOrder) {
  Stream stream = MakeStream();
  Stream capturing = MakeStream();
  add_kernel(kCount);
  EXPECT_OK(device().BeginCapture(capturing));
  EXPECT_OK(device().Launch(capturing, add_kernel(kCount), double_args_));
  ASSERT_OK_AND_ASSIGN(Graph graph, device().EndCapture(capturing));
  for (float& value : sum_.floats()) value = 1.0f;
  Upload(stream, sum_);
  for (int i = 0; i < 8; ++i) EXPECT_OK(device().LaunchGraph(stream, graph));
  Download(stream, sum_);
  Finish(stream);
  EXPECT_THAT(sum_.floats(), ::testing::Each(256.0f));
}

// Goal: a graph takes the priority of the stream it is launched in, not of the one that captured it. Method: captured
// in a low stream, launched in a high one while low work is queued; judged as in StreamSuite.HighPriorityOvertakes.
TEST_F(GraphSuite, TakesPriorityOfItsLaunchStream) {
  Stream low = MakeStream(StreamPriority::kLow);
  Stream high = MakeStream(StreamPriority::kHigh);
  Event half = MakeEvent();
  Stamps stamps = MakeStamps(3);
  stamp_kernel();
  EXPECT_OK(device().BeginCapture(low));
  Stamp(low, stamps, 1);
  Stamp(low, stamps, 2);
  ASSERT_OK_AND_ASSIGN(Graph graph, device().EndCapture(low));
  EXPECT_OK(device().LaunchGraph(high, graph));
  Finish(high);
  bool judged = false;
  for (absl::Duration each = absl::Microseconds(200); each < absl::Milliseconds(100) && !judged; each *= 4) {
    Delay(low, each, 6);
    EXPECT_OK(device().Record(low, half));
    Delay(low, each, 6);
    Stamp(low, stamps, 0);
    EXPECT_OK(device().LaunchGraph(high, graph));
    ASSERT_OK_AND_ASSIGN(const bool too_late, device().Query(half));
    Finish(low);
    Finish(high);
    if (too_late) continue;
    judged = true;
    EXPECT_LT(stamps.value(1), stamps.value(2));
    EXPECT_LT(stamps.value(2), stamps.value(0));
  }
  EXPECT_TRUE(judged) << "the device was always faster than this thread";
}

// Goal: a stream is usable as before after its capture has ended. Method: work right after it.
TEST_F(GraphSuite, StreamWorksAfterCapture) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  Graph graph = CapturePlan(stream);
  SetInputs(2.0f, 2.0f);
  IssuePlan(stream);
  EXPECT_OK(device().Record(stream, event));
  EXPECT_OK(device().Synchronize(event));
  EXPECT_THAT(sum_.floats(), ::testing::Each(8.0f));
}

// Goal: an empty capture gives a graph that does nothing. Method: launch it before an event.
TEST_F(GraphSuite, EmptyGraph) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  EXPECT_OK(device().BeginCapture(stream));
  ASSERT_OK_AND_ASSIGN(Graph graph, device().EndCapture(stream));
  EXPECT_OK(device().LaunchGraph(stream, graph));
  EXPECT_OK(device().Record(stream, event));
  EXPECT_OK(device().Synchronize(event));
}

// Goal: EndCapture needs a capture. Method: call it without one, and twice.
TEST_F(GraphSuite, EndWithoutBeginIsRefused) {
  Stream stream = MakeStream();
  EXPECT_THAT(device().EndCapture(stream), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(device().BeginCapture(stream));
  EXPECT_OK(device().EndCapture(stream));
  EXPECT_THAT(device().EndCapture(stream), StatusIs(absl::StatusCode::kFailedPrecondition));
  Finish(stream);
}

// Goal: a second BeginCapture is refused and does not harm the first. Method: nested begin, then a full capture.
TEST_F(GraphSuite, NestedCaptureIsRefused) {
  Stream stream = MakeStream();
  add_kernel(kCount);
  EXPECT_OK(device().BeginCapture(stream));
  EXPECT_THAT(device().BeginCapture(stream), StatusIs(absl::StatusCode::kFailedPrecondition));
  IssuePlan(stream);
  ASSERT_OK_AND_ASSIGN(Graph graph, device().EndCapture(stream));
  SetInputs(1.0f, 4.0f);
  EXPECT_OK(device().LaunchGraph(stream, graph));
  Finish(stream);
  EXPECT_THAT(sum_.floats(), ::testing::Each(10.0f));
}

// Goal: what cannot be captured is refused and does not harm the capture. Method: synchronise, record, wait and launch
// another graph inside one.
TEST_F(GraphSuite, WhatCannotBeCapturedIsRefused) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  TimedEvent timed = MakeTimedEvent();
  EXPECT_OK(device().Record(stream, event));
  Graph inner = CapturePlan(stream);
  EXPECT_OK(device().BeginCapture(stream));
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(device().Synchronize(stream), refused);
  EXPECT_THAT(device().Record(stream, event), refused);
  EXPECT_THAT(device().Record(stream, timed), refused);
  EXPECT_THAT(device().Wait(stream, event), refused);
  EXPECT_THAT(device().LaunchGraph(stream, inner), refused);
  IssuePlan(stream);
  ASSERT_OK_AND_ASSIGN(Graph graph, device().EndCapture(stream));
  SetInputs(2.0f, 1.0f);
  EXPECT_OK(device().LaunchGraph(stream, graph));
  Finish(stream);
  EXPECT_THAT(sum_.floats(), ::testing::Each(6.0f));
}

// Goal: a refused launch inside a capture leaves the capture whole. Method: a bad kernel in the middle.
TEST_F(GraphSuite, BadLaunchInsideCapture) {
  Stream stream = MakeStream();
  add_kernel(kCount);
  EXPECT_OK(device().BeginCapture(stream));
  const UnlaunchableKernel hungry(device().info().backend, 4096);
  EXPECT_THAT(device().Launch(stream, hungry, {}), StatusIs(absl::StatusCode::kInternal));
  IssuePlan(stream);
  ASSERT_OK_AND_ASSIGN(Graph graph, device().EndCapture(stream));
  SetInputs(1.0f, 1.0f);
  EXPECT_OK(device().LaunchGraph(stream, graph));
  Finish(stream);
  EXPECT_THAT(sum_.floats(), ::testing::Each(4.0f));
}

// Goal: a capture belongs to its thread. Method: another thread tries to issue into it and to end it.
TEST_F(GraphSuite, CaptureBelongsToItsThread) {
  Stream stream = MakeStream();
  const Kernel& add = add_kernel(kCount);
  EXPECT_OK(device().BeginCapture(stream));
  Thread thread("other", [&] {
    EXPECT_THAT(device().Launch(stream, add, add_args_), StatusIs(absl::StatusCode::kInternal));
    EXPECT_THAT(device().EndCapture(stream), StatusIs(absl::StatusCode::kInternal));
  });
  thread.Join();
  IssuePlan(stream);
  ASSERT_OK_AND_ASSIGN(Graph graph, device().EndCapture(stream));
  SetInputs(1.0f, 2.0f);
  EXPECT_OK(device().LaunchGraph(stream, graph));
  Finish(stream);
  EXPECT_THAT(sum_.floats(), ::testing::Each(6.0f));
}

// Goal: other threads work while one captures. Method: another thread runs the plan on its stream inside the capture.
TEST_F(GraphSuite, OtherThreadsWorkDuringCapture) {
  Stream stream = MakeStream();
  SetInputs(5.0f, 5.0f);
  add_kernel(kCount);
  EXPECT_OK(device().BeginCapture(stream));
  EXPECT_OK(device().Launch(stream, add_kernel(kCount), double_args_));
  Thread thread("other", [&] {
    Stream other = MakeStream();
    Event event = MakeEvent();
    StagedBuffer fresh = MakeBuffer(4096);
    IssuePlan(other);
    EXPECT_OK(device().Record(other, event));
    EXPECT_OK(device().Query(event));
    EXPECT_OK(device().Synchronize(event));
    EXPECT_THAT(sum_.floats(), ::testing::Each(20.0f));
  });
  thread.Join();
  EXPECT_OK(device().EndCapture(stream));
}

// Goal: a stream can be destroyed in the middle of a capture. Method: do it, then capture with another.
TEST_F(GraphSuite, DestroyStreamInsideCapture) {
  add_kernel(kCount);
  {
    Stream stream = MakeStream();
    EXPECT_OK(device().BeginCapture(stream));
    IssuePlan(stream);
  }
  Stream stream = MakeStream();
  Graph graph = CapturePlan(stream);
  EXPECT_OK(device().LaunchGraph(stream, graph));
  Finish(stream);
}

// Goal: destroying a graph that is queued is safe. Method: destroy it behind a delay; its result is there.
TEST_F(GraphSuite, DestroyWithOutstandingWork) {
  Stream stream = MakeStream();
  SetInputs(1.0f, 0.0f);
  {
    Graph graph = CapturePlan(stream);
    Delay(stream, absl::Milliseconds(3));
    EXPECT_OK(device().LaunchGraph(stream, graph));
  }
  Finish(stream);
  EXPECT_THAT(sum_.floats(), ::testing::Each(2.0f));
}

// Goal: graphs can be made and destroyed without end. Method: two hundred, each launched.
TEST_F(GraphSuite, CreateAndDestroyLeaksNothing) {
  Stream stream = MakeStream();
  SetInputs(1.0f, 1.0f);
  for (int i = 0; i < 200; ++i) {
    Graph graph = CapturePlan(stream);
    ASSERT_OK(device().LaunchGraph(stream, graph));
  }
  Finish(stream);
  EXPECT_THAT(sum_.floats(), ::testing::Each(4.0f));
}

}  // namespace
}  // namespace sluice::gpu::conformance
