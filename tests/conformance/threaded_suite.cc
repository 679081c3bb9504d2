// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Several threads on one device at once: what ThreadSanitizer looks at.
#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "tests/conformance/device_suite.h"

namespace sluice::gpu::conformance {
namespace {

constexpr int kThreads = 4;

class ThreadedSuite : public DeviceTest {
 protected:
  static constexpr int64_t kCount = 333;

  struct Lane {
    StagedBuffer sum, one;
    KernelArgs args;
  };
  std::vector<Lane> MakeLanes() {
    add_kernel(kCount);  // Prepared before any thread asks for it.
    std::vector<Lane> lanes;
    for (int i = 0; i < kThreads; ++i) {
      Lane lane{MakeBuffer(kCount * sizeof(float)), MakeBuffer(kCount * sizeof(float)), {}};
      for (float& value : lane.one.floats()) value = 1.0f;
      lane.args = Args({lane.sum.device, lane.one.device, lane.sum.device});
      lanes.push_back(std::move(lane));
    }
    return lanes;
  }
  /// Adds one `times` times and copies out.
  void RunLane(StreamRef stream, const Lane& lane, const Kernel& add, int times) {
    Upload(stream, lane.sum);
    Upload(stream, lane.one);
    for (int i = 0; i < times; ++i) EXPECT_OK(device().Launch(stream, add, lane.args));
    Download(stream, lane.sum);
  }
  static void InThreads(const std::function<void(int)>& body) {
    std::latch start(kThreads);
    std::vector<Thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back("conformance", [&, i] {
        start.arrive_and_wait();
        body(i);
      });
    }
  }
};

// Goal: many threads issue to streams of their own at once. Method: each counts in its own memory.
TEST_F(ThreadedSuite, IssueToDifferentStreams) {
  std::vector<Lane> lanes = MakeLanes();
  const Kernel& add = add_kernel(kCount);
  InThreads([&](int i) {
    Stream stream = MakeStream(i % 2 == 0 ? StreamPriority::kHigh : StreamPriority::kLow);
    Event done = MakeEvent(i % 2 == 0 ? WaitMode::kSpin : WaitMode::kBlock);
    RunLane(stream, lanes[i], add, 200);
    EXPECT_OK(device().Record(stream, done));
    EXPECT_OK(device().Synchronize(done));
    EXPECT_THAT(lanes[i].sum.floats(), ::testing::Each(200.0f));
  });
}

// Goal: threads have different streams of their own, and they work at once. Method: as above, on those.
TEST_F(ThreadedSuite, ThreadStreamsAtOnce) {
  std::vector<Lane> lanes = MakeLanes();
  const Kernel& add = add_kernel(kCount);
  std::vector<StreamRef> streams(kThreads);
  std::latch taken(kThreads);
  InThreads([&](int i) {
    absl::StatusOr<StreamRef> stream = device().ThreadStream();
    taken.arrive_and_wait();  // All live at the same time.
    ASSERT_OK(stream);
    streams[i] = *stream;
    RunLane(*stream, lanes[i], add, 100);
    EXPECT_OK(device().Synchronize(*stream));
    EXPECT_THAT(lanes[i].sum.floats(), ::testing::Each(100.0f));
  });
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(std::count(streams.begin(), streams.end(), streams[i]), 1) << i;
  }
}

// Goal: one thread may wait for what another issues. Method: one records round after round, the others synchronise and
// query.
TEST_F(ThreadedSuite, WaitForAnotherThreadsWork) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  stamp_kernel();
  delay_kernel(absl::Microseconds(20));
  Stamps stamps = MakeStamps(1);
  ASSERT_OK(device().Record(stream, event));
  InThreads([&](int i) {
    for (int round = 0; round < 200; ++round) {
      if (i == 0) {
        Delay(stream, absl::Microseconds(20));
        Stamp(stream, stamps, 0);
        EXPECT_OK(device().Record(stream, event));
      } else if (i == 1) {
        EXPECT_OK(device().Query(event));
      } else {
        EXPECT_OK(device().Synchronize(event));
      }
    }
  });
  Finish(stream);
  EXPECT_NE(stamps.value(0), 0u);
}

