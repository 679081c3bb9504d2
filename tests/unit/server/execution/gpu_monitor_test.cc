// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: metrics of GPUs are there under Triton's names as perf_analyzer reads them, without what a driver does not
// tell, and no state of the driver holds up a scrape. Method: a Serving whose host devices say that they are GPUs, a
// library in NVML's place that does what the test says, and scrapes of the real metrics port.
#include "server/execution/gpu_monitor.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/execution/devices.h"
#include "server/execution/serving.h"
#include "server/metrics/exposer.h"
#include "tests/support/fake_nvml.h"
#include "tests/support/faulty_device.h"
#include "tests/support/http_get.h"
#include "tests/support/status_matchers.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;
using testing::kFakeGpus;
using ::testing::Not;

constexpr char kGpu[] = "GPU-0a0b0c0d-1e1f-2a2b-3c3d-4e4f5a5b5c5d";

class GpuMonitorTest : public ::testing::Test {
 protected:
  GpuMonitorTest() { UseLibrary(SLUICE_FAKE_NVML); }
  ~GpuMonitorTest() override {
    fake_->hang.store(false);
    End();
    if (library_ != nullptr) dlclose(library_);
  }

  void UseLibrary(const char* path) {
    if (library_ != nullptr) dlclose(library_);
    library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    fake_ = reinterpret_cast<testing::FakeNvmlFunction*>(dlsym(library_, testing::kFakeNvmlSymbol))();
    // The server keeps the library in the process, and with it what an earlier test said.
    for (std::atomic<int>* result :
         {&fake_->init_result, &fake_->find_result, &fake_->utilization_result, &fake_->memory_result,
          &fake_->power_result, &fake_->power_limit_result, &fake_->energy_result, &fake_->init_calls}) {
      result->store(0);
    }
    config_.gpu_metrics.nvml_library = path;
  }

  /// One device for each of `uuids`.
  void Start(const std::vector<std::string>& uuids) {
    config_.devices = absl::StrCat("host:", uuids.size());
    config_.host_threads = 1;
    config_.gpu_metrics.interval = absl::Milliseconds(100);
    ASSERT_OK_AND_ASSIGN(const std::vector<DeviceSpec> specs, ResolveDevices(config_));
    metrics_ = std::make_unique<metrics::Metrics>(metrics::MetricsOptions{.devices = DeviceNames(specs)});
    size_t next = 0;
    const auto make = [&](const DeviceSpec& spec, const ServerConfig& config, const Clock& clock,
                          gpu::MemoryBudget& host_memory) -> absl::StatusOr<std::unique_ptr<gpu::Device>> {
      absl::StatusOr<std::unique_ptr<gpu::Device>> device = MakeDevice(spec, config, clock, host_memory);
      if (!device.ok()) return device.status();
      return std::make_unique<gpu::FaultyDevice>(*std::move(device), uuids[next++]);
    };
    ASSERT_OK_AND_ASSIGN(serving_, Serving::Create(config_, specs, clock_, *metrics_, make));
    metrics::HealthProbes probes{[] { return true; }, [] { return true; }};
    ASSERT_OK_AND_ASSIGN(
        http_, metrics::MetricsServer::Start({.address = "127.0.0.1", .port = 0}, *metrics_, std::move(probes)));
  }
  void End() {
    serving_.reset();
    http_.reset();
    metrics_.reset();
  }
  std::string Scrape() { return testing::HttpGet(http_->port(), "/metrics"); }
  /// The first scrape that is as wished; bounded, fails the test otherwise.
  std::string AwaitScrape(const std::function<bool(const std::string&)>& wished) {
    const Time end = clock_.Now() + absl::Seconds(60);
    std::string text = Scrape();
    while (!wished(text) && clock_.Now() < end) {
      std::this_thread::yield();
      text = Scrape();
    }
    EXPECT_TRUE(wished(text)) << text;
    return text;
  }
  static bool Has(const std::string& text, const std::string& family) {
    return text.find(absl::StrCat("\n", family, "{")) != std::string::npos;
  }
  std::string AwaitValues() {
    return AwaitScrape([](const std::string& text) { return Has(text, "nv_gpu_memory_used_bytes"); });
  }
  static int FailedReads(const std::string& text) {
    std::smatch found;
    int count = -1;
    const std::regex line("\nsluice_gpu_failed_reads_total\\{device=\"host:0\"\\} (\\d+)\n");
    return std::regex_search(text, found, line) && absl::SimpleAtoi(found[1].str(), &count) ? count : -1;
  }

