// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/transfer_calibration.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "base/cpu_relax.h"
#include "base/status_macros.h"
#include "gpu/kernels/transfer.h"

namespace sluice::gpu {
namespace {

constexpr size_t kBufferBytes = size_t{16} << 20;
constexpr std::array<size_t, 5> kChunkSizes = {size_t{128} << 10, size_t{256} << 10, size_t{512} << 10, size_t{1} << 20,
                                               size_t{2} << 20};
constexpr int kMostWindow = 3;
constexpr size_t kLeastCopyBytes = size_t{64} << 10;
constexpr size_t kMostCopyBytes = size_t{8} << 20;
constexpr int kRuns = 3;
constexpr double kKeptBandwidth = 0.85;
constexpr double kSlowerByKernel = 1.25;
// Below what one chunk in flight makes an engine's copy wait; starting a kernel alone takes half of it longer.
constexpr absl::Duration kLaterByKernel = absl::Microseconds(10);
// An idle GPU raises its clocks within some milliseconds of work.
constexpr absl::Duration kWarmUp = absl::Milliseconds(10);
constexpr size_t kControlBytes = 256;

bool NearlyAsFast(absl::Duration kernel, absl::Duration engine) {
  return kernel <= std::max(kSlowerByKernel * engine, engine + kLaterByKernel);
}

enum class Direction : uint8_t { kToDevice, kToHost };

class Calibrator {
 public:
  Calibrator(Device& device, const Clock& clock) : device_(device), clock_(clock) {}

  absl::Status Make() {
    SLUICE_ASSIGN_OR_RETURN(pinned_, device_.AllocatePinned(kBufferBytes));
    SLUICE_ASSIGN_OR_RETURN(memory_, device_.AllocateDevice(kBufferBytes));
    SLUICE_ASSIGN_OR_RETURN(stamps_, device_.AllocatePinned(kControlBytes));
    SLUICE_ASSIGN_OR_RETURN(counter_, device_.AllocateDevice(kControlBytes));
    SLUICE_ASSIGN_OR_RETURN(stream_, device_.CreateStream(StreamPriority::kLow));
    SLUICE_ASSIGN_OR_RETURN(start_, device_.CreateTimedEvent());
    SLUICE_ASSIGN_OR_RETURN(end_, device_.CreateTimedEvent());
    for (Event& event : chunk_done_) {
      SLUICE_ASSIGN_OR_RETURN(event, device_.CreateEvent(WaitMode::kBlock));
    }
    std::memset(pinned_.view().data, 0, kBufferBytes);
    // The counter of a transfer kernel is 0 before its first launch.
    SLUICE_RETURN_IF_ERROR(device_.CopyToDevice(stream_, pinned_.view().subspan(0, kControlBytes), counter_));
    return device_.Synchronize(stream_);
  }

  absl::Status WarmUp() {
    const Time until = clock_.Now() + kWarmUp;
    while (clock_.Now() < until) {
      SLUICE_RETURN_IF_ERROR(EngineTime(Direction::kToDevice, kMostCopyBytes).status());
    }
    return absl::OkStatus();
  }

  /// Bytes per second, the best of a few runs over the whole buffer.
  absl::StatusOr<double> Bandwidth(Direction direction, size_t chunk_bytes, int window) {
    absl::Duration least = absl::InfiniteDuration();
    for (int run = 0; run < kRuns; ++run) {
      const Time begin = clock_.Now();
      const size_t count = kBufferBytes / chunk_bytes;
      for (size_t i = 0; i < count + static_cast<size_t>(window); ++i) {
        if (i >= static_cast<size_t>(window)) {
          SLUICE_RETURN_IF_ERROR(Poll(chunk_done_[(i - static_cast<size_t>(window)) % chunk_done_.size()]));
        }
        if (i >= count) continue;
        SLUICE_RETURN_IF_ERROR(Copy(direction, i * chunk_bytes, chunk_bytes));
        SLUICE_RETURN_IF_ERROR(device_.Record(stream_, chunk_done_[i % chunk_done_.size()].view()));
      }
      least = std::min(least, clock_.Now() - begin);
    }
    return static_cast<double>(kBufferBytes) / absl::ToDoubleSeconds(least);
  }

  absl::StatusOr<absl::Duration> EngineTime(Direction direction, size_t size_bytes) {
    return Least([&] { return Copy(direction, 0, size_bytes); });
  }

  absl::StatusOr<absl::Duration> KernelTime(Direction direction, size_t size_bytes) {
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                            PrepareTransfer(device_, {.sizes_bytes = {size_bytes}}));
    const DeviceSpan host = pinned_.view().subspan(0, size_bytes).device_span();
    const DeviceSpan device = memory_.view().subspan(0, size_bytes);
    const bool in = direction == Direction::kToDevice;
    const std::array<DeviceSpan, 4> spans = {in ? host : device, in ? device : host,
                                             stamps_.view().subspan(0, 2 * sizeof(uint64_t)).device_span(),
                                             counter_.view().subspan(0, sizeof(uint32_t))};
    const KernelArgs args = {.spans = spans, .workspace = {}};
    return Least([&] { return device_.Launch(stream_, *kernel, args); });
  }