// Goal: threads hand work to each other over events. Method: a ring of streams, each thread waiting for the one before.
TEST_F(ThreadedSuite, StreamsWaitForOtherThreadsStreams) {
  constexpr int kRounds = 50;
  StagedBuffer sum = MakeBuffer(kCount * sizeof(float));
  StagedBuffer one = MakeBuffer(kCount * sizeof(float));
  for (float& value : one.floats()) value = 1.0f;
  const KernelArgs args = Args({sum.device, one.device, sum.device});
  const Kernel& add = add_kernel(kCount);
  std::vector<Stream> streams;
  std::vector<Event> events;
  for (int i = 0; i < kThreads; ++i) {
    streams.push_back(MakeStream());
    events.push_back(MakeEvent());
  }
  Upload(streams.back(), sum);
  Upload(streams.back(), one);
  ASSERT_OK(device().Record(streams.back(), events.back()));
  std::atomic<int> turn = 0;
  InThreads([&](int i) {
    for (int round = 0; round < kRounds; ++round) {
      for (int now = turn.load(); now != round * kThreads + i; now = turn.load()) turn.wait(now);
      EXPECT_OK(device().Wait(streams[i], events[(i + kThreads - 1) % kThreads]));
      EXPECT_OK(device().Launch(streams[i], add, args));
      EXPECT_OK(device().Record(streams[i], events[i]));
      turn.fetch_add(1);
      turn.notify_all();
    }
  });
  Download(streams.back(), sum);
  Finish(streams.back());
  EXPECT_THAT(sum.floats(), ::testing::Each(static_cast<float>(kRounds * kThreads)));
}

// Goal: objects are made and destroyed by several threads at once. Method: everything, in a loop, used.
TEST_F(ThreadedSuite, CreateAndDestroyAtOnce) {
  stamp_kernel();
  InThreads([&](int) {
    for (int round = 0; round < 30; ++round) {
      Stream stream = MakeStream();
      Event event = MakeEvent();
      TimedEvent timed = MakeTimedEvent();
      Stamps stamps = MakeStamps(1);
      Stamp(stream, stamps, 0);
      EXPECT_OK(device().Record(stream, event));
      EXPECT_OK(device().Record(stream, timed));
      EXPECT_OK(device().Synchronize(event));
      EXPECT_NE(stamps.value(0), 0u);
    }
  });
}

// Goal: captures of different threads do not meet. Method: each captures, launches and checks, at once.
TEST_F(ThreadedSuite, CapturesAtOnce) {
  std::vector<Lane> lanes = MakeLanes();
  const Kernel& add = add_kernel(kCount);
  InThreads([&](int i) {
    Stream stream = MakeStream();
    for (int round = 0; round < 10; ++round) {
      EXPECT_OK(device().BeginCapture(stream));
      RunLane(stream, lanes[i], add, 5);
      absl::StatusOr<Graph> graph = device().EndCapture(stream);
      ASSERT_OK(graph);
      EXPECT_OK(device().LaunchGraph(stream, *graph));
      EXPECT_OK(device().Synchronize(stream));
    }
    EXPECT_THAT(lanes[i].sum.floats(), ::testing::Each(50.0f));
  });
}

// Goal: several threads may wait for the same event. Method: all synchronise with one that completes late.
TEST_F(ThreadedSuite, ManyWaitersOfOneEvent) {
  Stream stream = MakeStream();
  Event event = MakeEvent();
  Stamps stamps = MakeStamps(1);
  Delay(stream, absl::Milliseconds(5));
  Stamp(stream, stamps, 0);
  ASSERT_OK(device().Record(stream, event));
  InThreads([&](int) {
    EXPECT_OK(device().Synchronize(event));
    EXPECT_NE(stamps.value(0), 0u);
  });
}

}  // namespace
}  // namespace sluice::gpu::conformance
