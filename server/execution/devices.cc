// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/devices.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_module.h"
#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"

namespace sluice::server {
namespace {

constexpr char kModuleName[] = "libsluice_cuda_device.so";

int HostThreads(const ServerConfig& config) {
  // One CPU is left to the I/O threads: compute threads that take all of them put every reply into a queue.
  return config.host_threads > 0 ? config.host_threads : std::max(1, UsableCpuCount() - 1);
}

std::vector<int> AutomaticOrdinals(const ServerConfig& config) {
  const absl::StatusOr<int> count = gpu::CountCudaDevices(CudaModulePath(config));
  if (!count.ok()) {
    Log(Severity::kInfo, "no CUDA device is used", {{"reason", std::string(count.status().message())}});
    return {};
  }
  std::vector<int> ordinals;
  for (int i = 0; i < *count; ++i) ordinals.push_back(i);
  return ordinals;
}

}  // namespace

std::string DeviceSpec::Name() const { return absl::StrCat(backend == gpu::Backend::kCuda ? "cuda:" : "host:", index); }

std::string CudaModulePath(const ServerConfig& config) {
  if (!config.cuda_module.empty()) return config.cuda_module;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = program.parent_path() / kModuleName;
  if (std::filesystem::exists(beside, error)) return beside.string();
  return (program.parent_path().parent_path() / "lib" / "sluice" / kModuleName).string();
}

absl::StatusOr<std::vector<DeviceSpec>> ResolveDevices(const ServerConfig& config) {
  SLUICE_ASSIGN_OR_RETURN(DeviceChoice choice, ParseDevices(config.devices));
  if (choice.automatic) choice.cuda_ordinals = AutomaticOrdinals(config);
  std::vector<DeviceSpec> specs;
  for (const int ordinal : choice.cuda_ordinals) specs.push_back({gpu::Backend::kCuda, ordinal});
  for (int i = 0; i < choice.host_count; ++i) specs.push_back({gpu::Backend::kHost, i});
  return specs;
}

std::vector<std::string> DeviceNames(const std::vector<DeviceSpec>& specs) {
  std::vector<std::string> names;
  for (const DeviceSpec& spec : specs) names.push_back(spec.Name());
  return names;
}

absl::StatusOr<std::unique_ptr<gpu::Device>> MakeDevice(const DeviceSpec& spec, const ServerConfig& config,
                                                        const Clock& clock, gpu::MemoryBudget& host_memory, bool tune) {
  if (spec.backend == gpu::Backend::kCuda) {
    const gpu::CudaDeviceOptions options = {.memory_limit_bytes = static_cast<size_t>(config.gpu_memory_limit),
                                            .pinned_memory = &host_memory,
                                            .kept_pinned_bytes = static_cast<size_t>(config.kept_pinned_bytes),
                                            .tuning = {.folder = config.tuning_cache, .tune = tune}};
    return gpu::LoadCudaDevice(CudaModulePath(config), spec.index, clock, options);
  }
  const int threads = HostThreads(config);
  return gpu::CreateHostDevice({.index = spec.index, .threads = threads, .memory = &host_memory}, clock,
                               gpu::MakeHostKernelLibrary(clock, {.threads = threads}));
}

}  // namespace sluice::server
