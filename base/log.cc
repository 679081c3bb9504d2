// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sluice {
namespace {

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

void Log(Severity severity, absl::string_view message, std::initializer_list<LogField> fields) {
  std::string line = absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()), " ",
                                  FormatLogLine(severity, message, fields), "\n");
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace sluice
