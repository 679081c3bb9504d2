// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// Goal: ports that must not hold up each other are polled apart, and nobody's own choice is overruled. Method: the
// environment that gRPC would read.
#include "server/rpc/polling_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace sluice::rpc {
namespace {

using ::testing::HasSubstr;

class PollingEngineTest : public ::testing::Test {
 protected:
  PollingEngineTest() {
    if (Value() != nullptr) before_ = Value();
    unsetenv(kVariable);
  }
  ~PollingEngineTest() override { before_.has_value() ? setenv(kVariable, before_->c_str(), 1) : unsetenv(kVariable); }

  static constexpr char kVariable[] = "GRPC_POLL_STRATEGY";
  static const char* Value() { return std::getenv(kVariable); }

 private:
  std::optional<std::string> before_;
};

TEST_F(PollingEngineTest, OnePortHasGrpcsOwn) {
  EXPECT_TRUE(ChoosePollingEngine(false).ok());
  EXPECT_EQ(Value(), nullptr);
}

TEST_F(PollingEngineTest, PortsApartArePolledApart) {
  EXPECT_TRUE(ChoosePollingEngine(true).ok());
  EXPECT_STREQ(Value(), "poll");
}

TEST_F(PollingEngineTest, AnEmptyValueIsNone) {
  setenv(kVariable, "", 1);
  EXPECT_TRUE(ChoosePollingEngine(true).ok());
  EXPECT_STREQ(Value(), "poll");
}

TEST_F(PollingEngineTest, AChoiceStays) {
  for (const char* choice : {"epoll1", "poll", "all"}) {
    setenv(kVariable, choice, 1);
    for (const bool ports_apart : {false, true}) {
      EXPECT_TRUE(ChoosePollingEngine(ports_apart).ok());
      EXPECT_STREQ(Value(), choice);
    }
  }
}

TEST_F(PollingEngineTest, WhatGrpcWouldAbortForIsAnError) {
  for (const char* choice : {"none", "epollex", "epoll1,poll", "POLL"}) {
    setenv(kVariable, choice, 1);
    const absl::Status status = ChoosePollingEngine(false);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(choice));
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected epoll1, poll or all"));
  }
}

}  // namespace
}  // namespace sluice::rpc
