// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/settings_calls.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log_filter.h"
#include "base/status_macros.h"
#include "server/rpc/quote.h"

namespace sluice::rpc {
namespace {

using LogValue = inference::LogSettingsRequest::SettingValue;

constexpr std::pair<const char*, Severity> kSeverities[] = {
    {"log_info", Severity::kInfo}, {"log_warning", Severity::kWarning}, {"log_error", Severity::kError}};
constexpr char kVerboseLevel[] = "log_verbose_level";
constexpr char kLogFile[] = "log_file";
constexpr char kLogFormat[] = "log_format";
constexpr char kTimes[] = "ISO8601";  ///< How a line begins.
constexpr char kTraceLevel[] = "trace_level";
constexpr char kOff[] = "OFF";

absl::Status BadSetting(absl::string_view name, absl::string_view expected, absl::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat("setting ", Quote(name), ": expected ", expected, ", got ", got));
}

std::string Describe(const LogValue& value) {
  switch (value.parameter_choice_case()) {
    case LogValue::kBoolParam:
      return value.bool_param() ? "true" : "false";
    case LogValue::kUint32Param:
      return absl::StrCat(value.uint32_param());
    case LogValue::kStringParam:
      return Quote(value.string_param());
    case LogValue::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return "nothing";
}

const std::pair<const char*, Severity>* FindSeverity(absl::string_view name) {
  const auto* const found = std::find_if(std::begin(kSeverities), std::end(kSeverities),
                                         [name](const auto& severity) { return name == severity.first; });
  return found == std::end(kSeverities) ? nullptr : found;
}

absl::Status CheckLogSetting(const std::string& name, const LogValue& value) {
  if (FindSeverity(name) != nullptr) {
    return value.has_bool_param() ? absl::OkStatus() : BadSetting(name, "true or false", Describe(value));
  }
  if (name == kVerboseLevel) {
    const bool same = value.has_uint32_param() && value.uint32_param() == 0;
    return same ? absl::OkStatus() : BadSetting(name, "0: there are no verbose lines", Describe(value));
  }
  if (name == kLogFile) {
    const bool same = value.has_string_param() && value.string_param().empty();
    return same ? absl::OkStatus() : BadSetting(name, "'': the log goes to stderr", Describe(value));
  }
  if (name == kLogFormat) {
    const bool same = value.has_string_param() && value.string_param() == kTimes;
    return same ? absl::OkStatus() : BadSetting(name, absl::StrCat("'", kTimes, "'"), Describe(value));
  }
  return BadSetting(name, "log_info, log_warning, log_error, log_verbose_level, log_file or log_format",
                    "another name");
}

}  // namespace

absl::Status AnswerLogSettings(const server::InferenceBackend& /*backend*/,
                               const inference::LogSettingsRequest& request, inference::LogSettingsResponse& response) {
  for (const auto& [name, value] : request.settings()) SLUICE_RETURN_IF_ERROR(CheckLogSetting(name, value));
  for (const auto& [name, value] : request.settings()) {
    const auto* const severity = FindSeverity(name);
    if (severity != nullptr) SetLogged(severity->second, value.bool_param());
  }
  auto& settings = *response.mutable_settings();
  for (const auto& [name, severity] : kSeverities) settings[name].set_bool_param(IsLogged(severity));
  settings[kVerboseLevel].set_uint32_param(0);
  settings[kLogFile].set_string_param("");
  settings[kLogFormat].set_string_param(kTimes);
  return absl::OkStatus();
}

absl::Status AnswerTraceSetting(const server::InferenceBackend& backend, const inference::TraceSettingRequest& request,
                                inference::TraceSettingResponse& response) {
  if (!request.model_name().empty()) {
    SLUICE_RETURN_IF_ERROR(backend.FindModel(request.model_name(), "").status());
  }
  for (const auto& [name, setting] : request.settings()) {
    if (name != kTraceLevel) return BadSetting(name, kTraceLevel, "another name");
    // No value at all takes a setting back to its default.
    for (const std::string& value : setting.value()) {
      if (value != kOff) return BadSetting(name, "OFF: timelines are recorded by `sluice trace`", Quote(value));
    }
  }
  (*response.mutable_settings())[kTraceLevel].add_value(kOff);
  return absl::OkStatus();
}

}  // namespace sluice::rpc
