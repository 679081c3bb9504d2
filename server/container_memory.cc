// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/container_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace sluice::server {
namespace {

constexpr size_t kMostReserve = size_t{1} << 30;

std::optional<size_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  size_t value = 0;
  if (!(file >> value)) return std::nullopt;  // Also "max".
  return value;
}

/// The sum of the values that follow these words in a file of "word value" lines; what is missing counts as 0.
size_t SumOf(const std::string& path, std::initializer_list<absl::string_view> words) {
  std::ifstream file(path);
  std::string word;
  size_t value = 0;
  size_t sum = 0;
  while (file >> word >> value) {
    if (std::find(words.begin(), words.end(), word) != words.end()) sum += value;
  }
  return sum;
}

/// The group's path as the kernel says it, "/" when it does not.
std::string OwnCgroup(const std::string& root) {
  std::ifstream file(absl::StrCat(root, "proc/self/cgroup"));
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "0::/")) return absl::StrCat("/", rest);
  }
  return "/";
}

std::optional<ContainerMemory> ReadCgroup(const std::string& folder) {
  const std::string limit_file = absl::StrCat(folder, "/memory.max");
  const std::optional<size_t> limit = ReadNumber(limit_file);
  const std::optional<size_t> current = ReadNumber(absl::StrCat(folder, "/memory.current"));
  if (!limit || !current) return std::nullopt;
  // The page cache, models' mapped files included, goes before anybody is killed.
  const size_t cache = SumOf(absl::StrCat(folder, "/memory.stat"), {"active_file", "inactive_file"});
  return ContainerMemory{*limit, *current - std::min(cache, *current), limit_file};
}

std::optional<ContainerMemory> ReadMachine(const std::string& root) {
  const std::string path = absl::StrCat(root, "proc/meminfo");
  std::ifstream file(path);
  std::string word, unit;
  size_t kibibytes = 0;
  size_t total = 0;
  std::optional<size_t> available;
  while (file >> word >> kibibytes && std::getline(file, unit)) {
    if (word == "MemTotal:") total = kibibytes * 1024;
    if (word == "MemAvailable:") available = kibibytes * 1024;
  }
  if (total == 0 || !available) return std::nullopt;
  return ContainerMemory{total, total - std::min(*available, total), path};
}

}  // namespace

absl::StatusOr<ContainerMemory> ReadContainerMemory(const std::string& root) {
  std::optional<ContainerMemory> least = ReadMachine(root);
  const auto consider = [&](const std::optional<ContainerMemory>& found) {
    if (found && (!least || found->room_bytes() < least->room_bytes())) least = found;
  };
  const std::string mount = absl::StrCat(root, "sys/fs/cgroup");
  std::filesystem::path group = OwnCgroup(root);
  // Each group's limit holds for all below it. In a container the own group may be the mount itself.
  while (group.has_relative_path()) {
    consider(ReadCgroup(absl::StrCat(mount, group.string())));
    group = group.parent_path();
  }
  consider(ReadCgroup(mount));
  if (least) return *least;
  return absl::FailedPreconditionError(absl::StrCat("neither ", mount, " nor ", root, "proc/meminfo tells the memory"));
}

size_t HostMemoryReserve(size_t limit_bytes) { return std::min(kMostReserve, limit_bytes / 16); }

absl::StatusOr<std::unique_ptr<gpu::MemoryBudget>> MakeHostMemoryBudget(int64_t pinned_limit, const std::string& root,
                                                                        size_t response_bytes) {
  SLUICE_ASSIGN_OR_RETURN(const ContainerMemory memory, ReadContainerMemory(root));
  const size_t heap_reserve = HostMemoryReserve(memory.limit_bytes);
  if (response_bytes > 0 && response_bytes + heap_reserve >= memory.room_bytes()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--response-pool-bytes: expected less than the ", memory.room_bytes(), " bytes of room (",
                     memory.source, ") without the ", heap_reserve, " kept free, got ", response_bytes));
  }
  const size_t reserve = heap_reserve + response_bytes;
  const size_t usable = memory.room_bytes() > reserve ? memory.room_bytes() - reserve : 0;
  if (pinned_limit > 0 && static_cast<size_t>(pinned_limit) > usable) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--pinned-memory-limit: expected at most ", usable, " bytes (", memory.source, " says ", memory.limit_bytes,
        ", in use are ", memory.used_bytes, ", kept free ", reserve, "), got ", pinned_limit));
  }
  Log(Severity::kInfo, "host memory",
      {{"source", memory.source},
       {"limit_bytes", memory.limit_bytes},
       {"used_bytes", memory.used_bytes},
       {"reserve_bytes", reserve},
       {"pinned_limit_bytes", pinned_limit}});
  gpu::MemoryBudgetOptions options;
  options.name = "host memory";
  options.counted_limit = static_cast<size_t>(pinned_limit);
  options.total_limit = std::max<size_t>(1, memory.limit_bytes - reserve);
  options.probe = [root, limit_bytes = memory.limit_bytes]() -> absl::StatusOr<size_t> {
    SLUICE_ASSIGN_OR_RETURN(const ContainerMemory now, ReadContainerMemory(root));
    // Another limit may be nearer by now: what counts is the room that is left.
    return limit_bytes - std::min(now.room_bytes(), limit_bytes);
  };
  auto budget = std::make_unique<gpu::MemoryBudget>(std::move(options));
  SLUICE_RETURN_IF_ERROR(budget->Refresh());
  return budget;
}

}  // namespace sluice::server
