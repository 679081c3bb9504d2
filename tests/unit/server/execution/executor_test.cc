// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Executions on a real host device: where results lie, and what happens when there is no slot.
#include "server/execution/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "gpu/launcher.h"
#include "model_harness.h"
#include "onnx_writer.h"
#include "tests/support/shared_memory_object.h"
#include "tests/support/status_matchers.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWidth = 16384;  ///< One row has 64 KiB: the largest response that is not pooled.
constexpr size_t kRowBytes = kWidth * sizeof(float);

struct TestRequest final : InferRequest {
  bool Finish(absl::StatusOr<InferResult> /*result*/) override { return true; }
  std::vector<float> values;
};

class ExecutorTest : public model::ModelTest {
 protected:
  void SetUp() override {
    ModelTest::SetUp();
    ASSERT_OK_AND_ASSIGN(model_, Load(model::OnnxWriter()
                                          .Input("x", DataType::kFp32, {-1, kWidth})
                                          .Node("Add", {"x", "x"}, {"y"})
                                          .Output("y", DataType::kFp32, {-1, kWidth})
                                          .Serialize()));
    auto served = std::make_shared<ServedModel>();
    served->name = "double";
    served->inputs.resize(1);
    served->inputs[0].type = DataType::kFp32;
    served->outputs = served->inputs;
    served->inputs[0].name = "x";
    served->outputs[0].name = "y";
    served->max_batch_size = 8;
    served->shape_buckets = {{{kWidth}}};
    served_ = served;
    InstanceOptions options;
    options.batch_buckets = {2};
    options.slot_counts = {0, 0, 2};
    ASSERT_OK_AND_ASSIGN(executable_.instance, ModelInstance::Create(*model_, *device_, *device_, served_, options));
    gate_ = std::make_unique<gpu::Gate>(gpu::GateOptions{});
    ASSERT_OK_AND_ASSIGN(launcher_, gpu::Launcher::Create(*device_, *gate_, clock_, {}));
    ASSERT_OK_AND_ASSIGN(lane_,
                         gpu::Lane::Create(RequestClass::kBatch, *device_, *gate_, *launcher_, clock_,
                                           {.latency_streams = 1, .polling_threads = 0, .timeline = &timeline_}));
  }

  std::shared_ptr<TestRequest> Request(int64_t rows) {
    auto request = std::make_shared<TestRequest>();
    request->id = RequestId(++last_id_);
    request->model = served_;
    request->request_class = RequestClass::kBatch;
    request->rows = rows;
    request->requested_outputs = {0};
    request->values.resize(static_cast<size_t>(rows * kWidth));
    std::iota(request->values.begin(), request->values.end(), static_cast<float>(1000 * last_id_));
    request->inputs.push_back({{rows, kWidth}, {std::as_bytes(std::span<const float>(request->values))}});
    return request;
  }
  ExecutionOutcome Run(const std::vector<std::shared_ptr<TestRequest>>& requests, absl::Duration slot_wait) {
    std::vector<QueuedInfer> queued;
    size_t bytes = 0;
    for (const auto& request : requests) {
      queued.push_back({.request = request, .token = {}});
      bytes += PooledResponseBytes(*executable_.instance, *request);
    }
    EXPECT_TRUE(pool_->TryReserve(RequestClass::kBatch, bytes, 0));
    const ExecutionPlace place{*lane_, *gate_, clock_, timeline_, slot_wait};
    return RunExecution(executable_, place, queued, clock_.Now(), pool_->Adopt(RequestClass::kBatch, bytes));
  }
  size_t used() const { return pool_->use(RequestClass::kBatch).used_bytes; }
  gpu::SlotPool& slots() { return *executable_.instance->plans(0)[0].slots[2]; }

  static SharedMemorySlice Slice(const SharedMemoryObject& object, uint64_t offset, uint64_t byte_size) {
    auto region = SharedMemoryRegion::Open({"r", object.key(), 0, object.size()});
    EXPECT_OK(region.status());
    return {*region, offset, byte_size};
  }
  static std::string AsString(const TestRequest& request) {
    return std::string(reinterpret_cast<const char*>(request.values.data()), request.values.size() * sizeof(float));
  }
  static void ExpectDoubled(const TestRequest& request, std::span<const std::byte> bytes) {
    ASSERT_EQ(bytes.size(), request.values.size() * sizeof(float));
    std::vector<float> values(request.values.size());
    std::memcpy(values.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < values.size(); i += 127) ASSERT_EQ(values[i], 2 * request.values[i]) << i;
  }

