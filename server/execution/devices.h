// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpu/device.h"
#include "gpu/memory_budget.h"
#include "server/config.h"

namespace sluice::server {

/// One device that the server will use.
struct DeviceSpec {
  gpu::Backend backend = gpu::Backend::kHost;
  int index = 0;             ///< Of the host device, or the CUDA ordinal.
  std::string Name() const;  ///< As in flags and metric labels.
  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

/// What --devices means on this machine: CUDA devices first, and always at least one host device, which folds constants
/// and runs models of KIND_CPU. "auto" is every CUDA device that can be used, else the host; why there is none is
/// logged. FAILED_PRECONDITION when a device was asked for by name and cannot be used.
absl::StatusOr<std::vector<DeviceSpec>> ResolveDevices(const ServerConfig& config);

std::vector<std::string> DeviceNames(const std::vector<DeviceSpec>& specs);

/// Starts one device. `clock` must outlive it. `tune`: a CUDA device tries its kernels at length (gpu::TuningOptions).
absl::StatusOr<std::unique_ptr<gpu::Device>> MakeDevice(const DeviceSpec& spec, const ServerConfig& config,
                                                        const Clock& clock, gpu::MemoryBudget& host_memory,
                                                        bool tune = false);

/// What starts a device of a server: MakeDevice, or a test's own.
using DeviceMaker = absl::AnyInvocable<absl::StatusOr<std::unique_ptr<gpu::Device>>(
    const DeviceSpec& spec, const ServerConfig& config, const Clock& clock, gpu::MemoryBudget& host_memory)>;

/// Where the CUDA module is: --cuda-module, else beside the program, else in ../lib/sluice/ of it.
std::string CudaModulePath(const ServerConfig& config);

}  // namespace sluice::server
