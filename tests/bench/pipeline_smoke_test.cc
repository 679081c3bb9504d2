// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// Goal: bench/pipeline runs every case from end to end. Method: the program itself on the host device with tiny models
// and --quick; its JSON says that every request was answered. No time is looked at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/program.h"
#include "tests/integration/tiny_models.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PipelineTest : public ::testing::Test {
 protected:
  PipelineTest() : folder_(std::filesystem::path(::testing::TempDir()) / absl::StrCat("pipeline-", ::getpid())) {
    const std::string config =
        "max_batch_size: 8\nparameters { key: \"sluice.buckets\" value { string_value: \"1,4\" } }\n";
    AddToRepository(models(), "chain", ChainModel(16, 4), config);
    AddToRepository(models(), "double", DoublingModel(4096), config);
  }
  ~PipelineTest() override { std::filesystem::remove_all(folder_); }

  std::string models() const { return (folder_ / "models").string(); }
  std::string file(const char* name) const { return (folder_ / name).string(); }
  int Run(const std::string& flags) const {
    return Execute(absl::StrCat(Environment("SLUICE_PIPELINE"), " --models ", models(), " ", flags, " >", file("out"),
                                " 2>", file("err")));
  }

  const std::filesystem::path folder_;
};

class PipelineCasesTest : public PipelineTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(PipelineCasesTest, RunAndCountsAddUp) {
  const std::string flags = absl::StrCat(
      "--device ", GetParam(),
      " --quick --stages-model chain:6 --cut-models chain:4 --copies-in-model double:4 --copies-out-model double:4 "
      "--chain-model chain --neighbour-model chain:4 --loads 0.02 --seed 3 --json ",
      file("result.json"), " --trace ", file("trace.json"));
  ASSERT_EQ(Run(flags), 0) << ReadFile(file("err")) << ReadFile(file("out"));

  const auto result = nlohmann::json::parse(ReadFile(file("result.json")));
  std::vector<std::string> cases;
  for (const auto& one : result.at("cases")) {
    cases.push_back(one.at("case"));
    EXPECT_TRUE(one.at("within").get<bool>()) << one;
    EXPECT_GT(one.at("submitted").get<int>(), 0) << one;
    EXPECT_EQ(one.at("submitted"), one.at("answered")) << one;
    EXPECT_FALSE(one.at("rows").empty()) << one;
    for (const auto& target : one.at("targets")) EXPECT_FALSE(target.at("judged").get<bool>()) << target;
  }
  const auto rows = result.at("cases").at(0).at("rows");
  const bool has_copies =
      std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.at("row") == "all chunks in alone"; });
  EXPECT_EQ(has_copies, GetParam() != std::string("host"));
  EXPECT_THAT(cases, ElementsAre("stages", "cut", "copies", "chain"));
  EXPECT_THAT(ReadFile(file("out")), HasSubstr("== chain"));

  const auto trace = nlohmann::json::parse(ReadFile(file("trace.json")));
  int units = 0;
  for (const auto& event : trace.at("traceEvents")) units += event.at("name") == "unit" ? 1 : 0;
  EXPECT_GE(units, 4);  // At least one micro-batch's matrix products.

  if (Environment("SLUICE_PYTHON").empty()) return;
  EXPECT_EQ(Execute(absl::StrCat(Environment("SLUICE_PYTHON"), " ", Environment("SLUICE_PLOT_TRACE"), " ",
                                 file("trace.json"), " --output ", file("trace.svg"))),
            0);
  EXPECT_THAT(ReadFile(file("trace.svg")), HasSubstr("batch stream 1: units"));
}

INSTANTIATE_TEST_SUITE_P(Devices, PipelineCasesTest, ::testing::Values("host", "host-copiers"));

TEST_F(PipelineTest, JsonAloneGoesToStandardOutput) {
  ASSERT_EQ(Run("--quick --cases stages --stages-model chain:2 --json -"), 0) << ReadFile(file("err"));
  EXPECT_EQ(nlohmann::json::parse(ReadFile(file("out"))).at("cases").at(0).at("case"), "stages");
}

TEST_F(PipelineTest, WhatCannotBeMeasuredFails) {
  EXPECT_EQ(Run(absl::StrCat("--quick --cases chain --chain-model absent --json ", file("result.json"))), 1);
  EXPECT_THAT(ReadFile(file("err")), HasSubstr("model 'absent' is not in"));
  const auto result = nlohmann::json::parse(ReadFile(file("result.json")));
  EXPECT_FALSE(result.at("cases").at(0).at("within").get<bool>());
}

TEST_F(PipelineTest, WrongFlagsAreRefused) {
  EXPECT_EQ(Run("--cases everything"), 2);
  EXPECT_EQ(Run("--cut-models chain:none"), 2);
  EXPECT_EQ(Run("--help"), 0);
}

}  // namespace
}  // namespace sluice::testing
