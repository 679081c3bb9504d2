// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/memory_budget.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::gpu {
namespace {
constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
size_t OrNone(size_t limit_bytes) { return limit_bytes == 0 ? kNoLimit : limit_bytes; }
}  // namespace

absl::string_view MemoryKindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kWeights:
      return "weights";
    case MemoryKind::kSlots:
      return "slots";
    case MemoryKind::kOther:
      return "other";
  }
  return "other";
}

size_t MemoryUse::counted() const { return std::accumulate(counted_bytes.begin(), counted_bytes.end(), size_t{0}); }

std::string MemoryUse::ToString() const {
  return absl::StrCat(total(), " bytes in use = weights ", of(MemoryKind::kWeights), " + slots ",
                      of(MemoryKind::kSlots), " + other ", of(MemoryKind::kOther));
}

MemoryBudget::Nearest MemoryBudget::FindNearest() const {
  const Nearest counted = {.limit_bytes = OrNone(options_.counted_limit), .used_bytes = use_.counted()};
  const Nearest total = {.limit_bytes = OrNone(options_.total_limit), .used_bytes = use_.total(), .total = true};
  return counted.room() < total.room() ? counted : total;
}

std::string MemoryBudget::Describe() const {
  const Nearest nearest = FindNearest();
  MemoryUse use = use_;
  if (!nearest.total) use.uncounted_bytes = 0;
  const std::string limit =
      nearest.limit_bytes == kNoLimit ? "no limit, " : absl::StrCat("limit ", nearest.limit_bytes, " bytes, ");
  return absl::StrCat(limit, use.ToString());
}

std::string MemoryBudget::ToString() const {
  if (options_.parent != nullptr) return options_.parent->ToString();
  MutexLock lock(mutex_);
  return Describe();
}

absl::Status MemoryBudget::Refresh() {
  if (options_.parent != nullptr) SLUICE_RETURN_IF_ERROR(options_.parent->Refresh());
  if (!options_.probe) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const size_t used_bytes, options_.probe());
  MutexLock lock(mutex_);
  const size_t counted = use_.counted();
  use_.uncounted_bytes = used_bytes > counted ? used_bytes - counted : 0;
  probed_ = true;
  since_probe_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status MemoryBudget::RefreshFor(size_t size_bytes) {
  {
    MutexLock lock(mutex_);
    if (probed_ && since_probe_bytes_ < kProbeEveryBytes && size_bytes <= FindNearest().room()) return absl::OkStatus();
  }
  return Refresh();
}

absl::Status MemoryBudget::Admit(size_t size_bytes, MemoryKind kind, bool count) {
  MutexLock lock(mutex_);
  if (size_bytes > FindNearest().room()) {
    return absl::ResourceExhaustedError(absl::StrCat(options_.name, ": ", size_bytes, " bytes for ",
                                                     MemoryKindName(kind), " do not fit: ", Describe()));
  }
  if (!count) return absl::OkStatus();
  use_.counted_bytes[static_cast<size_t>(kind)] += size_bytes;
  since_probe_bytes_ += std::min(size_bytes, kProbeEveryBytes);
  return absl::OkStatus();
}

absl::Status MemoryBudget::AdmitOrReclaim(size_t size_bytes, MemoryKind kind, bool count) {
  if (options_.probe) SLUICE_RETURN_IF_ERROR(RefreshFor(size_bytes));
  absl::Status status = Admit(size_bytes, kind, count);
  if (status.ok()) return status;
  std::vector<std::pair<const void*, std::function<void()>>> reclaimers;
  {
    MutexLock lock(mutex_);
    reclaimers = reclaimers_;
  }
  if (reclaimers.empty()) return status;
  for (const auto& [owner, reclaim] : reclaimers) reclaim();
  SLUICE_RETURN_IF_ERROR(Refresh());
  return Admit(size_bytes, kind, count);
}

void MemoryBudget::AddReclaimer(const void* owner, std::function<void()> reclaim) {
  MutexLock lock(mutex_);
  reclaimers_.emplace_back(owner, std::move(reclaim));
}

void MemoryBudget::RemoveReclaimer(const void* owner) {
  MutexLock lock(mutex_);
  std::erase_if(reclaimers_, [owner](const auto& reclaimer) { return reclaimer.first == owner; });
}

absl::Status MemoryBudget::Reserve(size_t size_bytes, MemoryKind kind) {
  SLUICE_RETURN_IF_ERROR(AdmitOrReclaim(size_bytes, kind, /*count=*/true));
  if (options_.parent == nullptr) return absl::OkStatus();
  absl::Status status = options_.parent->Reserve(size_bytes, kind);
  if (!status.ok()) {
    MutexLock lock(mutex_);
    use_.counted_bytes[static_cast<size_t>(kind)] -= size_bytes;
  }
  return status;
}

absl::Status MemoryBudget::CheckFits(size_t size_bytes, MemoryKind kind) {
  SLUICE_RETURN_IF_ERROR(AdmitOrReclaim(size_bytes, kind, /*count=*/false));
  return options_.parent == nullptr ? absl::OkStatus() : options_.parent->CheckFits(size_bytes, kind);
}

void MemoryBudget::Release(size_t size_bytes, MemoryKind kind) {
  {
    MutexLock lock(mutex_);
    size_t& counted = use_.counted_bytes[static_cast<size_t>(kind)];
    counted -= std::min(counted, size_bytes);
  }
  if (options_.parent != nullptr) options_.parent->Release(size_bytes, kind);
}

MemoryUse MemoryBudget::use() const {
  MutexLock lock(mutex_);
  return use_;
}

size_t MemoryBudget::limit_bytes() const {
  const size_t parent = options_.parent == nullptr ? kNoLimit : options_.parent->limit_bytes();
  MutexLock lock(mutex_);
  const size_t total = OrNone(options_.total_limit);
  const size_t left = total == kNoLimit ? kNoLimit : total - std::min(total, use_.uncounted_bytes);
  return std::min({parent, OrNone(options_.counted_limit), left});
}

}  // namespace sluice::gpu
