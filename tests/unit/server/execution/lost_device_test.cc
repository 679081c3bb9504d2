// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Two devices behind one front, one of which is lost while both work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/execution/devices.h"
#include "server/execution/serving.h"
#include "tests/integration/tiny_models.h"
#include "tests/support/faulty_device.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/execution/doubling_request.h"

namespace sluice::server {
namespace {

constexpr int64_t kColumns = DoublingRequest::kColumns;

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
  std::shared_ptr<DoublingRequest> Submit(RequestClass request_class, float first) {
    auto request = std::make_shared<DoublingRequest>(*serving_->FindModel("double", ""), request_class, clock_, first);
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
  std::vector<std::shared_ptr<DoublingRequest>> before, after;
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
