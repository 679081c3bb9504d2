// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// What the conformance suite cannot see from outside: exact order of kernels, bounds, and a device that is lost. A
// kernel that waits for the test holds the compute thread, so that order does not depend on time.
#include "gpu/host/host_streams.h"

#include <latch>
#include <string>
#include <vector>

#include "base/thread.h"
#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace sluice::gpu::host {
namespace {

using ::testing::ElementsAre;

/// Appends its name to a log. Only one compute thread runs kernels, and the test reads after a synchronise.
class LoggingKernel final : public HostKernel {
 public:
  LoggingKernel(std::string name, std::vector<std::string>& log) : HostKernel(name, 0), log_(log) {}
  absl::Status Run(const KernelArgs&) const override {
    log_.push_back(name());
    return absl::OkStatus();
  }

 private:
  std::vector<std::string>& log_;
};

/// Holds its thread until the test opens it.
class HoldingKernel final : public HostKernel {
 public:
  HoldingKernel() : HostKernel("hold", 0) {}
  absl::Status Run(const KernelArgs&) const override {
    running_.count_down();
    open_.wait();
    return absl::OkStatus();
  }
  void AwaitRunning() const { running_.wait(); }
  void Open() { open_.count_down(); }

 private:
  mutable std::latch running_{1};
  mutable std::latch open_{1};
};

class FailingKernel final : public HostKernel {
 public:
  FailingKernel() : HostKernel("fail", 0) {}
  absl::Status Run(const KernelArgs&) const override { return absl::InternalError("the library broke"); }
};

HostNode NodeOf(const HostKernel& kernel) {
  HostNode node;
  node.kernel = &kernel;
  return node;
}

class HostStreamsTest : public ::testing::Test {
 protected:
  HostStream* MakeStream(HostStreams& streams, StreamPriority priority = StreamPriority::kDefault) {
    absl::StatusOr<HostStream*> stream = streams.Create(priority);
    EXPECT_OK(stream);
    return stream.ok() ? *stream : nullptr;
  }

  FakeClock clock_;
  std::vector<std::string> log_;
  LoggingKernel a_{"a", log_}, b_{"b", log_}, c_{"c", log_}, d_{"d", log_};
  HoldingKernel hold_;
};

// Goal: the head of the highest-priority ready stream runs next, the oldest-issued first among equals. Method: hold the
// compute thread, issue in an order that is wrong on purpose, let go.
TEST_F(HostStreamsTest, OrderOfKernels) {
  HostStreams streams({}, clock_);
  HostStream* holder = MakeStream(streams);
  HostStream* low = MakeStream(streams, StreamPriority::kLow);
  HostStream* first = MakeStream(streams);
  HostStream* second = MakeStream(streams);
  HostStream* high = MakeStream(streams, StreamPriority::kHigh);
  EXPECT_OK(streams.Issue(holder, NodeOf(hold_)));
  hold_.AwaitRunning();
  EXPECT_OK(streams.Issue(low, NodeOf(d_)));
  EXPECT_OK(streams.Issue(second, NodeOf(b_)));
  EXPECT_OK(streams.Issue(first, NodeOf(c_)));
  EXPECT_OK(streams.Issue(high, NodeOf(a_)));
  EXPECT_OK(streams.Issue(high, NodeOf(a_)));
  hold_.Open();
  EXPECT_OK(streams.Synchronize(low));
  EXPECT_THAT(log_, ElementsAre("a", "a", "b", "c", "d"));
}

// Goal: a graph gives way to a higher priority between two of its kernels, and takes the priority of its launch stream.
// Method: the same graph in a low and a high stream, launched low first.
TEST_F(HostStreamsTest, GraphsHaveKernelGranularity) {
  HostStreams streams({}, clock_);
  HostStream* holder = MakeStream(streams, StreamPriority::kHigh);
  HostStream* low = MakeStream(streams, StreamPriority::kLow);
  HostStream* high = MakeStream(streams, StreamPriority::kHigh);
  HoldingKernel middle;
  EXPECT_OK(streams.BeginCapture(low));
  EXPECT_OK(streams.Issue(low, NodeOf(a_)));
  EXPECT_OK(streams.Issue(low, NodeOf(middle)));
  EXPECT_OK(streams.Issue(low, NodeOf(b_)));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<HostGraph> slow_graph, streams.EndCapture(low));
  EXPECT_OK(streams.BeginCapture(low));
  EXPECT_OK(streams.Issue(low, NodeOf(c_)));
  EXPECT_OK(streams.Issue(low, NodeOf(d_)));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<HostGraph> quick_graph, streams.EndCapture(low));
  EXPECT_OK(streams.IssueGraph(low, slow_graph.get()));
  middle.AwaitRunning();
  EXPECT_OK(streams.IssueGraph(high, quick_graph.get()));
  EXPECT_OK(streams.Issue(holder, NodeOf(d_)));
  middle.Open();
  EXPECT_OK(streams.Synchronize(low));
  EXPECT_THAT(log_, ElementsAre("a", "c", "d", "d", "b"));
}

