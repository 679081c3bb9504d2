// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/family.h"

#include <array>
#include <cstddef>

namespace sluice::metrics {
namespace {

constexpr std::array<ReadingFacts, kReadingCount> kReadings = {{
    {"sluice_queue_depth", "Requests waiting in the class queue.", FamilyType::kGauge, {"class", "device"}},
    {"sluice_queue_limit", "Requests the class queue can hold.", FamilyType::kGauge, {"class", "device"}},
    {"sluice_executing",
     "Requests taken from the queue and not yet answered.",
     FamilyType::kGauge,
     {"class", "device"}},
    {"sluice_stream_priority",
     "Stream priority as read back from the device; a smaller number runs first.",
     FamilyType::kGauge,
     {"class", "device"}},
    {"sluice_device_healthy", "1 while the device works, 0 once it is lost.", FamilyType::kGauge, {"device", ""}},
    {"sluice_device_memory_bytes", "Device memory by what it is used for.", FamilyType::kGauge, {"device", "kind"}},
    {"sluice_device_memory_limit_bytes",
     "What all kinds of device memory together may come to.",
     FamilyType::kGauge,
     {"device", ""}},
    {"sluice_pinned_memory_bytes",
     "Pinned memory, and memory of host devices, by what it is used for.",
     FamilyType::kGauge,
     {"kind", ""}},
    {"sluice_pinned_memory_limit_bytes",
     "What pinned memory and memory of host devices may come to, given the container's memory.",
     FamilyType::kGauge,
     {"", ""}},
    {"sluice_batch_plan_rows",
     "Rows that standard and batch work runs at a time.",
     FamilyType::kGauge,
     {"model", "version", "device"}},
    {"sluice_batch_plan_seconds",
     "Time of the batch plan alone on the device, measured when it was built.",
     FamilyType::kGauge,
     {"model", "version", "device"}},
    {"sluice_batch_plan_units",
     "Units the batch plan is cut into.",
     FamilyType::kGauge,
     {"model", "version", "device"}},
    {"sluice_batch_plan_longest_unit_seconds",
     "Predicted time of the batch plan's longest unit, for which a latency request may have to wait.",
     FamilyType::kGauge,
     {"model", "version", "device"}},
    {"sluice_batch_plan_cost_ratio",
     "Share of the best bucket's throughput that is given up for shorter units.",
     FamilyType::kGauge,
     {"model", "version", "device"}},
    {"sluice_batch_plan_uncuttable",
     "1 when no bucket's units keep to --unit-limit-us.",
     FamilyType::kGauge,
     {"model", "version", "device"}},
    {"sluice_gate_grants_total", "Units and chunks the gate let start.", FamilyType::kCounter, {"device", ""}},
    {"sluice_gate_refusals_total", "Times the gate held a unit or chunk back.", FamilyType::kCounter, {"device", ""}},
    {"sluice_gate_owed_grants_total",
     "Units let through against a latency request because batch was below its floor.",
     FamilyType::kCounter,
     {"device", ""}},
    {"sluice_gate_lapsed_tokens_total",
     "Latency requests that did not reach the device when predicted.",
     FamilyType::kCounter,
     {"device", ""}},
    {"sluice_gate_untracked_tokens_total",
     "Latency requests that found every gate token in use.",
     FamilyType::kCounter,
     {"device", ""}},
    {"sluice_latency_share_used_ratio",
     "Part of the room that --max-latency-share leaves latency requests which is taken; at 1 more are demoted.",
     FamilyType::kGauge,
     {"device", ""}},
    {"sluice_transfer_chunk_bytes",
     "The most a batch or standard copy moves at once, as measured at start or configured.",
     FamilyType::kGauge,
     {"device", ""}},
    {"sluice_transfer_window",
     "Copy chunks in flight per direction, as measured at start or configured.",
     FamilyType::kGauge,
     {"device", ""}},
    {"sluice_transfer_kernel_bytes",
     "Latency inputs and outputs up to this size move by a kernel instead of a copy engine.",
     FamilyType::kGauge,
     {"device", ""}},
    {"sluice_launcher_units_total", "Units launched for batch work.", FamilyType::kCounter, {"device", ""}},
    {"sluice_launcher_waits_total",
     "Times the launcher had nothing it may launch.",
     FamilyType::kCounter,
     {"device", ""}},
    {"sluice_polling_threads", "Threads that may poll instead of sleeping.", FamilyType::kGauge, {"role", ""}},
    {"sluice_slots", "Slots of all ready models.", FamilyType::kGauge, {"class", "device"}},
    {"sluice_slots_free", "Slots that no execution holds.", FamilyType::kGauge, {"class", "device"}},
    {"sluice_slot_waits_total",
     "Times an execution found every slot taken.",
     FamilyType::kCounter,
     {"class", "device"}},
    {"sluice_slot_timeouts_total",
     "Executions given up because no slot was free within --slot-wait-ms.",
     FamilyType::kCounter,
     {"class", "device"}},
    {"sluice_response_pool_bytes",
     "Memory of responses over 64 KiB that are being made or are not read yet.",
     FamilyType::kGauge,
     {"class", ""}},
    {"sluice_response_pool_limit_bytes",
     "What a class may hold of the response pool.",
     FamilyType::kGauge,
     {"class", ""}},
    {"sluice_response_pool_kept_bytes",
     "Memory of the response pool that waits for its next use.",
     FamilyType::kGauge,
     {"", ""}},
    {"sluice_response_pool_waits_total",
     "Times an execution found no room for its responses.",
     FamilyType::kCounter,
     {"class", ""}},
    {"sluice_response_pool_timeouts_total",
     "Requests given up because there was no response memory in time.",
     FamilyType::kCounter,
     {"class", ""}},
    {"sluice_shared_memory_regions",
     "Regions of shared memory that clients registered, and those that left while requests still use them.",
     FamilyType::kGauge,
     {"state", ""}},
    {"sluice_shared_memory_bytes", "The size of these regions.", FamilyType::kGauge, {"state", ""}},
    {"sluice_shared_memory_regions_limit",
     "What regions of both states together may come to.",
     FamilyType::kGauge,
     {"", ""}},
    {"sluice_shared_memory_limit_bytes", "The same in bytes.", FamilyType::kGauge, {"", ""}},
    // Triton's names.
    {"nv_gpu_utilization",
     "Share of the driver's last sample period in which a kernel ran, 0 to 1.",
     FamilyType::kGauge,
     {"gpu_uuid", ""}},
    {"nv_gpu_memory_total_bytes", "Memory of the GPU.", FamilyType::kGauge, {"gpu_uuid", ""}},
    {"nv_gpu_memory_used_bytes",
     "Memory of the GPU that is in use, by any process or the driver.",
     FamilyType::kGauge,
     {"gpu_uuid", ""}},
    {"nv_gpu_power_usage", "Power the GPU draws, watts.", FamilyType::kGauge, {"gpu_uuid", ""}},
    {"nv_gpu_power_limit", "Power the GPU may draw, watts.", FamilyType::kGauge, {"gpu_uuid", ""}},
    {"nv_energy_consumption",
     "Energy the GPU took since its driver was loaded, joules.",
     FamilyType::kCounter,
     {"gpu_uuid", ""}},
    {"sluice_gpu_failed_reads_total",
     "Times the driver was asked for a GPU's use and answered with an error.",
     FamilyType::kCounter,
     {"device", ""}},
}};

constexpr size_t kMaxLabelBytes = 128;
constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

bool IsContinuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Length of the well-formed UTF-8 character at the front of text, 0 if there is none (Unicode 15, table 3-7).
size_t CharacterLength(absl::string_view text) {
  const auto at = [&text](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return IsContinuation(at(1)) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned char low = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned char high = first == 0xED ? 0x9F : 0xBF;
    return at(1) >= low && at(1) <= high && IsContinuation(at(2)) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned char low = first == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xF4 ? 0x8F : 0xBF;
    return at(1) >= low && at(1) <= high && IsContinuation(at(2)) && IsContinuation(at(3)) ? 4 : 0;
  }
  return 0;
}

}  // namespace

const ReadingFacts& FactsOf(Reading reading) { return kReadings[static_cast<size_t>(reading)]; }

std::string SanitizeLabel(absl::string_view value) {
  std::string clean;
  while (!value.empty()) {
    const size_t length = CharacterLength(value);
    const bool control = length == 1 && (static_cast<unsigned char>(value[0]) < 0x20 || value[0] == 0x7F);
    const absl::string_view piece = length == 0 || control ? kReplacement : value.substr(0, length);
    if (clean.size() + piece.size() > kMaxLabelBytes) break;
    clean.append(piece.data(), piece.size());
    value.remove_prefix(length == 0 ? 1 : length);
  }
  return clean;
}

}  // namespace sluice::metrics
