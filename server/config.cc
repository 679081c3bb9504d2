// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/config.h"

#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "server/version.h"

namespace sluice::server {
namespace {

constexpr int kMaxHostDevices = 8;
constexpr size_t kMaxCudaDevices = 8;
constexpr int kMaxCudaOrdinal = 64;
constexpr double kLongestWaitMs = 3'600'000;
constexpr int kMostTraceRecords = 1 << 18;  ///< As JSON these are about 80 MB.

absl::Status InRange(absl::string_view flag, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": expected ", low, " to ", high, ", got ", value));
}

/// A limit in bytes, or 0; fewer than a MiB is a unit left out.
absl::Status MemoryLimit(absl::string_view flag, int64_t bytes) {
  return bytes == 0 ? absl::OkStatus() : InRange(flag, static_cast<double>(bytes), 1 << 20, 1e15);
}

absl::StatusOr<ModelControlMode> ParseModelControlMode(const std::string& mode) {
  if (mode == "none") return ModelControlMode::kNone;
  if (mode == "explicit") return ModelControlMode::kExplicit;
  if (mode == "poll") {
    return absl::InvalidArgumentError(
        "--model-control-mode: expected 'none' or 'explicit', got 'poll': the repository is not watched; with "
        "'explicit' "
        "RepositoryModelLoad loads what changed");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--model-control-mode: expected 'none' or 'explicit', got '", mode, "'"));
}

absl::Status CheckModelControl(const ServerConfig& config) {
  if (config.model_control_mode == ModelControlMode::kExplicit || config.load_models.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--load-model: expected --model-control-mode=explicit with it, got '",
                                                 config.load_models.front(),
                                                 "' without: every model of the repository is loaded at start"));
}

/// Quota of the cgroup this process is in, in CPUs; infinite without one. Version 2 only, which Debian 12 uses.
double CgroupCpuQuota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return HUGE_VAL;
  double microseconds = 0;
  if (!absl::SimpleAtod(quota, &microseconds) || microseconds <= 0) return HUGE_VAL;
  return microseconds / period;
}

}  // namespace

int UsableCpuCount() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int count = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) count = std::max(1, CPU_COUNT(&set));
  const double quota = CgroupCpuQuota();
  if (quota < count) count = std::max(1, static_cast<int>(std::floor(quota)));
  return count;
}