 private:
  absl::Status Copy(Direction direction, size_t offset, size_t size_bytes) {
    const PinnedSpan host = pinned_.view().subspan(offset, size_bytes);
    const DeviceSpan device = memory_.view().subspan(offset, size_bytes);
    return direction == Direction::kToDevice ? device_.CopyToDevice(stream_, host, device)
                                             : device_.CopyToHost(stream_, device, host);
  }

  absl::Status Poll(const Event& event) {
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const bool over, device_.Query(event));
      if (over) return absl::OkStatus();
      CpuRelax();
    }
  }

  template <class Issue>
  absl::StatusOr<absl::Duration> Least(Issue&& issue) {
    absl::Duration least = absl::InfiniteDuration();
    for (int run = 0; run <= kRuns; ++run) {  // The first may load code.
      SLUICE_RETURN_IF_ERROR(device_.Record(stream_, start_.view()));
      SLUICE_RETURN_IF_ERROR(issue());
      SLUICE_RETURN_IF_ERROR(device_.Record(stream_, end_.view()));
      SLUICE_RETURN_IF_ERROR(device_.Synchronize(end_.view()));
      SLUICE_ASSIGN_OR_RETURN(const absl::Duration elapsed, device_.Elapsed(start_, end_));
      if (run > 0) least = std::min(least, elapsed);
    }
    return least;
  }

  Device& device_;
  const Clock& clock_;
  PinnedBuffer pinned_, stamps_;
  DeviceBuffer memory_, counter_;
  Stream stream_;
  TimedEvent start_, end_;
  std::array<Event, kMostWindow> chunk_done_;
};

}  // namespace

TransferTuning ChooseTransferTuning(std::span<const ChunkBandwidth> chunks, std::span<const CopyDuration> copies) {
  TransferTuning tuning;
  double best_in = 0, best_out = 0;
  for (const ChunkBandwidth& chunk : chunks) {
    best_in = std::max(best_in, chunk.to_device);
    best_out = std::max(best_out, chunk.to_host);
  }
  size_t least = 0;
  for (const ChunkBandwidth& chunk : chunks) {
    const size_t in_flight = chunk.chunk_bytes * static_cast<size_t>(chunk.window);
    if (chunk.to_device < kKeptBandwidth * best_in || chunk.to_host < kKeptBandwidth * best_out) continue;
    if (least != 0 && in_flight >= least) continue;
    least = in_flight;
    tuning.chunk_bytes = chunk.chunk_bytes;
    tuning.copy_window = chunk.window;
  }
  if (copies.empty()) return tuning;
  tuning.kernel_bytes = copies.front().size_bytes;
  for (const CopyDuration& copy : copies) {
    if (!NearlyAsFast(copy.kernel_to_device, copy.engine_to_device) ||
        !NearlyAsFast(copy.kernel_to_host, copy.engine_to_host)) {
      break;
    }
    tuning.kernel_bytes = copy.size_bytes;
  }
  return tuning;
}

absl::StatusOr<TransferCalibration> CalibrateTransfers(Device& device, const Clock& clock) {
  TransferCalibration calibration;
  if (device.info().unified_memory) return calibration;
  Calibrator calibrator(device, clock);
  SLUICE_RETURN_IF_ERROR(calibrator.Make());
  SLUICE_RETURN_IF_ERROR(calibrator.WarmUp());
  for (const size_t chunk_bytes : kChunkSizes) {
    for (int window = 1; window <= kMostWindow; ++window) {
      ChunkBandwidth& chunk = calibration.chunks.emplace_back();
      chunk.chunk_bytes = chunk_bytes;
      chunk.window = window;
      SLUICE_ASSIGN_OR_RETURN(chunk.to_device, calibrator.Bandwidth(Direction::kToDevice, chunk_bytes, window));
      SLUICE_ASSIGN_OR_RETURN(chunk.to_host, calibrator.Bandwidth(Direction::kToHost, chunk_bytes, window));
    }
  }
  for (size_t size = kLeastCopyBytes; size <= kMostCopyBytes; size *= 2) {
    CopyDuration copy;
    copy.size_bytes = size;
    const absl::StatusOr<absl::Duration> by_kernel = calibrator.KernelTime(Direction::kToDevice, size);
    if (absl::IsUnimplemented(by_kernel.status())) break;  // This backend has no such kernel.
    SLUICE_RETURN_IF_ERROR(by_kernel.status());
    copy.kernel_to_device = *by_kernel;
    SLUICE_ASSIGN_OR_RETURN(copy.engine_to_device, calibrator.EngineTime(Direction::kToDevice, size));
    SLUICE_ASSIGN_OR_RETURN(copy.kernel_to_host, calibrator.KernelTime(Direction::kToHost, size));
    SLUICE_ASSIGN_OR_RETURN(copy.engine_to_host, calibrator.EngineTime(Direction::kToHost, size));
    calibration.copies.push_back(copy);
  }
  calibration.tuning = ChooseTransferTuning(calibration.chunks, calibration.copies);
  return calibration;
}

}  // namespace sluice::gpu
