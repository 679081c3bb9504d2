// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/listen_config.h"

namespace sluice::server {

/// Who decides which models are loaded.
enum class ModelControlMode : uint8_t {
  kNone,      ///< Nobody: all of the repository, at start.
  kExplicit,  ///< Clients, by RepositoryModelLoad and RepositoryModelUnload; at start those of `load_models`.
};

/// Where metrics of GPUs come from.
struct GpuMetricsConfig {
  bool enabled = true;  ///< With a CUDA device; the host has none.
  absl::Duration interval = absl::Seconds(1);
  std::string nvml_library = "libnvidia-ml.so.1";  ///< As dlopen takes it.
};

/// Everything that can be set, with its default. Every bound of the server is here.
struct ServerConfig {
  std::string model_repository;
  ModelControlMode model_control_mode = ModelControlMode::kNone;
  std::vector<std::string> load_models;         ///< With kExplicit only; "*": all of the repository.
  int64_t model_file_bytes = int64_t{2} << 30;  ///< Of files that came with loads, of all models; 0: none may come.
  std::string address = "0.0.0.0";
  int grpc_port = 8001;
  int metrics_port = 8002;
  ListenConfig listen;
  GpuMetricsConfig gpu_metrics;
  std::string devices = "auto";
  std::string cuda_module;   ///< Path of the CUDA module; empty: where it is installed.
  std::string tuning_cache;  ///< Folder of `sluice tune`'s files; empty: kernels are tried at each load.
  int host_threads = 0;      ///< 0: one less than the CPUs this process may use, at least 1.
  bool strict_readiness = true;
  bool strict_class = false;
  absl::Duration exit_timeout = absl::Seconds(30);
  int io_threads = 2;       ///< 1 to 4.
  int request_threads = 2;  ///< Per lane, 2 to 8.
  int latency_threads = 4;  ///< The latency lane of a CUDA device gets up to so many where they may poll; 2 to 8.
  int batch_streams = 2;    ///< 2 to 4.
  int64_t max_message_bytes = INT32_MAX;
  int max_infer_streams = 1024;                        ///< ModelStreamInfer calls open at once.
  int stream_requests = 256;                           ///< Of one such call, read and not yet answered and written.
  bool system_shared_memory = false;                   ///< Serve the extension system_shared_memory.
  int max_shared_memory_regions = 256;                 ///< Registered, or still in use; each holds a descriptor.
  int64_t max_shared_memory_bytes = int64_t{4} << 30;  ///< Of these together.
  int64_t queue_requests = 1024;                       ///< Per device and class.
  int64_t queue_bytes = int64_t{1} << 30;              ///< Per device and class.
  int64_t gpu_memory_limit = 0;                        ///< Bytes per CUDA device; 0: all but a reserve.
  int64_t pinned_memory_limit = 0;  ///< Bytes, memory of host devices included; 0: what the container has.
  int64_t kept_pinned_bytes = int64_t{256} << 20;  ///< Freed by unloads, kept for loads; per CUDA device.
  int64_t copy_chunk_bytes = 0;       ///< The most a batch or standard copy moves at once; 0: measured at start.
  int copy_window = 0;                ///< Chunks in flight per direction, 1 to 4; 0: measured at start.
  int64_t transfer_kernel_bytes = 0;  ///< Latency transfers up to this move by kernel; 0: measured at start.
  int64_t response_pool_bytes = int64_t{256} << 20;  ///< Of responses over 64 KiB, until clients have read them.
  /// Of those bytes, kept for latency, and as much again for standard; see ResponsePoolOptions.
  double response_reserved_share = 0.25;
  /// How long a request waits for response memory, of standard and batch, and of latency.
  absl::Duration response_wait = absl::Seconds(1);
  absl::Duration latency_response_wait = absl::Milliseconds(100);
  absl::Duration slot_wait = absl::Seconds(10);  ///< How long an execution waits for others to give a slot back.
  absl::Duration unit_target = absl::Microseconds(20);
  absl::Duration unit_limit = absl::Microseconds(60);  ///< At least unit_target.
  absl::Duration compute_window = absl::Microseconds(40);
  absl::Duration unit_handover = absl::Microseconds(45);
  double batch_min_share = 0.05;
  double max_latency_share = 0.8;  ///< Of a device's time, for latency requests beside other work; 1: no ceiling.
  bool gate = true;
  int trace_records = 65536;  ///< Spans a device's timeline holds; 0: it never records.
  bool polling = true;        ///< Threads may poll where there are CPUs to spare (spin_budget.h).
};

struct ParsedFlags {
  ServerConfig config;
  bool exit_now = false;                    ///< --help or --version was printed.
  std::string tune_model;                   ///< `sluice-server tune MODEL`: tune it, print a report, exit.
  std::optional<HealthProbe> health_probe;  ///< `sluice-server healthcheck`: ask a running server and exit.
};

/// Reads argv. INVALID_ARGUMENT naming the flag, what was expected and what came.
absl::StatusOr<ParsedFlags> ParseFlags(int argc, const char* const* argv);

/// Checks values that do not depend on the machine. INVALID_ARGUMENT as above.
absl::Status ValidateConfig(const ServerConfig& config);

/// What --devices asks for, before anybody has looked at the machine.
struct DeviceChoice {
  bool automatic = false;          ///< Every CUDA device that can be used, if any.
  std::vector<int> cuda_ordinals;  ///< Those asked for by number; distinct.
  int host_count = 1;              ///< With CUDA devices one more, for models of KIND_CPU.
};

/// Reads --devices: "auto", "host", "host:N" (1 to 8), "cuda:0" or "cuda:0,1" (at most 8). INVALID_ARGUMENT otherwise.
absl::StatusOr<DeviceChoice> ParseDevices(const std::string& devices);

/// CPUs this process may run on: affinity and the cgroup's cpu.max, at least 1.
int UsableCpuCount();

}  // namespace sluice::server