  const std::shared_ptr<ResponsePool> pool_ = ResponsePool::Create({.limit_bytes = 8 << 20, .reserved_share = 0});
  gpu::Timeline timeline_{0, clock_};
  std::unique_ptr<model::Model> model_;
  std::shared_ptr<const ServedModel> served_;
  ExecutableModel executable_;
  std::unique_ptr<gpu::Gate> gate_;
  std::unique_ptr<gpu::Launcher> launcher_;
  std::unique_ptr<gpu::Lane> lane_;
  uint64_t last_id_ = 0;
};

TEST_F(ExecutorTest, ScattersIntoEachRequestsOwnMemory) {
  // Goal: rows of merged requests go from the slots to where each response is sent from, small or pooled. Method: one
  // of each and a third that lies across micro-batches; slots are free while the results are held.
  const std::vector<std::shared_ptr<TestRequest>> requests = {Request(1), Request(3), Request(1)};
  ExecutionOutcome outcome = Run(requests, absl::Seconds(10));
  ASSERT_OK(outcome.status);
  EXPECT_EQ(outcome.slot_waits, 0);
  EXPECT_EQ(slots().free_count(), 2u);
  const auto output = [&](size_t i) -> ResponseOutput& { return outcome.results[i].outputs.at(0); };
  EXPECT_FALSE(output(0).pooled);
  ExpectDoubled(*requests[0], std::as_bytes(std::span<const char>(output(0).bytes)));
  ASSERT_TRUE(output(1).pooled);
  EXPECT_TRUE(output(1).bytes.empty());
  ExpectDoubled(*requests[1], output(1).pooled.bytes());
  ExpectDoubled(*requests[2], std::as_bytes(std::span<const char>(output(2).bytes)));
  EXPECT_EQ(used(), 3 * kRowBytes);
  outcome = {};
  EXPECT_EQ(used(), 0u);
}

TEST_F(ExecutorTest, SharedMemoryInAndOut) {
  // Goal: rows go from and to regions as they do from and to messages, without response memory, and what one request's
  // region refuses fails that request alone. Method: four merged: all in regions, none, an input that shrank, an output
  // that shrank; parts cross their borders.
  const auto good = Request(3), plain = Request(2), short_input = Request(1), short_output = Request(2);
  const SharedMemoryObject object(6 * kRowBytes), shrunk(2 * kRowBytes);
  object.Put(0, AsString(*good));
  good->inputs[0] = {{3, kWidth}, {}, Slice(object, 0, 3 * kRowBytes)};
  good->output_regions = {Slice(object, 3 * kRowBytes, 3 * kRowBytes)};
  short_input->inputs[0] = {{1, kWidth}, {}, Slice(shrunk, kRowBytes, kRowBytes)};
  short_output->output_regions = {Slice(shrunk, 0, 2 * kRowBytes)};
  shrunk.Resize(kRowBytes + 8);
  EXPECT_EQ(PooledResponseBytes(*executable_.instance, *good), 0u);

  const ExecutionOutcome outcome = Run({good, plain, short_input, short_output}, absl::Seconds(10));
  ASSERT_OK(outcome.status);
  ASSERT_EQ(outcome.failures.size(), 4u);
  EXPECT_OK(outcome.failures[0]);
  EXPECT_OK(outcome.failures[1]);
  EXPECT_THAT(outcome.failures[2], StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("input 'x': shared memory "
                                                                                             "region 'r'")));
  EXPECT_THAT(outcome.failures[3], StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("output 'y': shared "
                                                                                             "memory region 'r'")));
  const std::string written = object.Get(3 * kRowBytes, 3 * kRowBytes);
  ExpectDoubled(*good, std::as_bytes(std::span<const char>(written)));
  EXPECT_EQ(outcome.results[0].outputs.at(0).bytes, "");
  EXPECT_FALSE(outcome.results[0].outputs.at(0).pooled);
  ExpectDoubled(*plain, outcome.results[1].outputs.at(0).pooled.bytes());
  EXPECT_EQ(shrunk.size(), kRowBytes + 8);
  EXPECT_EQ(slots().free_count(), 2u);
}