// Goal: a full queue makes the issuer wait, and only it. Method: fill a queue of two behind a held kernel; a thread
// that issues one more returns only after the kernel was let go, while another stream still takes work.
TEST_F(HostStreamsTest, FullQueueBlocksItsIssuerOnly) {
  HostDeviceOptions options;
  options.queue_capacity = 2;
  HostStreams streams(options, clock_);
  HostStream* full = MakeStream(streams);
  HostStream* other = MakeStream(streams);
  EXPECT_OK(streams.Issue(full, NodeOf(hold_)));
  hold_.AwaitRunning();
  EXPECT_OK(streams.Issue(full, NodeOf(a_)));
  std::atomic<bool> returned = false;
  Thread issuer("issuer", [&] {
    EXPECT_OK(streams.Issue(full, NodeOf(b_)));
    returned = true;
  });
  EXPECT_OK(streams.Issue(other, NodeOf(c_)));
  EXPECT_FALSE(returned.load());
  hold_.Open();
  issuer.Join();
  EXPECT_OK(streams.Synchronize(full));
  EXPECT_OK(streams.Synchronize(other));
  EXPECT_THAT(log_, ::testing::UnorderedElementsAre("a", "b", "c"));
}

// Goal: timed events take the clock when they are reached, not when they are issued. Method: move the clock while the
// kernel between them is held.
TEST_F(HostStreamsTest, TimedEventsReadTheClockWhenReached) {
  HostStreams streams({}, clock_);
  HostStream* stream = MakeStream(streams);
  HostTimedEvent start, end;
  EXPECT_OK(streams.Record(stream, &start));
  EXPECT_OK(streams.Issue(stream, NodeOf(hold_)));
  EXPECT_OK(streams.Record(stream, &end));
  hold_.AwaitRunning();
  EXPECT_THAT(streams.Elapsed(&start, &end), StatusIs(absl::StatusCode::kFailedPrecondition));
  clock_.Advance(absl::Milliseconds(7));
  hold_.Open();
  EXPECT_OK(streams.Synchronize(&end));
  EXPECT_THAT(streams.Elapsed(&start, &end), IsOkAndHolds(absl::Milliseconds(7)));
}

