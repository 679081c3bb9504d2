// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// Goal: bench/isolation runs every rung from end to end, a later run continues an earlier one, and what it measures on
// the host device is the promise at small scale. Method: the program itself on the host device with tiny models. No
// time is looked at; one ratio is, generously.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
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

class IsolationTest : public ::testing::Test {
 protected:
  IsolationTest() : folder_(std::filesystem::path(::testing::TempDir()) / absl::StrCat("isolation-", ::getpid())) {
    AddToRepository(models(), "chain", ChainModel(16, 4),
                    "max_batch_size: 8\nparameters { key: \"sluice.buckets\" value { string_value: \"1,4\" } }\n");
  }
  ~IsolationTest() override { std::filesystem::remove_all(folder_); }

  std::string models() const { return (folder_ / "models").string(); }
  std::string file(const char* name) const { return (folder_ / name).string(); }
  int Run(const std::string& flags) const { return RunWhole("--quick " + flags); }
  int RunWhole(const std::string& flags) const {
    return Execute(absl::StrCat(Environment("SLUICE_ISOLATION"), " --models ", models(), " ", flags, " >", file("out"),
                                " 2>", file("err")));
  }

  const std::filesystem::path folder_;
};

TEST_F(IsolationTest, RunsEveryRungAndContinues) {
  const std::string cell = "--cell latency=chain,neighbour=chain:4,rate=200,in-flight=2,alone=0.1,mixed=0.1,batch=0.1";
  ASSERT_EQ(Run(absl::StrCat(cell, ",rungs=all --json ", file("first.json"))), 0) << ReadFile(file("err"));
  EXPECT_THAT(ReadFile(file("out")), HasSubstr("A/A"));
  const auto first = nlohmann::json::parse(ReadFile(file("first.json"))).at("cells").at(0);
  EXPECT_EQ(first.at("report").at("submitted"), first.at("report").at("answered"));
  std::vector<std::string> names;
  size_t product_requests = 0;
  for (const auto& rung : first.at("rungs")) {
    names.push_back(rung.at("rung"));
    ASSERT_EQ(rung.at("rounds").size(), 1u) << rung;
    EXPECT_GT(rung.at("rounds").at(0).at("mixed").at("server").size(), 0u);
    if (names.back() == "product") product_requests = rung.at("rounds").at(0).at("mixed").at("server").size();
  }
  EXPECT_THAT(names, ElementsAre("one-class", "priority", "window", "units", "gate", "product", "no-units", "no-window",
                                 "no-gate"));

  ASSERT_EQ(Run(absl::StrCat(cell, " --continue ", file("first.json"), " --json ", file("second.json"))), 0)
      << ReadFile(file("err"));
  const auto second = nlohmann::json::parse(ReadFile(file("second.json"))).at("cells").at(0);
  for (const auto& rung : second.at("rungs")) {  // Those that were not run again are kept.
    const bool again = rung.at("rung") == "product";
    EXPECT_EQ(rung.at("rounds").size(), again ? 2u : 1u) << rung.at("rung");
    if (!again) continue;
    EXPECT_EQ(rung.at("rounds").at(1).at("number"), 2);
    EXPECT_EQ(rung.at("rounds").at(0).at("mixed").at("server").size(), product_requests);
  }
}

double Median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers.at(numbers.size() / 2);
}

// Beside batch requests of the same model, of which six are always there, a latency request waits for a unit or two;
// when everything is of one class, for all that came before it, which is tens of times as much.
TEST_F(IsolationTest, ThePromiseHoldsAtSmallScale) {
  AddToRepository(models(), "long", ChainModel(64, 60),
                  "max_batch_size: 4096\nparameters { key: \"sluice.buckets\" value { string_value: \"1,64\" } }\n");
  ASSERT_EQ(RunWhole(absl::StrCat("--cell latency=long,neighbour=long:1024,rate=40,in-flight=6,rungs=one-class+product,"
                                  "rounds=2,alone=0.2,mixed=0.8,batch=0.2 --warmup 0.1 --json ",
                                  file("result.json"))),
            0)
      << ReadFile(file("err"));
  std::map<std::string, double> beside;
  const auto cell = nlohmann::json::parse(ReadFile(file("result.json"))).at("cells").at(0);
  for (const auto& rung : cell.at("rungs")) {
    std::vector<double> all;
    for (const auto& round : rung.at("rounds")) {
      for (const double each : round.at("mixed").at("server")) all.push_back(each);
    }
    beside[rung.at("rung")] = Median(all);
  }
  EXPECT_LT(3 * beside.at("product"), beside.at("one-class"));
}

TEST_F(IsolationTest, StandardNeighboursAndBurstsRun) {
  ASSERT_EQ(Run("--cell latency=chain,neighbour=chain:4,load=0.01,class=standard,arrivals=bursty,rungs=product+no-gate "
                "--json -"),
            0)
      << ReadFile(file("err"));
  const auto cell = nlohmann::json::parse(ReadFile(file("out"))).at("cells").at(0);
  EXPECT_EQ(cell.at("class"), "standard");
  EXPECT_EQ(cell.at("arrivals"), "bursty");
}

TEST_F(IsolationTest, ABareLoopIsComparedWith) {
  ASSERT_EQ(Run(absl::StrCat("--bare chain --json ", file("result.json"))), 0) << ReadFile(file("err"));
  const auto bare = nlohmann::json::parse(ReadFile(file("result.json"))).at("bare").at(0);
  EXPECT_EQ(bare.at("submitted"), bare.at("answered"));
  ASSERT_EQ(bare.at("rows").size(), 2u);
  for (const auto& row : bare.at("rows")) EXPECT_EQ(row.at("n"), 100) << row;
  EXPECT_EQ(Run(absl::StrCat("--bare absent --json ", file("result.json"))), 1);
  EXPECT_EQ(Run(""), 2);
}

TEST_F(IsolationTest, WrongCellsAreRefused) {
  const std::pair<const char*, const char*> wrong[] = {
      {"neighbour=chain,load=0.1", "latency: expected a model"},
      {"latency=chain,neighbour=chain:0,load=0.1", "MODEL:ROWS"},
      {"latency=chain,neighbour=chain,load=0.1,rate=5", "one of load and rate"},
      {"latency=chain,neighbour=chain,load=2", "load: expected a number from 0.01 to 0.95, got '2'"},
      {"latency=chain,neighbour=chain,load=0.1,class=latency", "class: expected batch or standard"},
      {"latency=chain,neighbour=chain,load=0.1,rungs=roof", "rungs: expected all, ladder, or one-class"},
      {"latency=chain,neighbour=chain,load=0.1,class=standard,rungs=priority", "rung priority runs whole batch plans"},
      {"latency=chain,neighbour=chain,load=0.1,wonder=1", "unknown key 'wonder'"}};
  for (const auto& [cell, message] : wrong) {
    EXPECT_EQ(Run(absl::StrCat("--cell ", cell)), 2) << cell;
    EXPECT_THAT(ReadFile(file("err")), HasSubstr(message)) << cell;
  }
  EXPECT_EQ(Run("--help"), 0);
}

TEST_F(IsolationTest, WhatCannotBeMeasuredFails) {
  EXPECT_EQ(Run(absl::StrCat("--cell latency=absent,neighbour=chain,load=0.1 --json ", file("result.json"))), 1);
  EXPECT_THAT(ReadFile(file("err")), HasSubstr("model 'absent' is not in"));
  EXPECT_FALSE(nlohmann::json::parse(ReadFile(file("result.json"))).at("cells").at(0).at("within").get<bool>());
}

}  // namespace
}  // namespace sluice::testing
