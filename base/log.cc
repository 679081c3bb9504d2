// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/log_filter.h"

namespace sluice {
namespace {

/// By severity. Relaxed: which lines of this very moment are written does not matter.
std::array<std::atomic<bool>, 3> logged = {true, true, true};

absl::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "INFO";
    case Severity::kWarning:
      return "WARNING";
    case Severity::kError:
      return "ERROR";
  }
  return "ERROR";
}

bool NeedsQuotes(absl::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    if (c <= ' ' || c == '"' || c == '\\' || c == '=' || static_cast<unsigned char>(c) >= 0x7f) return true;
  }
  return false;
}

}  // namespace

std::string FormatLogLine(Severity severity, absl::string_view message, std::initializer_list<LogField> fields) {
  std::string line = absl::StrCat(SeverityName(severity), " ", absl::CHexEscape(message));
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.key, "=");
    if (NeedsQuotes(field.value)) {
      absl::StrAppend(&line, "\"", absl::Utf8SafeCHexEscape(field.value), "\"");
    } else {
      absl::StrAppend(&line, field.value);
    }
  }
  return line;
}

bool IsLogged(Severity severity) { return logged[static_cast<size_t>(severity)].load(std::memory_order_relaxed); }

void SetLogged(Severity severity, bool on) {
  logged[static_cast<size_t>(severity)].store(on, std::memory_order_relaxed);
}

void Log(Severity severity, absl::string_view message, std::initializer_list<LogField> fields) {
  if (!IsLogged(severity)) return;
  std::string line = absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ",
                                  FormatLogLine(severity, message, fields), "\n");
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace sluice