// Goal: streams and per-thread streams are bounded. Method: one too many of each; a destroyed one makes room.
TEST_F(HostStreamsTest, StreamsAreBounded) {
  HostDeviceOptions options;
  options.max_streams = 2;
  options.max_thread_streams = 1;
  HostStreams streams(options, clock_);
  HostStream* first = MakeStream(streams);
  MakeStream(streams);
  EXPECT_THAT(streams.Create(StreamPriority::kHigh), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_OK(streams.ThreadStream());
  Thread other("other", [&] { EXPECT_THAT(streams.ThreadStream(), StatusIs(absl::StatusCode::kResourceExhausted)); });
  other.Join();
  EXPECT_OK(streams.Destroy(first));
  EXPECT_THAT(streams.Destroy(first), StatusIs(absl::StatusCode::kInternal));
  EXPECT_OK(streams.Create(StreamPriority::kHigh));
  EXPECT_EQ(streams.live_stream_count(), 2);
}

// Goal: a lost device drops what is queued, lets everybody go, and says UNAVAILABLE from then on. Method: a thread
// waits for an event, another for room, a stream for another stream; then the device is lost.
TEST_F(HostStreamsTest, LossLetsEverybodyGo) {
  HostDeviceOptions options;
  options.queue_capacity = 2;
  HostStreams streams(options, clock_);
  HostStream* stream = MakeStream(streams);
  HostStream* waiting = MakeStream(streams);
  HostEvent event(WaitMode::kBlock);
  EXPECT_OK(streams.Issue(stream, NodeOf(hold_)));
  hold_.AwaitRunning();
  EXPECT_OK(streams.Issue(stream, NodeOf(a_)));
  EXPECT_OK(streams.Record(stream, &event));
  EXPECT_OK(streams.Wait(waiting, &event));
  EXPECT_OK(streams.Issue(waiting, NodeOf(b_)));
  Thread synchronizer("synchronizer",
                      [&] { EXPECT_THAT(streams.Synchronize(&event), StatusIs(absl::StatusCode::kUnavailable)); });
  Thread issuer("issuer",
                [&] { EXPECT_THAT(streams.Issue(stream, NodeOf(c_)), StatusIs(absl::StatusCode::kUnavailable)); });
  streams.MarkLost(absl::InternalError("the reason"));
  synchronizer.Join();
  issuer.Join();
  EXPECT_TRUE(streams.lost());
  hold_.Open();
  EXPECT_THAT(streams.Synchronize(stream),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("the reason")));
  EXPECT_THAT(streams.Create(StreamPriority::kLow), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_OK(streams.Destroy(stream));
  EXPECT_OK(streams.Destroy(waiting));
  EXPECT_THAT(log_, ::testing::IsEmpty());
}

// Goal: a kernel that fails is never answered as if it had run. Method: one fails between two that would log.
TEST_F(HostStreamsTest, AFailedKernelLosesTheDevice) {
  HostStreams streams({}, clock_);
  HostStream* stream = MakeStream(streams);
  const FailingKernel fail;
  EXPECT_OK(streams.Issue(stream, NodeOf(hold_)));
  hold_.AwaitRunning();
  EXPECT_OK(streams.Issue(stream, NodeOf(fail)));
  EXPECT_OK(streams.Issue(stream, NodeOf(a_)));
  hold_.Open();
  EXPECT_THAT(streams.Synchronize(stream),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("the library broke")));
  EXPECT_TRUE(streams.lost());
  EXPECT_OK(streams.Destroy(stream));
  EXPECT_THAT(log_, ::testing::IsEmpty());
}

// Goal: bad options are refused. Method: each of them.
TEST(HostDeviceOptionsTest, BadOptionsAreRefused) {
  const FakeClock clock;
  const auto create = [&](auto change) {
    HostDeviceOptions options;
    change(options);
    return CreateHostDevice(options, clock, MakeHostKernelLibrary(clock)).status();
  };
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_OK(create([](HostDeviceOptions&) {}));
  EXPECT_THAT(create([](HostDeviceOptions& options) { options.index = -1; }), invalid);
  EXPECT_THAT(create([](HostDeviceOptions& options) { options.threads = 0; }), invalid);
  EXPECT_THAT(create([](HostDeviceOptions& options) { options.compute_thread_count = 0; }), invalid);
  EXPECT_THAT(create([](HostDeviceOptions& options) { options.compute_thread_count = options.threads = 2; }), invalid);
  EXPECT_THAT(create([](HostDeviceOptions& options) { options.queue_capacity = 0; }), invalid);
  EXPECT_THAT(create([](HostDeviceOptions& options) { options.max_streams = 0; }), invalid);
  EXPECT_THAT(CreateHostDevice({}, clock, nullptr), invalid);
}

// Goal: a device that goes before its objects says so. Method: make it go first; the count of failures rises.
TEST(HostDeviceOptionsTest, LeftoversAreReported) {
  const FakeClock clock;
  const uint64_t before = DestroyFailureCount();
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Device> device, CreateHostDevice({}, clock, MakeHostKernelLibrary(clock)));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, device->AllocateDevice(64));
  const DeviceSpan leaked = buffer;
  // Takes the owner's pointer away, as a bug would: the device frees the memory itself.
  new (&buffer) DeviceBuffer();
  EXPECT_TRUE(leaked);
  device.reset();
  EXPECT_EQ(DestroyFailureCount(), before + 1);
}

}  // namespace
}  // namespace sluice::gpu::host
