// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::gpu {

/// What is asked of a GPU, in the order of GpuReading.
enum class GpuValue : uint8_t {
  kUtilization,       ///< Share of the driver's last sample period in which a kernel ran, 0 to 1.
  kMemoryTotalBytes,  ///< What the driver keeps for itself included, as in the next.
  kMemoryUsedBytes,   ///< By all processes.
  kPowerWatts,
  kPowerLimitWatts,
  kEnergyJoules,  ///< Since the driver was loaded.
};
inline constexpr size_t kGpuValueCount = 6;

/// The values of one GPU. UNIMPLEMENTED for what this GPU, its driver or this process's rights do not give: that will
/// not change. Any other error: the read failed.
using GpuReading = std::array<absl::StatusOr<double>, kGpuValueCount>;

/// A GPU as NVML found it; the handle is valid as long as the Nvml.
struct NvmlGpu {
  void* handle = nullptr;
  std::string uuid;  ///< As NVML knows it: "GPU-...", or "MIG-..." for a slice.
};

/// NVIDIA's management library, which the driver brings. Purpose: what GPUs use, as nvidia-smi shows it. Ownership:
/// initialises the library and shuts it down; its code stays in the process, as the CUDA module's does. Threads: any;
/// every call may take milliseconds, or never return while the driver hangs, so none belongs on a request's or a
/// scrape's path. The process must not fork while one exists. Errors: FAILED_PRECONDITION saying why it cannot be used.
class Nvml {
 public:
  /// `library` as dlopen takes it.
  static absl::StatusOr<std::unique_ptr<Nvml>> Load(const std::string& library);
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  /// `uuid` as in DeviceInfo: CUDA_VISIBLE_DEVICES renumbers devices, and NVML does not know of it. NOT_FOUND when the
  /// driver does not show this process such a GPU.
  absl::StatusOr<NvmlGpu> Find(const std::string& uuid) const;
  GpuReading Read(const NvmlGpu& gpu) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<const Functions> functions);

  const std::unique_ptr<const Functions> functions_;
};

}  // namespace sluice::gpu
