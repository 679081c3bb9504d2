// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Two devices behind one front, one of which is lost while both work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/execution/devices.h"
#include "server/execution/serving.h"
#include "tests/integration/tiny_models.h"
#include "tests/support/faulty_device.h"
#include "tests/support/status_matchers.h"

namespace sluice::server {
namespace {

constexpr int64_t kColumns = 4;

/// One row; y = x + x.
class TestRequest final : public InferRequest {
 public:
  TestRequest(std::shared_ptr<const ServedModel> served, RequestClass wished, const Clock& clock, float first) {
    model = std::move(served);
    request_class = wished;
    arrival = clock.Now();
    for (int64_t i = 0; i < kColumns; ++i) values_.push_back(first + static_cast<float>(i));
    bytes = values_.size() * sizeof(float);
    inputs.push_back({{1, kColumns}, {std::as_bytes(std::span<const float>(values_))}});
    requested_outputs = {0};
  }
  bool Finish(absl::StatusOr<InferResult> result) override {
    if (finished_.exchange(true)) return false;
    absl::Status status = result.status();
    if (result.ok() && !IsDoubled(result->outputs.at(0).bytes)) status = absl::InternalError("a wrong answer");
    MutexLock lock(mutex_);
    status_ = std::move(status);
    answered_ = true;
    changed_.NotifyAll();
    return true;
  }
  /// OK only with the right numbers.
  absl::Status Wait() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (!answered_) changed_.Wait(mutex_);
    return status_;
  }

 private:
  bool IsDoubled(const std::string& got) const {
    std::vector<float> doubled(values_.size());
    if (got.size() != bytes) return false;
    std::memcpy(doubled.data(), got.data(), bytes);
    for (size_t i = 0; i < values_.size(); ++i) {
      if (doubled[i] != 2 * values_[i]) return false;
    }
    return true;
  }

  std::vector<float> values_;
  std::atomic<bool> finished_ = false;
  Mutex mutex_;
  CondVar changed_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

class LostDeviceTest : public ::testing::Test {
 protected:
  LostDeviceTest() : folder_(std::filesystem::path(::testing::TempDir()) / absl::StrCat("lost-", ::getpid())) {}
  ~LostDeviceTest() override { std::filesystem::remove_all(folder_); }

  void Start() {
    testing::AddToRepository(
        folder_.string(), "double", testing::DoublingModel(kColumns),
        "max_batch_size: 4\nparameters { key: \"sluice.buckets\" value { string_value: \"1,4\" } }\n");
    ServerConfig config;
    config.model_repository = folder_.string();
    config.devices = "host:2";
    config.host_threads = 1;
    ASSERT_OK_AND_ASSIGN(const std::vector<DeviceSpec> specs, ResolveDevices(config));
    ASSERT_EQ(specs.size(), 2u);
    metrics_ = std::make_unique<metrics::Metrics>(metrics::MetricsOptions{.devices = DeviceNames(specs)});
    ASSERT_OK_AND_ASSIGN(serving_, Serving::Create(config, specs, clock_, *metrics_,
                                                   [this](const DeviceSpec& spec, const ServerConfig& config_in,
                                                          const Clock& clock, gpu::MemoryBudget& host_memory) {
                                                     return Wrap(spec, config_in, clock, host_memory);
                                                   }));
    ASSERT_OK(serving_->LoadRepository([] {}));
    ASSERT_TRUE(serving_->ready());
  }
  absl::StatusOr<std::unique_ptr<gpu::Device>> Wrap(const DeviceSpec& spec, const ServerConfig& config,
                                                    const Clock& clock, gpu::MemoryBudget& host_memory) {
    absl::StatusOr<std::unique_ptr<gpu::Device>> device = MakeDevice(spec, config, clock, host_memory);
    if (!device.ok()) return device.status();
    auto faulty = std::make_unique<gpu::FaultyDevice>(*std::move(device));
    devices_.push_back(faulty.get());
    return faulty;
  }
  std::shared_ptr<TestRequest> Submit(RequestClass request_class, float first) {
    auto request = std::make_shared<TestRequest>(*serving_->FindModel("double", ""), request_class, clock_, first);
    serving_->Submit(request);
    return request;
  }

  const std::filesystem::path folder_;
  const MonotonicClock clock_;
  std::unique_ptr<metrics::Metrics> metrics_;
  std::vector<gpu::FaultyDevice*> devices_;
  std::unique_ptr<Serving> serving_;
};

// Goal: a device that is lost under load takes readiness with it, every request is answered, none with wrong numbers,
// and what comes afterwards runs on the other device. Method: requests of all classes are in flight on both when one is
// lost.
TEST_F(LostDeviceTest, TheOtherAnswersAndReadinessIsOff) {
  Start();
  std::vector<std::shared_ptr<TestRequest>> before, after;
  for (int i = 0; i < 300; ++i) {
    before.push_back(Submit(kRequestClasses[static_cast<size_t>(i) % kRequestClasses.size()], static_cast<float>(i)));
    if (i == 150) devices_[0]->Lose();
  }
  for (const auto& request : before) {
    const absl::Status status = request->Wait();
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
  EXPECT_TRUE(serving_->DeviceLost());
  EXPECT_FALSE(serving_->ready());
  EXPECT_FALSE(serving_->live());
  for (int i = 0; i < 30; ++i) {
    after.push_back(Submit(kRequestClasses[static_cast<size_t>(i) % kRequestClasses.size()], static_cast<float>(i)));
  }
  for (const auto& request : after) EXPECT_OK(request->Wait());
  devices_[1]->Lose();
  EXPECT_EQ(Submit(RequestClass::kLatency, 1)->Wait().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::server
