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
