// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: settings are what the server does, and what it does not do is refused by name. Method: read, set, and a table
// of what is wrong.
#include "server/rpc/settings_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/log_filter.h"
#include "puppet_backend.h"

namespace sluice::rpc {
namespace {

using ::testing::HasSubstr;
using LogValue = inference::LogSettingsRequest::SettingValue;

absl::Status SetLog(const std::string& name, const std::function<void(LogValue&)>& set,
                    inference::LogSettingsResponse& response) {
  const PuppetBackend backend;
  inference::LogSettingsRequest request;
  set((*request.mutable_settings())[name]);
  return AnswerLogSettings(backend, request, response);
}

TEST(LogSettings, TurnsSeveritiesOnAndOff) {
  const std::pair<const char*, Severity> table[] = {
      {"log_info", Severity::kInfo}, {"log_warning", Severity::kWarning}, {"log_error", Severity::kError}};
  for (const auto& [name, severity] : table) {
    for (const bool on : {false, true}) {
      inference::LogSettingsResponse response;
      EXPECT_TRUE(SetLog(
                      name, [on](LogValue& value) { value.set_bool_param(on); }, response)
                      .ok());
      EXPECT_EQ(IsLogged(severity), on);
      EXPECT_EQ(response.settings().at(name).bool_param(), on);
      EXPECT_EQ(response.settings_size(), 6);
    }
  }
}

TEST(LogSettings, RefusesWhatItCannotDo) {
  const std::vector<std::pair<std::string, std::function<void(LogValue&)>>> table = {
      {"log_info", [](LogValue& value) { value.set_uint32_param(1); }},
      {"log_info", [](LogValue& value) { value.set_string_param("true"); }},
      {"log_info", [](LogValue& /*value*/) {}},
      {"log_verbose_level", [](LogValue& value) { value.set_uint32_param(1); }},
      {"log_verbose_level", [](LogValue& value) { value.set_bool_param(false); }},
      {"log_file", [](LogValue& value) { value.set_string_param("/tmp/log"); }},
      {"log_format", [](LogValue& value) { value.set_string_param("default"); }},
      {"log_colour", [](LogValue& value) { value.set_bool_param(true); }},
      {"", [](LogValue& value) { value.set_bool_param(true); }},
  };
  for (const auto& [name, set] : table) {
    inference::LogSettingsResponse response;
    const absl::Status status = SetLog(name, set, response);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("setting '" + name + "': expected"));
    EXPECT_TRUE(IsLogged(Severity::kInfo));
  }
}

// One that is wrong keeps the others from being set.
TEST(LogSettings, SetsAllOrNone) {
  const PuppetBackend backend;
  inference::LogSettingsRequest request;
  for (const char* name : {"log_info", "log_warning", "log_error"}) {
    (*request.mutable_settings())[name].set_bool_param(false);
  }
  (*request.mutable_settings())["log_verbose_level"].set_uint32_param(2);
  inference::LogSettingsResponse response;
  EXPECT_FALSE(AnswerLogSettings(backend, request, response).ok());
  for (const Severity severity : {Severity::kInfo, Severity::kWarning, Severity::kError}) {
    EXPECT_TRUE(IsLogged(severity));
  }
}

TEST(TraceSetting, IsOffAndSaysSo) {
  PuppetBackend backend;
  backend.AddModel(MakeEchoModel());
  const auto ask = [&backend](const std::string& model,
                              const std::vector<std::pair<std::string, std::string>>& settings,
                              inference::TraceSettingResponse& response) {
    inference::TraceSettingRequest request;
    request.set_model_name(model);
    for (const auto& [name, value] : settings) (*request.mutable_settings())[name].add_value(value);
    return AnswerTraceSetting(backend, request, response);
  };
  for (const char* model : {"", "echo"}) {
    inference::TraceSettingResponse response;
    EXPECT_TRUE(ask(model, {{"trace_level", "OFF"}}, response).ok());
    ASSERT_EQ(response.settings_size(), 1);
    EXPECT_THAT(response.settings().at("trace_level").value(), ::testing::ElementsAre("OFF"));
  }
  inference::TraceSettingResponse ignored;
  EXPECT_EQ(ask("nobody", {}, ignored).code(), absl::StatusCode::kNotFound);
  const absl::Status level = ask("", {{"trace_level", "TIMESTAMPS"}}, ignored);
  EXPECT_EQ(level.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(level.message()), HasSubstr("setting 'trace_level': expected OFF"));
  const absl::Status rate = ask("", {{"trace_rate", "1"}}, ignored);
  EXPECT_EQ(rate.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(rate.message()), HasSubstr("setting 'trace_rate'"));
}

}  // namespace
}  // namespace sluice::rpc