  const MonotonicClock clock_;
  ServerConfig config_;
  void* library_ = nullptr;
  testing::FakeNvml* fake_ = nullptr;
  std::unique_ptr<metrics::Metrics> metrics_;
  std::unique_ptr<metrics::MetricsServer> http_;
  std::unique_ptr<Serving> serving_;
};

TEST_F(GpuMonitorTest, ShowsTheServersGpuOnly) {
  // The driver's second GPU is the server's only one, as with CUDA_VISIBLE_DEVICES=1.
  Start({kGpu});
  const std::string text = AwaitValues();
  const std::string label = absl::StrCat("{gpu_uuid=\"", kGpu, "\"} ");
  for (const char* line : {"nv_gpu_utilization", "nv_gpu_memory_total_bytes", "nv_gpu_memory_used_bytes",
                           "nv_gpu_power_usage", "nv_gpu_power_limit"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n# TYPE ", line, " gauge\n", line, label)));
  }
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\nnv_gpu_utilization", label, "0.37\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\nnv_gpu_memory_total_bytes", label, "150754820096\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\nnv_gpu_memory_used_bytes", label, "4294967296\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\nnv_gpu_power_usage", label, "81.25\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\nnv_gpu_power_limit", label, "700\n")));
  EXPECT_THAT(text, HasSubstr("\n# TYPE nv_energy_consumption counter\n"));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\nnv_energy_consumption", label, "123456789.012\n")));
  EXPECT_THAT(text, Not(HasSubstr(kFakeGpus[0].uuid)));
  EXPECT_EQ(FailedReads(text), 0);
  EXPECT_EQ(fake_->initialised.load(), 1);
  End();
  EXPECT_EQ(fake_->initialised.load(), 0);
}

TEST_F(GpuMonitorTest, EachGpuHasItsOwn) {
  Start({kFakeGpus[1].uuid, kFakeGpus[0].uuid});
  const std::string text = AwaitScrape([](const std::string& scrape) {
    return scrape.find(absl::StrCat("nv_gpu_power_usage{gpu_uuid=\"", kFakeGpus[0].uuid)) != std::string::npos;
  });
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\nnv_gpu_utilization{gpu_uuid=\"", kFakeGpus[0].uuid, "\"} 1\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\nnv_gpu_utilization{gpu_uuid=\"", kFakeGpus[1].uuid, "\"} 0.37\n")));
}

// A slice of a GPU is told from the whole, and what the driver knows of the whole only is left out rather than zero.
TEST_F(GpuMonitorTest, ASliceHasWhatIsKnownOfIt) {
  fake_->utilization_result.store(3);
  fake_->power_result.store(3);
  fake_->power_limit_result.store(4);  // no permission
  fake_->energy_result.store(13);      // the library has it, the driver has not
  Start({"GPU-99999999-8888-7777-6666-555555555555"});
  const std::string text = AwaitValues();
  EXPECT_THAT(
      text, HasSubstr(absl::StrCat("\nnv_gpu_memory_total_bytes{gpu_uuid=\"", kFakeGpus[2].uuid, "\"} 18000000000\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\nnv_gpu_memory_used_bytes{gpu_uuid=\"", kFakeGpus[2].uuid, "\"} 0\n")));
  for (const char* family : {"nv_gpu_utilization", "nv_gpu_power_usage", "nv_gpu_power_limit", "nv_energy"}) {
    EXPECT_THAT(text, Not(HasSubstr(family)));
  }
  EXPECT_EQ(FailedReads(text), 0);
}

