// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace sluice::metrics {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Time of boot, seconds since 1970, from the line "btime N" of /proc/stat.
std::optional<double> BootTime() {
  for (const absl::string_view line : absl::StrSplit(ReadAll("/proc/stat"), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    int64_t seconds = 0;
    if (words.size() == 2 && words[0] == "btime" && absl::SimpleAtoi(words[1], &seconds)) {
      return static_cast<double>(seconds);
    }
  }
  return std::nullopt;
}

}  // namespace

ProcessReading ReadProcess() {
  ProcessReading reading;
  const std::string text = ReadAll("/proc/self/stat");
  // The second field is the command in parentheses and may hold anything, so count from the last one: after it comes
  // field 3. Start time is field 22 in clock ticks since boot, resident pages field 24.
  const size_t parenthesis = text.rfind(')');
  if (parenthesis != std::string::npos && parenthesis + 2 < text.size()) {
    const std::vector<absl::string_view> fields = absl::StrSplit(absl::string_view(text).substr(parenthesis + 2), ' ');
    int64_t ticks = 0;
    int64_t pages = 0;
    if (fields.size() > 21 && absl::SimpleAtoi(fields[19], &ticks) && absl::SimpleAtoi(fields[21], &pages)) {
      if (const std::optional<double> boot = BootTime()) {
        reading.start_time_seconds = *boot + static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
      }
      reading.resident_bytes = static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
    }
  }
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  if (!error) {
    double count = 0;
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
    // One of them is the directory being read.
    if (!error) reading.open_fds = count - 1;
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    reading.max_fds = static_cast<double>(limit.rlim_cur);
  }
  return reading;
}

}  // namespace sluice::metrics