TEST_F(ExecutorTest, NothingRunsForRequestsWithoutInputs) {
  const auto request = Request(2);
  const SharedMemoryObject object(2 * kRowBytes);
  request->inputs[0] = {{2, kWidth}, {}, Slice(object, 0, 2 * kRowBytes)};
  object.Resize(0);
  const ExecutionOutcome outcome = Run({request}, absl::Seconds(10));
  EXPECT_TRUE(absl::IsCancelled(outcome.status)) << outcome.status;
  EXPECT_THAT(outcome.failures.at(0), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("got 0")));
  EXPECT_EQ(outcome.profile, absl::ZeroDuration());
  EXPECT_EQ(slots().free_count(), 2u);
}

TEST_F(ExecutorTest, WhoWasAnsweredIsNotWrittenTo) {
  // Goal: a client that has its answer may use its memory again. Method: a request that has been stopped, merged with
  // one that has not, so that it runs.
  const auto stopped = Request(1), other = Request(1);
  const SharedMemoryObject object(kRowBytes);
  stopped->output_regions = {Slice(object, 0, kRowBytes)};
  stopped->stopped = true;
  ASSERT_OK(Run({stopped, other}, absl::Seconds(10)).status);
  EXPECT_EQ(object.Get(0, kRowBytes), std::string(kRowBytes, '\0'));
}

TEST_F(ExecutorTest, OutputsFitIntoTheirRegions) {
  const auto request = Request(2);
  const SharedMemoryObject object(2 * kRowBytes);
  request->output_regions = {Slice(object, 0, 2 * kRowBytes)};
  EXPECT_OK(CheckOutputRegions(*executable_.instance, *request));
  request->output_regions[0].byte_size -= 1;
  EXPECT_THAT(CheckOutputRegions(*executable_.instance, *request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "shared memory size specified with the request for output 'y' (131071 bytes) should be at least "
                       "131072 bytes to hold the results"));
  request->output_regions.clear();
  EXPECT_OK(CheckOutputRegions(*executable_.instance, *request));
}

TEST_F(ExecutorTest, AWaitForASlotIsBounded) {
  // Goal: exhaustion is answered, with what was waited for, and leaves nothing behind. Method: the test holds all
  // slots; no time to wait, then a deadline that is over, then a request nobody waits for.
  const gpu::SlotLease first = slots().TryAcquire();
  const gpu::SlotLease second = slots().TryAcquire();
  const ExecutionOutcome refused = Run({Request(2), Request(2)}, absl::ZeroDuration());
  EXPECT_THAT(
      refused.status,
      StatusIs(absl::StatusCode::kUnavailable,
               HasSubstr("waited 0 ms (--slot-wait-ms) for one of the 2 slots of model 'double' in class batch")));
  EXPECT_EQ(refused.slot_waits, 1);
  EXPECT_TRUE(refused.slot_timeout);

  const auto late = Request(2);
  late->deadline = clock_.Now();
  const ExecutionOutcome too_late = Run({late}, absl::Hours(1));
  EXPECT_THAT(too_late.status, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("slot")));
  EXPECT_FALSE(too_late.slot_timeout);

  const auto stopped = Request(2);
  stopped->stopped = true;
  EXPECT_TRUE(absl::IsCancelled(Run({stopped}, absl::Hours(1)).status));
}

TEST_F(ExecutorTest, LessMemoryThanReservedIsOurBug) {
  // Goal: no write past what was reserved, whatever the scheduler did. Method: an execution without a reservation.
  const auto request = Request(2);
  const ExecutionPlace place{*lane_, *gate_, clock_, timeline_, absl::ZeroDuration()};
  EXPECT_TRUE(absl::IsInternal(RunExecution(executable_, place, {{request, {}}}, clock_.Now(), {}).status));
  EXPECT_EQ(slots().free_count(), 2u);
}

}  // namespace
}  // namespace sluice::server