absl::StatusOr<DeviceChoice> ParseDevices(const std::string& devices) {
  DeviceChoice choice;
  if (devices == "host") return choice;
  if (devices == "auto") {
    choice.automatic = true;
    return choice;
  }
  absl::string_view rest = devices;
  if (absl::ConsumePrefix(&rest, "host:")) {
    if (absl::SimpleAtoi(rest, &choice.host_count) && choice.host_count >= 1 && choice.host_count <= kMaxHostDevices) {
      return choice;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--devices: expected host:N with N from 1 to ", kMaxHostDevices, ", got '", devices, "'"));
  }
  if (absl::ConsumePrefix(&rest, "cuda:")) {
    for (const absl::string_view word : absl::StrSplit(rest, ',')) {
      int ordinal = -1;
      const bool number = absl::SimpleAtoi(word, &ordinal) && ordinal >= 0 && ordinal < kMaxCudaOrdinal;
      const bool repeated = std::count(choice.cuda_ordinals.begin(), choice.cuda_ordinals.end(), ordinal) > 0;
      if (!number || repeated || choice.cuda_ordinals.size() == kMaxCudaDevices) {
        return absl::InvalidArgumentError(
            absl::StrCat("--devices: expected cuda: and up to ", kMaxCudaDevices,
                         " different device numbers with commas between them, as cuda:0,1; got '", devices, "'"));
      }
      choice.cuda_ordinals.push_back(ordinal);
    }
    return choice;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--devices: expected 'auto', 'host', 'host:N' or 'cuda:N,...', got '", devices, "'"));
}

absl::Status ValidateConfig(const ServerConfig& config) {
  if (config.model_repository.empty()) {
    return absl::InvalidArgumentError("--model-repository: expected a folder of models, got nothing");
  }
  SLUICE_RETURN_IF_ERROR(CheckModelControl(config));
  SLUICE_RETURN_IF_ERROR(InRange("model-file-bytes", static_cast<double>(config.model_file_bytes), 0, 1e15));
  SLUICE_RETURN_IF_ERROR(InRange("grpc-port", config.grpc_port, 0, 65535));
  SLUICE_RETURN_IF_ERROR(InRange("metrics-port", config.metrics_port, 0, 65535));
  if (config.grpc_port != 0 && config.grpc_port == config.metrics_port) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-port: expected a port other than --grpc-port, got ", config.metrics_port, " for both"));
  }
  SLUICE_RETURN_IF_ERROR(ValidateListen(config.listen, config.grpc_port, config.metrics_port));
  SLUICE_RETURN_IF_ERROR(
      InRange("metrics-interval-ms", absl::ToDoubleMilliseconds(config.gpu_metrics.interval), 100, kLongestWaitMs));
  if (config.gpu_metrics.nvml_library.empty()) {
    return absl::InvalidArgumentError("--nvml-library: expected a library's name or path, got nothing");
  }
  SLUICE_RETURN_IF_ERROR(InRange("host-threads", config.host_threads, 0, 256));
  SLUICE_RETURN_IF_ERROR(InRange("io-threads", config.io_threads, 1, 4));
  SLUICE_RETURN_IF_ERROR(InRange("request-threads", config.request_threads, 2, 8));
  SLUICE_RETURN_IF_ERROR(InRange("latency-threads", config.latency_threads, 2, 8));
  SLUICE_RETURN_IF_ERROR(InRange("batch-streams", config.batch_streams, 2, 4));
  SLUICE_RETURN_IF_ERROR(InRange("max-message-bytes", static_cast<double>(config.max_message_bytes), 1024, INT32_MAX));
  SLUICE_RETURN_IF_ERROR(InRange("max-infer-streams", config.max_infer_streams, 1, 1 << 20));
  SLUICE_RETURN_IF_ERROR(InRange("stream-requests", config.stream_requests, 1, 1 << 16));
  SLUICE_RETURN_IF_ERROR(InRange("max-shared-memory-regions", config.max_shared_memory_regions, 1, 1 << 16));
  SLUICE_RETURN_IF_ERROR(
      InRange("max-shared-memory-bytes", static_cast<double>(config.max_shared_memory_bytes), 4096, 1e15));
  SLUICE_RETURN_IF_ERROR(InRange("queue-requests", static_cast<double>(config.queue_requests), 1, 1 << 20));
  SLUICE_RETURN_IF_ERROR(InRange("queue-bytes", static_cast<double>(config.queue_bytes), 1024, 1e15));
  SLUICE_RETURN_IF_ERROR(MemoryLimit("gpu-memory-limit", config.gpu_memory_limit));
  SLUICE_RETURN_IF_ERROR(MemoryLimit("pinned-memory-limit", config.pinned_memory_limit));
  SLUICE_RETURN_IF_ERROR(InRange("kept-pinned-bytes", static_cast<double>(config.kept_pinned_bytes), 0, 1e12));
  if (config.copy_chunk_bytes != 0) {
    SLUICE_RETURN_IF_ERROR(
        InRange("copy-chunk-bytes", static_cast<double>(config.copy_chunk_bytes), 64 << 10, 16 << 20));
  }
  SLUICE_RETURN_IF_ERROR(InRange("copy-window", config.copy_window, 0, 4));
  if (config.transfer_kernel_bytes != 0) {
    SLUICE_RETURN_IF_ERROR(
        InRange("transfer-kernel-bytes", static_cast<double>(config.transfer_kernel_bytes), 4096, 64 << 20));
  }
  SLUICE_RETURN_IF_ERROR(
      InRange("response-pool-bytes", static_cast<double>(config.response_pool_bytes), 1 << 20, 1e15));
  SLUICE_RETURN_IF_ERROR(InRange("response-reserved-share", config.response_reserved_share, 0, 0.45));
  SLUICE_RETURN_IF_ERROR(
      InRange("response-wait-ms", absl::ToDoubleMilliseconds(config.response_wait), 0, kLongestWaitMs));
  SLUICE_RETURN_IF_ERROR(
      InRange("latency-response-wait-ms", absl::ToDoubleMilliseconds(config.latency_response_wait), 0, kLongestWaitMs));
  SLUICE_RETURN_IF_ERROR(InRange("slot-wait-ms", absl::ToDoubleMilliseconds(config.slot_wait), 0, kLongestWaitMs));
  SLUICE_RETURN_IF_ERROR(
      InRange("compute-window-us", absl::ToDoubleMicroseconds(config.compute_window), 1, 10'000'000));
  SLUICE_RETURN_IF_ERROR(InRange("unit-handover-us", absl::ToDoubleMicroseconds(config.unit_handover), 0, 10'000));
  SLUICE_RETURN_IF_ERROR(InRange("unit-target-us", absl::ToDoubleMicroseconds(config.unit_target), 1, 10'000'000));
  SLUICE_RETURN_IF_ERROR(InRange("unit-limit-us", absl::ToDoubleMicroseconds(config.unit_limit), 1, 10'000'000));
  if (config.unit_limit < config.unit_target) {
    return absl::InvalidArgumentError(absl::StrCat("--unit-limit-us: expected at least --unit-target-us (",
                                                   absl::ToDoubleMicroseconds(config.unit_target), "), got ",
                                                   absl::ToDoubleMicroseconds(config.unit_limit)));
  }
  SLUICE_RETURN_IF_ERROR(InRange("batch-min-share", config.batch_min_share, 0, 1));
  SLUICE_RETURN_IF_ERROR(InRange("max-latency-share", config.max_latency_share, 0.01, 1));
  SLUICE_RETURN_IF_ERROR(InRange("trace-records", config.trace_records, 0, kMostTraceRecords));
  SLUICE_RETURN_IF_ERROR(InRange("exit-timeout-secs", absl::ToDoubleSeconds(config.exit_timeout), 0, 3600));
  return ParseDevices(config.devices).status();
}

absl::StatusOr<ParsedFlags> ParseFlags(int argc, const char* const* argv) {
  ParsedFlags parsed;
  ServerConfig& config = parsed.config;
  double exit_timeout_secs = absl::ToDoubleSeconds(config.exit_timeout);
  double compute_window_us = absl::ToDoubleMicroseconds(config.compute_window);
  double unit_handover_us = absl::ToDoubleMicroseconds(config.unit_handover);
  double unit_target_us = absl::ToDoubleMicroseconds(config.unit_target);
  double unit_limit_us = absl::ToDoubleMicroseconds(config.unit_limit);
  double response_wait_ms = absl::ToDoubleMilliseconds(config.response_wait);
  double latency_response_wait_ms = absl::ToDoubleMilliseconds(config.latency_response_wait);
  double slot_wait_ms = absl::ToDoubleMilliseconds(config.slot_wait);
  double metrics_interval_ms = absl::ToDoubleMilliseconds(config.gpu_metrics.interval);
  std::string model_control_mode = "none";
  std::string shared_memory = "off";
  std::string gate = "on";
  std::string polling = "auto";

  CLI::App app("sluice-server: gRPC inference server (KServe v2) with a latency lane and a batch lane on one device");
  app.set_version_flag("--version", std::string("sluice-server ") + kVersion);
  app.option_defaults()->always_capture_default();
  app.add_option("--model-repository", config.model_repository, "Folder of models: <model>/<version>/model.onnx");
  app.add_option("--model-control-mode", model_control_mode,
                 "none: every model of the repository is loaded at start; explicit: clients load and unload them");
  app.add_option("--load-model", config.load_models,
                 "With --model-control-mode=explicit, a model to load at start; may be given more than once; *: all")
      ->take_all();
  app.add_option(
         "--model-file-bytes", config.model_file_bytes,
         "Bytes of model files that clients may give with RepositoryModelLoad, waiting and loaded, also as 4GiB; "
         "0: none")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  app.add_option("--address", config.address, "Address to listen on, for gRPC and metrics");
  app.add_option("--grpc-port", config.grpc_port, "gRPC port; 0 picks a free one");
  app.add_option("--metrics-port", config.metrics_port,
                 "Port of /metrics, /healthz, /readyz, /trace and /inspect; 0 picks a free one");
  app.add_option("--allow-gpu-metrics", config.gpu_metrics.enabled,
                 "Metrics of the CUDA devices' memory, power and use, from NVML");
  app.add_option("--metrics-interval-ms", metrics_interval_ms, "How often NVML is asked for them, at least 100");
  app.add_option("--nvml-library", config.gpu_metrics.nvml_library, "Name or path of NVML, which the driver brings");
  AddListenFlags(app, config.listen);
  app.add_option("--devices", config.devices, "Devices: auto, host, host:N, cuda:0,1");
  app.add_option("--cuda-module", config.cuda_module,
                 "Path of libsluice_cuda_device.so; default beside the program or in ../lib/sluice");
  app.add_option(
      "--tuning-cache", config.tuning_cache,
      "Folder of what `sluice tune` found for this machine's GPUs; without it kernels are tried at each load");
  app.add_option("--host-threads", config.host_threads, "Compute threads of a host device; 0: CPUs less one");
  app.add_option("--strict-readiness", config.strict_readiness,
                 "Ready only when every model of the repository is ready");
  app.add_option("--strict-class", config.strict_class,
                 "Refuse a class that a model does not allow, instead of lowering it");
  app.add_option("--exit-timeout-secs", exit_timeout_secs, "Time for requests in flight after SIGTERM");
  app.add_option("--io-threads", config.io_threads, "Threads that read and write gRPC, 1 to 4");
  app.add_option("--request-threads", config.request_threads, "Request threads per lane, 2 to 8");
  app.add_option("--latency-threads", config.latency_threads,
                 "Request threads of a CUDA device's latency lane, as far as there are CPUs for each to poll on, else "
                 "--request-threads; 2 to 8");
  app.add_option("--batch-streams", config.batch_streams, "Low-priority streams of the batch lane, 2 to 4");
  app.add_option("--max-message-bytes", config.max_message_bytes, "Largest request message");
  app.add_option("--max-infer-streams", config.max_infer_streams,
                 "ModelStreamInfer calls that may be open at once; more are refused");
  app.add_option("--stream-requests", config.stream_requests,
                 "Requests of one such call that may be read and not yet answered; then it reads no more");
  app.add_option("--shared-memory", shared_memory,
                 "system: clients of this machine may register POSIX shared memory for inputs and outputs; off: none")
      ->check(CLI::IsMember({"off", "system"}));
  app.add_option("--max-shared-memory-regions", config.max_shared_memory_regions,
                 "Such regions, registered or still in use; each holds a descriptor");
  app.add_option("--max-shared-memory-bytes", config.max_shared_memory_bytes, "Bytes of all of them, also as 4GiB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  app.add_option("--queue-requests", config.queue_requests, "Requests that may wait, per device and class");
  app.add_option("--queue-bytes", config.queue_bytes, "Bytes of input that may wait, per device and class");
  app.add_option("--gpu-memory-limit", config.gpu_memory_limit,
                 "Bytes in use per CUDA device, also as 20GiB; 0: all but a reserve")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  app.add_option("--pinned-memory-limit", config.pinned_memory_limit,
                 "Bytes of pinned memory and of host devices, also as 4GiB; 0: what the container has, but a reserve")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  app.add_option("--kept-pinned-bytes", config.kept_pinned_bytes,
                 "Bytes of pinned memory that unloads leave for later loads, per CUDA device, also as 1GiB; 0: none")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  app.add_option("--copy-chunk-bytes", config.copy_chunk_bytes,
                 "The most a batch or standard copy moves at once, 64KiB to 16MiB; 0: measured at start")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  app.add_option("--copy-window", config.copy_window,
                 "Copy chunks in flight per direction, 1 to 4; 0: measured at start");
  app.add_option("--transfer-kernel-bytes", config.transfer_kernel_bytes,
                 "Latency inputs (outputs) up to this move by a kernel instead of a copy engine, 4KiB to 64MiB; 0: "
                 "measured at start")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  app.add_option("--response-pool-bytes", config.response_pool_bytes,
                 "Bytes of responses over 64 KiB that clients have not read yet, also as 1GiB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  app.add_option("--response-reserved-share", config.response_reserved_share,
                 "Of those bytes, kept for latency, and as much again for standard; batch has the rest at most");
  app.add_option("--response-wait-ms", response_wait_ms,
                 "How long standard and batch requests wait for such memory before they are refused");
  app.add_option("--latency-response-wait-ms", latency_response_wait_ms, "The same for latency requests");
  app.add_option("--slot-wait-ms", slot_wait_ms, "How long an execution waits for a slot before it is refused");
  app.add_option("--unit-target-us", unit_target_us, "Kernels are put together until a unit takes this long");
  app.add_option("--unit-limit-us", unit_limit_us,
                 "On a GPU, fewer rows at a time for standard and batch work until no unit takes longer than this");
  app.add_option("--compute-window-us", compute_window_us, "Predicted time of batch and standard units in flight");
  app.add_option("--unit-handover-us", unit_handover_us,
                 "The next unit may start when this much of the one in flight is left, however long; 0: off");
  app.add_option("--batch-min-share", config.batch_min_share,
                 "Share of compute time that batch work gets over any second; 0 turns the floor off");
  app.add_option("--max-latency-share", config.max_latency_share,
                 "Share of a device's time that latency requests may ask for while other work is there; the rest runs "
                 "as standard, or is refused (--strict-class); 1: no ceiling");
  app.add_option("--trace-records", config.trace_records,
                 "Spans that /trace and `sluice trace` can hold, per device (80 bytes each); 0 turns them off");
  app.add_option("--gate", gate, "on, or off to measure what the gate is worth")->check(CLI::IsMember({"on", "off"}));
  app.add_option("--polling", polling, "auto: threads poll where there are CPUs to spare; off: they always sleep")
      ->check(CLI::IsMember({"auto", "off"}));
  HealthProbe probe;
  CLI::App* healthcheck = AddHealthcheck(app, probe);
  CLI::App* tune = app.add_subcommand("tune", "Tune a model's kernels on the CUDA devices, print a report, exit");
  tune->add_option("model", parsed.tune_model, "Name of the model")->required();
  tune->fallthrough();

  try {  // CLI11 reports by throwing.
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return absl::InvalidArgumentError(error.what());
    app.exit(error);
    parsed.exit_now = true;
    return parsed;
  }
  config.exit_timeout = absl::Seconds(exit_timeout_secs);
  config.compute_window = absl::Microseconds(compute_window_us);
  config.unit_handover = absl::Microseconds(unit_handover_us);
  config.unit_target = absl::Microseconds(unit_target_us);
  config.unit_limit = absl::Microseconds(unit_limit_us);
  config.response_wait = absl::Milliseconds(response_wait_ms);
  config.latency_response_wait = absl::Milliseconds(latency_response_wait_ms);
  config.slot_wait = absl::Milliseconds(slot_wait_ms);
  config.gpu_metrics.interval = absl::Milliseconds(metrics_interval_ms);
  SLUICE_ASSIGN_OR_RETURN(config.model_control_mode, ParseModelControlMode(model_control_mode));
  config.system_shared_memory = shared_memory == "system";
  config.gate = gate == "on";
  config.polling = polling == "auto";
  if (healthcheck->parsed()) {
    parsed.health_probe = probe;
    return parsed;
  }
  SLUICE_RETURN_IF_ERROR(ValidateConfig(config));
  return parsed;
}

}  // namespace sluice::server
