// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// Goal: bench/plans measures every plan that can be loaded, says which could not, and keeps to a pace. Method: the
// program itself on the host device with small models of both kinds of inputs. No time is looked at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/bench/program.h"
#include "tests/integration/tiny_models.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class PlansTest : public ::testing::Test {
 protected:
  PlansTest() : folder_(std::filesystem::path(::testing::TempDir()) / absl::StrCat("plans-", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~PlansTest() override { std::filesystem::remove_all(folder_); }

  std::string file(const char* name) const { return (folder_ / name).string(); }
  /// Short rounds of the models in `models`.
  int Run(const std::string& models, const std::string& flags) const {
    return Execute(absl::StrCat(Environment("SLUICE_PLANS"), " --models ", models, " --phase 0.005 --warmup 0 ", flags,
                                " >", file("out"), " 2>", file("err")));
  }
  int RunSmall(const std::string& flags) const { return Run(Environment("SLUICE_SMALL_MODELS"), flags); }

  const std::filesystem::path folder_;
};

TEST_F(PlansTest, MeasuresEachBucketOfEachModel) {
  ASSERT_EQ(RunSmall(absl::StrCat("--device host:0 --model resnet50_ts17 --model bert_ts17_sdpa --rows 3,1 --rounds 2 "
                                  "--kernels 2 --json ",
                                  file("result.json"))),
            0)
      << ReadFile(file("err")) << ReadFile(file("out"));
  const auto result = nlohmann::json::parse(ReadFile(file("result.json")));
  std::vector<std::string> measured;
  for (const auto& row : result.at("rows")) {
    measured.push_back(absl::StrCat(row.at("model").get<std::string>(), ":", row.at("rows").get<int>()));
    EXPECT_EQ(row.at("n"), 2) << row;
    EXPECT_EQ(row.at("rounds ms").size(), 2u) << row;
    EXPECT_GT(row.at("ms least").get<double>(), 0) << row;
    EXPECT_LE(row.at("ms least").get<double>(), row.at("ms p50").get<double>()) << row;
    EXPECT_GT(row.at("kernels").get<int>(), 2) << row;
    EXPECT_EQ(row.at("precision"), "fp32") << row;
    EXPECT_EQ(row.at("longest kernels").size(), 2u) << row;
  }
  EXPECT_THAT(measured, ElementsAre("resnet50_ts17:1", "resnet50_ts17:3", "bert_ts17_sdpa:1", "bert_ts17_sdpa:3"));
  EXPECT_TRUE(result.at("errors").empty()) << result;
  EXPECT_THAT(ReadFile(file("out")), HasSubstr("% of all"));
}

TEST_F(PlansTest, WhatCannotBeLoadedLeavesTheOthers) {
  AddToRepository(file("models"), "double", DoublingModel(8), "max_batch_size: 4\n");
  AddToRepository(file("models"), "broken", "not a model");
  ASSERT_EQ(Run(file("models"), absl::StrCat("--rounds 1 --json ", file("result.json"))), 1);
  const auto result = nlohmann::json::parse(ReadFile(file("result.json")));
  EXPECT_EQ(result.at("rows").size(), 3u) << result;  // 1, 2 and 4 rows.
  ASSERT_EQ(result.at("errors").size(), 1u) << result;
  EXPECT_EQ(result.at("errors").at(0).at("model"), "broken");
  EXPECT_THAT(ReadFile(file("out")), HasSubstr("double"));
}

TEST_F(PlansTest, JsonAloneGoesToStandardOutput) {
  ASSERT_EQ(RunSmall("--model dlrm_ts17 --rows 1 --rounds 1 --json -"), 0) << ReadFile(file("err"));
  EXPECT_EQ(nlohmann::json::parse(ReadFile(file("out"))).at("rows").at(0).at("model"), "dlrm_ts17");
}

TEST_F(PlansTest, APacedRunMeasuresWhatEachLineAsksFor) {
  std::ofstream(file("in")) << "\n3\n1, 3\n7\n";
  ASSERT_EQ(RunSmall(absl::StrCat("--paced --model resnet50_ts17 --rows 1,3 --rounds 9 --json ", file("result.json"),
                                  " <", file("in"))),
            0)
      << ReadFile(file("err"));
  std::vector<std::string> said;
  for (const absl::string_view line : absl::StrSplit(ReadFile(file("out")), '\n', absl::SkipEmpty())) {
    const auto event = nlohmann::json::parse(line);
    said.push_back(absl::StrCat(event.at("event").get<std::string>(), " ", event.value("number", 0), ":"));
    for (const auto& plan : event.value("plans", nlohmann::json::array())) {
      absl::StrAppend(&said.back(), " ", plan.at("rows").get<int>());
      EXPECT_GT(plan.at("ms").get<double>(), 0) << event;
    }
  }
  // The end of the input ends the rounds.
  EXPECT_THAT(said, ElementsAre("loaded 0:", "round 1: 1 3", "round 2: 3", "round 3: 1 3", "round 4:"));
  const auto result = nlohmann::json::parse(ReadFile(file("result.json")));
  EXPECT_EQ(result.at("rows").at(0).at("n"), 2) << result;
  EXPECT_EQ(result.at("rows").at(1).at("n"), 3) << result;
  EXPECT_THAT(ReadFile(file("err")), HasSubstr("ms least"));
}

TEST_F(PlansTest, APacedRunEndsWithItsRoundsOrAtALineThatSaysNothing) {
  const std::string flags = absl::StrCat("--paced --model dlrm_ts17 --rows 1 --rounds 1 <", file("in"));
  std::ofstream(file("in")) << "1\n1\n";
  EXPECT_EQ(RunSmall(flags), 0) << ReadFile(file("err"));
  EXPECT_THAT(ReadFile(file("out")), Not(HasSubstr("\"number\":2")));
  std::ofstream(file("in")) << "one\n";
  EXPECT_EQ(RunSmall(flags), 1);
  EXPECT_THAT(ReadFile(file("err")), HasSubstr("got 'one'"));
}

TEST_F(PlansTest, WrongFlagsAreRefused) {
  EXPECT_EQ(RunSmall("--rows none"), 2);
  EXPECT_EQ(RunSmall("--rounds 0"), 2);
  EXPECT_EQ(RunSmall("--paced --json -"), 2);
  EXPECT_EQ(RunSmall("--help"), 0);
  EXPECT_THAT(ReadFile(file("out")), HasSubstr("exit codes"));
  EXPECT_EQ(RunSmall("--model absent --rows 1"), 1);
  EXPECT_THAT(ReadFile(file("out")), HasSubstr("model 'absent' is not in"));
}

}  // namespace
}  // namespace sluice::testing
