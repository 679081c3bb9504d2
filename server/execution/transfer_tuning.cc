// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/transfer_tuning.h"

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "gpu/kernels/transfer_calibration.h"

namespace sluice::server {
namespace {

/// "1024KiBx2 48.1/50.3": chunk, how many in flight, to the device and back.
std::string ChunksText(const std::vector<gpu::ChunkBandwidth>& chunks) {
  std::string text;
  for (const gpu::ChunkBandwidth& chunk : chunks) {
    absl::StrAppendFormat(&text, "%s%dKiBx%d %.1f/%.1f", text.empty() ? "" : ", ", chunk.chunk_bytes >> 10,
                          chunk.window, chunk.to_device * 1e-9, chunk.to_host * 1e-9);
  }
  return text;
}

/// "512KiB 18.2/20.1 17.9/19.0": size, engine and kernel to the device, and back.
std::string CopiesText(const std::vector<gpu::CopyDuration>& copies) {
  std::string text;
  for (const gpu::CopyDuration& copy : copies) {
    absl::StrAppendFormat(
        &text, "%s%dKiB %.1f/%.1f %.1f/%.1f", text.empty() ? "" : ", ", copy.size_bytes >> 10,
        absl::ToDoubleMicroseconds(copy.engine_to_device), absl::ToDoubleMicroseconds(copy.kernel_to_device),
        absl::ToDoubleMicroseconds(copy.engine_to_host), absl::ToDoubleMicroseconds(copy.kernel_to_host));
  }
  return text;
}

}  // namespace

absl::StatusOr<gpu::TransferTuning> TuneTransfers(gpu::Device& device, const ServerConfig& config, const Clock& clock) {
  gpu::TransferTuning tuning;
  if (config.copy_chunk_bytes == 0 || config.copy_window == 0 || config.transfer_kernel_bytes == 0) {
    SLUICE_ASSIGN_OR_RETURN(const gpu::TransferCalibration measured, gpu::CalibrateTransfers(device, clock));
    tuning = measured.tuning;
    if (!measured.chunks.empty()) {
      Log(Severity::kInfo, "transfers measured",
          {{"device", device.info().name},
           {"in_out_gb_per_second", ChunksText(measured.chunks)},
           {"engine_kernel_in_out_us", CopiesText(measured.copies)}});
    }
  }
  if (config.copy_chunk_bytes != 0) tuning.chunk_bytes = static_cast<size_t>(config.copy_chunk_bytes);
  if (config.copy_window != 0) tuning.copy_window = config.copy_window;
  if (config.transfer_kernel_bytes != 0) tuning.kernel_bytes = static_cast<size_t>(config.transfer_kernel_bytes);
  if (device.info().unified_memory) return tuning;
  Log(Severity::kInfo, "transfers tuned",
      {{"device", device.info().name},
       {"chunk_bytes", tuning.chunk_bytes},
       {"copy_window", tuning.copy_window},
       {"kernel_bytes", tuning.kernel_bytes}});
  return tuning;
}

}  // namespace sluice::server
