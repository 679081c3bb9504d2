// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/metrics/histogram.h"

namespace sluice::metrics {

enum class FamilyType : uint8_t { kCounter, kGauge, kHistogram };

using LabelList = std::vector<std::pair<std::string, std::string>>;

/// One series of a family: a value, or a histogram.
struct Series {
  LabelList labels;
  double value = 0;
  HistogramReading histogram;
};

/// One metric family as it is at the moment of a scrape.
struct Family {
  std::string name;
  std::string help;  ///< One line: the exposition does not escape it.
  FamilyType type = FamilyType::kGauge;
  std::vector<double> edges;  ///< Histograms only, seconds.
  std::vector<Series> series;
};

/// Values that live elsewhere and are asked for at a scrape.
enum class Reading : uint8_t {
  kQueueDepth,              ///< class, device
  kQueueLimit,              ///< class, device
  kExecuting,               ///< class, device
  kStreamPriority,          ///< class, device
  kDeviceHealthy,           ///< device; 1 or 0
  kDeviceMemoryBytes,       ///< device, kind
  kDeviceMemoryLimitBytes,  ///< device
  kPinnedMemoryBytes,       ///< kind
  kPinnedMemoryLimitBytes,  ///< none
  kBatchPlanRows,           ///< model, version, device; as are the others of the batch plan
  kBatchPlanSeconds,
  kBatchPlanUnits,
  kBatchPlanLongestUnitSeconds,
  kBatchPlanCost,
  kBatchPlanUncuttable,      ///< 1 or 0
  kGateGrants,               ///< device
  kGateRefusals,             ///< device
  kGateOwedGrants,           ///< device
  kGateLapsedTokens,         ///< device
  kGateUntracked,            ///< device
  kLatencyShareUsed,         ///< device
  kTransferChunkBytes,       ///< device; only where copies are real, like the next two
  kTransferWindow,           ///< device
  kTransferKernelBytes,      ///< device
  kLauncherUnits,            ///< device
  kLauncherWaits,            ///< device
  kPollingThreads,           ///< role
  kSlots,                    ///< class, device
  kSlotsFree,                ///< class, device
  kSlotWaits,                ///< class, device
  kSlotTimeouts,             ///< class, device
  kResponsePoolBytes,        ///< class
  kResponsePoolLimitBytes,   ///< class
  kResponsePoolKeptBytes,    ///< none
  kResponsePoolWaits,        ///< class
  kResponsePoolTimeouts,     ///< class
  kSharedMemoryRegions,      ///< state; like the next three only with --shared-memory=system
  kSharedMemoryBytes,        ///< state
  kSharedMemoryRegionLimit,  ///< none
  kSharedMemoryByteLimit,    ///< none
  kGpuUtilization,           ///< gpu_uuid, as the next five, and no other: perf_analyzer reads nothing else
  kGpuMemoryTotalBytes,
  kGpuMemoryUsedBytes,
  kGpuPowerUsage,
  kGpuPowerLimit,
  kGpuEnergyConsumption,
  kGpuFailedReads,  ///< device
};
inline constexpr size_t kReadingCount = 47;

/// One value of a reading; `labels` are the values of its labels, in the order stated above.
struct ReadingSample {
  Reading reading = Reading::kQueueDepth;
  std::vector<std::string> labels;
  double value = 0;
};

inline constexpr size_t kMostReadingLabels = 3;

/// Names, types and labels of the readings. Internal to metrics/.
struct ReadingFacts {
  absl::string_view name;
  absl::string_view help;
  FamilyType type;
  absl::string_view labels[kMostReadingLabels];  ///< In order; those not used are empty.
};
const ReadingFacts& FactsOf(Reading reading);
/// What its family is called.
inline absl::string_view NameOf(Reading reading) { return FactsOf(reading).name; }

/// `value` as a label value: valid UTF-8 (each byte that is not is replaced by U+FFFD), without control characters, cut
/// to 128 bytes at a character. Prometheus refuses a whole scrape for one bad byte.
std::string SanitizeLabel(absl::string_view value);

}  // namespace sluice::metrics
