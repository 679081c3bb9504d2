// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: flags mean what --help says, and wrong ones stop the start with a sentence that names the flag. Method: tables.
#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<ParsedFlags> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "sluice-server");
  return ParseFlags(static_cast<int>(arguments.size()), arguments.data());
}

TEST(ParseFlags, ReadsValuesAndKeepsDefaults) {
  const auto flags =
      Parse({"--model-repository", "models", "--grpc-port=0", "--compute-window-us=250.5", "--gate=off",
             "--exit-timeout-secs", "1.5", "--devices=host:2", "--unit-target-us=30", "--unit-limit-us=30"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->config.model_repository, "models");
  EXPECT_EQ(flags->config.grpc_port, 0);
  EXPECT_EQ(flags->config.metrics_port, 8002);
  EXPECT_EQ(flags->config.compute_window, absl::Microseconds(250.5));
  EXPECT_EQ(flags->config.exit_timeout, absl::Seconds(1.5));
  EXPECT_EQ(flags->config.unit_target, absl::Microseconds(30));
  EXPECT_EQ(flags->config.unit_limit, absl::Microseconds(30));
  EXPECT_EQ(ServerConfig().unit_limit, absl::Microseconds(60));
  EXPECT_FALSE(flags->config.gate);
  EXPECT_FALSE(flags->exit_now);
}

TEST(ParseFlags, ReadsWhereGpuMetricsComeFrom) {
  const auto flags = Parse({"--model-repository", "m", "--allow-gpu-metrics=false", "--metrics-interval-ms=250",
                            "--nvml-library=/usr/lib/libnvidia-ml.so.1", "--model-file-bytes=3GiB"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_FALSE(flags->config.gpu_metrics.enabled);
  EXPECT_EQ(flags->config.gpu_metrics.interval, absl::Milliseconds(250));
  EXPECT_EQ(flags->config.gpu_metrics.nvml_library, "/usr/lib/libnvidia-ml.so.1");
  EXPECT_EQ(flags->config.model_file_bytes, int64_t{3} << 30);
  EXPECT_TRUE(ServerConfig().gpu_metrics.enabled);
}

TEST(ParseFlags, ReadsTheModelToTune) {
  const auto flags = Parse({"tune", "resnet50", "--model-repository", "models", "--tuning-cache", "tunings"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->tune_model, "resnet50");
  EXPECT_EQ(flags->config.model_repository, "models");
  EXPECT_EQ(flags->config.tuning_cache, "tunings");
  EXPECT_EQ(Parse({"--model-repository", "models"})->tune_model, "");
}

TEST(ParseFlags, ReadsWhichModelsAreLoaded) {
  EXPECT_EQ(ServerConfig().model_control_mode, ModelControlMode::kNone);
  const auto flags = Parse({"--model-repository", "models", "--model-control-mode=explicit", "--load-model", "a",
                            "--load-model=b", "--grpc-port=0"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->config.model_control_mode, ModelControlMode::kExplicit);
  EXPECT_THAT(flags->config.load_models, ::testing::ElementsAre("a", "b"));
  EXPECT_TRUE(Parse({"--model-repository", "models", "--model-control-mode=explicit"})->config.load_models.empty());
}

TEST(ParseFlags, SharedMemoryIsOffUnlessAskedFor) {
  EXPECT_FALSE(Parse({"--model-repository", "models"})->config.system_shared_memory);
  EXPECT_FALSE(Parse({"--model-repository", "models", "--shared-memory=off"})->config.system_shared_memory);
  const auto flags = Parse({"--model-repository", "models", "--shared-memory=system", "--max-shared-memory-regions=3",
                            "--max-shared-memory-bytes=2MiB"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_TRUE(flags->config.system_shared_memory);
  EXPECT_EQ(flags->config.max_shared_memory_regions, 3);
  EXPECT_EQ(flags->config.max_shared_memory_bytes, 2 << 20);
}

TEST(ParseFlags, RefusesWhatIsWrongAndNamesIt) {
  const std::vector<std::pair<std::vector<const char*>, std::string>> table = {
      {{}, "--model-repository"},
      {{"tune"}, "model is required"},
      {{"tune", "m"}, "--model-repository"},
      {{"--model-repository", "m", "--grpc-port", "99999"}, "--grpc-port"},
      {{"--model-repository", "m", "--grpc-port", "-1"}, "--grpc-port"},
      {{"--model-repository", "m", "--grpc-port", "many"}, "--grpc-port"},
      {{"--model-repository", "m", "--metrics-port", "65536"}, "--metrics-port"},
      {{"--model-repository", "m", "--metrics-port", "8001"}, "--metrics-port"},
      {{"--model-repository", "m", "--shared-memory", "cuda"}, "--shared-memory"},
      {{"--model-repository", "m", "--max-shared-memory-regions", "0"}, "--max-shared-memory-regions"},
      {{"--model-repository", "m", "--max-shared-memory-bytes", "1"}, "--max-shared-memory-bytes"},
      {{"--model-repository", "m", "--io-threads", "0"}, "--io-threads"},
      {{"--model-repository", "m", "--io-threads", "5"}, "--io-threads"},
      {{"--model-repository", "m", "--request-threads", "1"}, "--request-threads"},
      {{"--model-repository", "m", "--request-threads", "9"}, "--request-threads"},
      {{"--model-repository", "m", "--batch-streams", "5"}, "--batch-streams"},
      {{"--model-repository", "m", "--batch-min-share", "1.5"}, "--batch-min-share"},
      {{"--model-repository", "m", "--compute-window-us", "0"}, "--compute-window-us"},
      {{"--model-repository", "m", "--unit-target-us", "0"}, "--unit-target-us"},
      {{"--model-repository", "m", "--unit-handover-us", "-1"}, "--unit-handover-us"},
      {{"--model-repository", "m", "--copy-chunk-bytes", "1000"}, "--copy-chunk-bytes"},
      {{"--model-repository", "m", "--kept-pinned-bytes", "-1"}, "--kept-pinned-bytes"},
      {{"--model-repository", "m", "--copy-window", "5"}, "--copy-window"},
      {{"--model-repository", "m", "--transfer-kernel-bytes", "100MiB"}, "--transfer-kernel-bytes"},
      {{"--model-repository", "m", "--unit-limit-us", "0"}, "--unit-limit-us: expected 1 to 1e+07, got 0"},
      {{"--model-repository", "m", "--unit-limit-us", "long"}, "--unit-limit-us"},
      {{"--model-repository", "m", "--unit-limit-us", "19"},
       "--unit-limit-us: expected at least --unit-target-us (20), got 19"},
      {{"--model-repository", "m", "--unit-target-us", "61"},
       "--unit-limit-us: expected at least --unit-target-us (61), got 60"},
      {{"--model-repository", "m", "--polling", "on"}, "--polling"},
      {{"--model-repository", "m", "--queue-requests", "0"}, "--queue-requests"},
      {{"--model-repository", "m", "--max-infer-streams", "0"}, "--max-infer-streams"},
      {{"--model-repository", "m", "--stream-requests", "100000"}, "--stream-requests"},
      {{"--model-repository", "m", "--queue-bytes", "10"}, "--queue-bytes"},
      {{"--model-repository", "m", "--max-message-bytes", "3000000000"}, "--max-message-bytes"},
      {{"--model-repository", "m", "--host-threads", "1000"}, "--host-threads"},
      {{"--model-repository", "m", "--exit-timeout-secs", "-1"}, "--exit-timeout-secs"},
      {{"--model-repository", "m", "--trace-records", "-1"}, "--trace-records"},
      {{"--model-repository", "m", "--trace-records", "300000"}, "--trace-records"},
      {{"--model-repository", "m", "--model-control-mode", "poll"},
       "--model-control-mode: expected 'none' or 'explicit', got 'poll': the repository is not watched"},
      {{"--model-repository", "m", "--model-control-mode", "manual"},
       "--model-control-mode: expected 'none' or 'explicit', got 'manual'"},
      {{"--model-repository", "m", "--model-file-bytes", "-1"}, "--model-file-bytes"},
      {{"--model-repository", "m", "--metrics-interval-ms", "99"}, "--metrics-interval-ms: expected 100 to"},
      {{"--model-repository", "m", "--nvml-library", ""}, "--nvml-library: expected a library's name or path"},
      {{"--model-repository", "m", "--allow-gpu-metrics=perhaps"}, "--allow-gpu-metrics"},
      {{"--model-repository", "m", "--load-model", "a"}, "--load-model: expected --model-control-mode=explicit"},
      {{"--model-repository", "m", "--gate", "ajar"}, "--gate"},
      {{"--model-repository", "m", "--devices", "cuda"}, "--devices"},
      {{"--model-repository", "m", "--devices", "cuda:"}, "--devices"},
      {{"--model-repository", "m", "--devices", "cuda:0,0"}, "--devices"},
      {{"--model-repository", "m", "--devices", "cuda:-1"}, "--devices"},
      {{"--model-repository", "m", "--devices", "cuda:0,1,2,3,4,5,6,7,8"}, "--devices"},
      {{"--model-repository", "m", "--devices", "host:0"}, "--devices"},
      {{"--model-repository", "m", "--devices", "host:9"}, "--devices"},
      {{"--model-repository", "m", "--devices", "tpu"}, "--devices"},
      {{"--model-repository", "m", "--gpu-memory-limit", "8"}, "--gpu-memory-limit"},
      {{"--model-repository", "m", "--gpu-memory-limit", "-1"}, "--gpu-memory-limit"},
      {{"--model-repository", "m", "--gpu-memory-limit", "20 parsecs"}, "--gpu-memory-limit"},
      {{"--model-repository", "m", "--gpu-memory-limit", "2PiB"}, "--gpu-memory-limit"},
      {{"--model-repository", "m", "--pinned-memory-limit", "1023KiB"}, "--pinned-memory-limit"},
      {{"--model-repository", "m", "--pinned-memory-limit", "99999999999999999999"}, "--pinned-memory-limit"},
      {{"--model-repository", "m", "--response-pool-bytes", "0"}, "--response-pool-bytes"},
      {{"--model-repository", "m", "--response-pool-bytes", "much"}, "--response-pool-bytes"},
      {{"--model-repository", "m", "--response-reserved-share", "0.5"}, "--response-reserved-share"},
      {{"--model-repository", "m", "--response-wait-ms", "-1"}, "--response-wait-ms"},
      {{"--model-repository", "m", "--latency-response-wait-ms", "1e9"}, "--latency-response-wait-ms"},
      {{"--model-repository", "m", "--slot-wait-ms", "-1"}, "--slot-wait-ms"},
      {{"--model-repository", "m", "--turbo"}, "--turbo"},
  };
  for (const auto& [arguments, word] : table) {
    const auto flags = Parse(arguments);
    ASSERT_FALSE(flags.ok()) << word;
    EXPECT_EQ(flags.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(flags.status().message()), HasSubstr(word));
  }
}

TEST(ParseFlags, ReadsMemoryLimitsWithUnits) {
  const std::vector<std::pair<const char*, int64_t>> table = {{"0", 0},
                                                              {"1048576", 1 << 20},
                                                              {"8GiB", int64_t{8} << 30},
                                                              {"8 gib", int64_t{8} << 30},
                                                              {"500MB", 500'000'000},
                                                              {"2TiB", int64_t{2} << 40}};
  for (const auto& [text, bytes] : table) {
    const auto flags = Parse({"--model-repository", "m", "--gpu-memory-limit", text, "--pinned-memory-limit", text});
    ASSERT_TRUE(flags.ok()) << text << ": " << flags.status();
    EXPECT_EQ(flags->config.gpu_memory_limit, bytes) << text;
    EXPECT_EQ(flags->config.pinned_memory_limit, bytes) << text;
  }
  EXPECT_EQ(ServerConfig().gpu_memory_limit, 0);
  EXPECT_EQ(ServerConfig().pinned_memory_limit, 0);
}

TEST(ParseFlags, ReadsTheBoundsOfResponsesAndSlots) {
  const auto flags = Parse({"--model-repository", "m", "--response-pool-bytes=64MiB", "--response-reserved-share=0.1",
                            "--response-wait-ms=250", "--latency-response-wait-ms=2.5", "--slot-wait-ms=0"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->config.response_pool_bytes, 64 << 20);
  EXPECT_EQ(flags->config.response_reserved_share, 0.1);
  EXPECT_EQ(flags->config.response_wait, absl::Milliseconds(250));
  EXPECT_EQ(flags->config.latency_response_wait, absl::Microseconds(2500));
  EXPECT_EQ(flags->config.slot_wait, absl::ZeroDuration());
}

TEST(ParseFlags, HealthcheckNeedsNoRepository) {
  const auto flags = Parse({"healthcheck", "--grpc-port", "9001"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->health_probe->grpc_port, 9001);
}

TEST(ParseDevices, ReadsHostDevices) {
  EXPECT_TRUE(ParseDevices("auto")->automatic);
  EXPECT_FALSE(ParseDevices("host")->automatic);
  EXPECT_EQ(ParseDevices("host")->host_count, 1);
  EXPECT_EQ(ParseDevices("host:8")->host_count, 8);
  EXPECT_FALSE(ParseDevices("host:").ok());
  EXPECT_FALSE(ParseDevices("").ok());
}

TEST(ParseDevices, ReadsCudaDevicesAndKeepsAHostDevice) {
  const auto choice = ParseDevices("cuda:1,0");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->cuda_ordinals, ::testing::ElementsAre(1, 0));
  EXPECT_EQ(choice->host_count, 1);
}

TEST(UsableCpuCount, IsAtLeastOne) { EXPECT_GE(UsableCpuCount(), 1); }

}  // namespace
}  // namespace sluice::server
