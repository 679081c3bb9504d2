// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/gpu_monitor.h"

#include <memory>
#include <utility>

#include "base/log.h"

namespace sluice::server {
namespace {

constexpr int kLowerWeight = 5;  // as other threads that no request waits for

/// In the order of gpu::GpuValue.
constexpr std::array<metrics::Reading, gpu::kGpuValueCount> kReadings = {
    metrics::Reading::kGpuUtilization, metrics::Reading::kGpuMemoryTotalBytes, metrics::Reading::kGpuMemoryUsedBytes,
    metrics::Reading::kGpuPowerUsage,  metrics::Reading::kGpuPowerLimit,       metrics::Reading::kGpuEnergyConsumption};

/// The first that failed; what a GPU never tells is no failure.
absl::Status FailureIn(const gpu::GpuReading& reading) {
  for (const absl::StatusOr<double>& value : reading) {
    if (!value.ok() && !absl::IsUnimplemented(value.status())) return value.status();
  }
  return absl::OkStatus();
}

}  // namespace

GpuMonitor::GpuMonitor(std::vector<WatchedGpu> gpus, GpuMetricsConfig config, const Clock& clock)
    : config_(std::move(config)), clock_(clock) {
  {
    MutexLock lock(mutex_);
    for (const WatchedGpu& gpu : gpus) shown_.push_back({.device = gpu.device, .uuid = gpu.uuid});
  }
  for (WatchedGpu& gpu : gpus) watches_.push_back({.gpu = std::move(gpu)});
  thread_ = Thread(
      "gpu-metrics", [this] { Run(); }, kLowerWeight);
}

void GpuMonitor::Stop() {
  stopping_.store(true, std::memory_order_release);
  wakeup_.Notify();
  thread_.Join();
}

void GpuMonitor::Run() {
  // Here and not at start: a driver that nobody uses yet takes seconds.
  const absl::StatusOr<std::unique_ptr<gpu::Nvml>> nvml = gpu::Nvml::Load(config_.nvml_library);
  if (!nvml.ok()) {
    Log(Severity::kWarning, "no metrics of GPUs", {{"reason", std::string(nvml.status().message())}});
    return;
  }
  const MonotonicClock wait_clock;
  while (!stopping_.load(std::memory_order_acquire)) {
    for (size_t i = 0; i < watches_.size() && !stopping_.load(std::memory_order_acquire); ++i) Poll(**nvml, i);
    wakeup_.WaitUntil(wait_clock.Now() + config_.interval);
  }
}

void GpuMonitor::Poll(const gpu::Nvml& nvml, size_t index) {
  Watch& watch = watches_[index];
  absl::Status failure;
  gpu::GpuReading reading;
  if (!watch.found.has_value()) {
    absl::StatusOr<gpu::NvmlGpu> found = nvml.Find(watch.gpu.uuid);
    failure = found.status();
    if (found.ok()) watch.found = *std::move(found);
  }
  if (watch.found.has_value()) {
    reading = nvml.Read(*watch.found);
    failure = FailureIn(reading);
    LogLeftOut(watch, reading);
  }
  Show(index, reading, !failure.ok());
  LogChange(watch, failure);
}

void GpuMonitor::Show(size_t index, const gpu::GpuReading& reading, bool failed) {
  const Watch& watch = watches_[index];
  const Time now = clock_.Now();
  MutexLock lock(mutex_);
  Shown& shown = shown_[index];
  if (watch.found.has_value()) shown.uuid = watch.found->uuid;
  for (size_t i = 0; i < reading.size(); ++i) {
    shown.values[i] = reading[i].ok() ? std::optional<double>(*reading[i]) : std::nullopt;
  }
  shown.at = now;
  shown.failed_reads += failed ? 1 : 0;
  shown.polled = true;
}

void GpuMonitor::LogLeftOut(Watch& watch, const gpu::GpuReading& reading) {
  for (size_t i = 0; i < reading.size(); ++i) {
    if (watch.left_out[i] || !absl::IsUnimplemented(reading[i].status())) continue;
    watch.left_out[i] = true;
    Log(Severity::kInfo, "a metric is left out",
        {{"device", watch.gpu.device},
         {"metric", metrics::NameOf(kReadings[i])},
         {"reason", std::string(reading[i].status().message())}});
  }
}

void GpuMonitor::LogChange(Watch& watch, const absl::Status& failure) {
  const int64_t before = watch.failures_in_a_row;
  if (failure.ok()) {
    watch.failures_in_a_row = 0;
    if (before > 0) {
      Log(Severity::kInfo, "GPU can be read again",
          {{"device", watch.gpu.device}, {"uuid", watch.gpu.uuid}, {"failed_reads", before}});
    }
    return;
  }
  watch.failures_in_a_row = before + 1;
  if (before != 0 && before + 1 != kManyFailures) return;
  Log(before == 0 ? Severity::kWarning : Severity::kError, "GPU cannot be read",
      {{"device", watch.gpu.device},
       {"uuid", watch.gpu.uuid},
       {"failed_reads", watch.failures_in_a_row},
       {"reason", std::string(failure.message())}});
}

void GpuMonitor::Read(std::vector<metrics::ReadingSample>& samples) const {
  const Time now = clock_.Now();
  MutexLock lock(mutex_);
  for (const Shown& shown : shown_) {
    if (!shown.polled) continue;
    samples.push_back({metrics::Reading::kGpuFailedReads, {shown.device}, static_cast<double>(shown.failed_reads)});
    if (now - shown.at > kFreshIntervals * config_.interval) continue;  // the driver hangs
    for (size_t i = 0; i < shown.values.size(); ++i) {
      if (shown.values[i].has_value()) samples.push_back({kReadings[i], {shown.uuid}, *shown.values[i]});
    }
  }
}

}  // namespace sluice::server