TEST_F(GpuMonitorTest, AnOldLibraryLacksAFunction) {
  UseLibrary(SLUICE_OLD_FAKE_NVML);
  Start({kGpu});
  const std::string text = AwaitValues();
  EXPECT_TRUE(Has(text, "nv_gpu_power_limit"));
  EXPECT_THAT(text, Not(HasSubstr("nv_energy_consumption")));
  EXPECT_EQ(FailedReads(text), 0);
}

TEST_F(GpuMonitorTest, ALostGpuIsCountedAndShowsNothing) {
  Start({kGpu});
  AwaitValues();
  for (auto* result : {&fake_->utilization_result, &fake_->memory_result, &fake_->power_result,
                       &fake_->power_limit_result, &fake_->energy_result}) {
    result->store(15);
  }
  const int enough = GpuMonitor::kManyFailures + 1;
  const std::string lost = AwaitScrape([&](const std::string& text) { return FailedReads(text) >= enough; });
  EXPECT_THAT(lost, Not(HasSubstr("nv_gpu_")));
  EXPECT_THAT(lost, HasSubstr("\nsluice_device_healthy{device=\"host:0\"} 1\n"));
  // One value comes back before the others.
  fake_->memory_result.store(0);
  EXPECT_FALSE(Has(AwaitValues(), "nv_gpu_power_usage"));
  for (auto* result :
       {&fake_->utilization_result, &fake_->power_result, &fake_->power_limit_result, &fake_->energy_result}) {
    result->store(0);
  }
  AwaitScrape([](const std::string& text) { return Has(text, "nv_gpu_power_usage"); });
}

TEST_F(GpuMonitorTest, AGpuThatIsNotThereYetIsLookedForAgain) {
  fake_->find_result.store(999);
  Start({kGpu});
  EXPECT_THAT(AwaitScrape([](const std::string& text) { return FailedReads(text) >= 2; }), Not(HasSubstr("nv_gpu_")));
  fake_->find_result.store(0);
  AwaitValues();
}

TEST_F(GpuMonitorTest, ADriverThatHangsHoldsUpNoScrape) {
  Start({kGpu});
  AwaitValues();
  fake_->hang.store(true);
  const std::string text = AwaitScrape([](const std::string& scrape) { return !Has(scrape, "nv_gpu_utilization"); });
  EXPECT_TRUE(fake_->in_hang.load());
  EXPECT_THAT(text, HasSubstr("\nsluice_device_healthy{device=\"host:0\"} 1\n"));
  fake_->hang.store(false);
  AwaitValues();
}

TEST_F(GpuMonitorTest, WithoutADriverTheRestIsThere) {
  for (const auto& [library, result] : {std::pair("libsluice-no-such-nvml.so.1", 0), std::pair(SLUICE_FAKE_NVML, 9)}) {
    config_.gpu_metrics.nvml_library = library;
    fake_->init_result.store(result);
    Start({kGpu});
    if (result != 0) AwaitScrape([this](const std::string&) { return fake_->init_calls.load() == 1; });
    const std::string text = Scrape();
    EXPECT_THAT(text, HasSubstr("\nsluice_device_healthy{device=\"host:0\"} 1\n"));
    EXPECT_THAT(text, Not(HasSubstr("gpu")));
    End();
  }
  EXPECT_EQ(fake_->initialised.load(), 0);
}

TEST_F(GpuMonitorTest, NothingIsAskedWhereThereIsNoGpuOrNobodyWantsIt) {
  Start({""});
  EXPECT_THAT(Scrape(), Not(HasSubstr("gpu")));
  End();
  config_.gpu_metrics.enabled = false;
  Start({kGpu});
  EXPECT_THAT(Scrape(), Not(HasSubstr("gpu")));
  End();
  EXPECT_EQ(fake_->init_calls.load(), 0);
}

}  // namespace
}  // namespace sluice::server
