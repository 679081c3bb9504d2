// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {

enum class Severity { kInfo, kWarning, kError };

/// One key and its value, already text. Values of any type absl::StrCat takes.
struct LogField {
  LogField(absl::string_view key_in, const absl::AlphaNum& value_in) : key(key_in), value(value_in.Piece()) {}
  LogField(absl::string_view key_in, const char* value_in) : key(key_in), value(absl::NullSafeStringView(value_in)) {}
  template <std::same_as<bool> Bool>  // an exact match: numbers must not turn into "true"
  LogField(absl::string_view key_in, Bool value_in) : key(key_in), value(value_in ? "true" : "false") {}
  absl::string_view key;
  std::string value;
};

/// Writes one line to stderr in one system call: UTC time, severity, message, then key=value fields. Values with
/// spaces, quotes or control characters are quoted and escaped, so that no input can forge a line. Any thread.
void Log(Severity severity, absl::string_view message, std::initializer_list<LogField> fields = {});

/// The line Log writes, without the time and newline; for tests.
std::string FormatLogLine(Severity severity, absl::string_view message, std::initializer_list<LogField> fields);

}  // namespace sluice
