// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a model's name and version mean the same in every state the model can be in. Method: direct calls.
#include "server/model_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const ServedModel> Ready(const std::string& name, int64_t version) {
  auto model = std::make_shared<ServedModel>();
  model->name = name;
  model->version = version;
  static uint64_t last_id = 0;
  model->id = ModelId(++last_id);
  return model;
}

std::string Rows(const std::vector<ModelIndexEntry>& index) {
  static constexpr const char* kWords[] = {"none", "loading", "ready", "unloading", "unavailable"};
  return absl::StrJoin(index, "; ", [](std::string* out, const ModelIndexEntry& entry) {
    absl::StrAppend(out, entry.name, "/", entry.version, " ", kWords[static_cast<size_t>(entry.state)],
                    entry.reason.empty() ? "" : ": ", entry.reason);
  });
}

TEST(ModelTable, TheNewestReadyVersionAnswersWithoutOne) {
  ModelTable table;
  table.SetReady(Ready("m", 3));
  table.SetReady(Ready("m", 12));
  table.SetLoading("m", 20);
  EXPECT_EQ((*table.Find("m", ""))->version, 12);
  EXPECT_EQ((*table.Find("m", "3"))->version, 3);
  EXPECT_THAT(*table.ReadyVersions("m"), ElementsAre(3, 12));
  EXPECT_EQ(table.ReadyModels().size(), 2u);
}

TEST(ModelTable, SaysWhyThereIsNoAnswer) {
  ModelTable table;
  table.SetLoading("slow", 1);
  table.SetFailed("broken", 2, absl::InvalidArgumentError("byte 7 is wrong"));
  table.SetReady(Ready("m", 1));
  const auto code = [&](const std::string& name, const std::string& version) {
    return table.Find(name, version).status().code();
  };
  EXPECT_EQ(code("nobody", ""), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("m", "2"), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("m", "0"), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("m", "one"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("m", "-1"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("slow", ""), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("slow", "1"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("broken", ""), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(table.Find("broken", "2").status().message()), HasSubstr("byte 7 is wrong"));
  EXPECT_FALSE(table.ReadyVersions("nobody").ok());
}

TEST(ModelTable, NamesFromClientsAreCutAndEscaped) {
  const ModelTable table;
  const std::string message(table.Find(std::string(100000, 'a') + "\n", "").status().message());
  EXPECT_LT(message.size(), 300u);
  EXPECT_THAT(std::string(table.Find("a\nb", "").status().message()), HasSubstr("a\\nb"));
}

TEST(ModelTable, IsReadyWhenNothingLoadsOrFailed) {
  ModelTable table;
  EXPECT_TRUE(table.AllReady());
  table.SetLoading("m", 1);
  EXPECT_FALSE(table.AllReady());
  table.SetFailed("m", 1, absl::InternalError("no"));
  EXPECT_FALSE(table.AllReady());
  table.SetReady(Ready("m", 1));
  EXPECT_TRUE(table.AllReady());
  // What was asked to go is not missed, whatever it was.
  table.SetFailed("broken", 0, absl::InternalError("no"));
  EXPECT_FALSE(table.AllReady());
  table.Unload("broken");
  EXPECT_TRUE(table.AllReady());
  const auto unloading = table.Unload("m");
  EXPECT_TRUE(table.AllReady());
  table.SetUnloaded(*unloading[0]);
  EXPECT_TRUE(table.AllReady());
}

TEST(ModelTable, ListsEveryVersionAndWhatNobodyAskedFor) {
  ModelTable table;
  table.SetRepository({"a", "b", "c", "d"});
  table.SetLoading("b", 1);
  table.SetReady(Ready("c", 2));
  table.SetReady(Ready("c", 10));
  table.SetFailed("d", 0, absl::InvalidArgumentError("config.pbtxt is bad"));
  EXPECT_EQ(Rows(table.Index(false)),
            "a/ none; b/1 loading; c/2 ready; c/10 ready; d/ unavailable: config.pbtxt is bad");
  EXPECT_EQ(Rows(table.Index(true)), "c/2 ready; c/10 ready");
  EXPECT_EQ(table.Find("a", "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(table.Find("a", "").status().message()), HasSubstr("unknown model 'a'"));
  EXPECT_TRUE(table.Knows("a"));
  EXPECT_FALSE(table.Knows("e"));
  // Folders that are gone take their rows with them, but for what still answers.
  table.SetRepository({"a"});
  EXPECT_EQ(Rows(table.Index(false)), "a/ none; b/1 loading; c/2 ready; c/10 ready");
}

TEST(ModelTable, UnloadingEndsWhenWhatRanItIsGone) {
  ModelTable table;
  table.SetReady(Ready("m", 1));
  table.SetReady(Ready("m", 2));
  table.SetFailed("m", 3, absl::InternalError("no"));
  const auto unloading = table.Unload("m", {2});
  ASSERT_EQ(unloading.size(), 1u);
  EXPECT_EQ(unloading[0]->version, 1);
  EXPECT_EQ(Rows(table.Index(false)), "m/1 unloading; m/2 ready; m/3 unavailable: unloaded");
  EXPECT_EQ((*table.Find("m", ""))->version, 2);
  EXPECT_EQ(table.Find("m", "1").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(table.Unload("m", {2}).empty()) << "once";
  table.SetUnloaded(*unloading[0]);
  EXPECT_EQ(Rows(table.Index(false)), "m/1 unavailable: unloaded; m/2 ready; m/3 unavailable: unloaded");
  EXPECT_THAT(std::string(table.Find("m", "1").status().message()), HasSubstr("unloaded"));
  EXPECT_TRUE(table.Unload("nobody").empty());
}

TEST(ModelTable, WhatIsReadyStaysUntilItsSuccessorIs) {
  ModelTable table;
  const auto first = Ready("m", 1);
  table.SetReady(first);
  table.SetLoading("m", 1);
  EXPECT_EQ(*table.Find("m", ""), first);
  table.SetFailed("m", 1, absl::InternalError("no"));
  table.SetFailed("m", 0, absl::InternalError("no"));
  EXPECT_EQ(Rows(table.Index(false)), "m/1 ready");
  EXPECT_EQ(*table.Find("m", ""), first);
  const auto second = Ready("m", 1);
  table.SetReady(second);
  EXPECT_EQ(*table.Find("m", ""), second);
  // The first one's end is none of the second's affair, even while that is unloading itself.
  table.Unload("m");
  table.SetUnloaded(*first);
  EXPECT_EQ(Rows(table.Index(false)), "m/1 unloading");
  table.SetLoading("m", 1);
  table.SetUnloaded(*second);
  EXPECT_EQ(Rows(table.Index(false)), "m/1 loading");
}

TEST(ModelTable, ALoadEndsThatTheModelIsBrokenAsAWhole) {
  ModelTable table;
  table.SetFailed("m", 1, absl::InternalError("old"));
  table.SetFailed("m", 0, absl::InternalError("bad config"));
  EXPECT_EQ(Rows(table.Index(false)), "m/ unavailable: bad config");
  table.SetReady(Ready("m", 1));
  EXPECT_EQ(Rows(table.Index(false)), "m/1 ready");
}

// Goal: dropping the last handle of a model may call back into the table. Method: a handle whose end does.
TEST(ModelTable, DropsNoHandleUnderItsLock) {
  ModelTable table;
  int ended = 0;
  const auto calls_back = [&](int64_t version) {
    return std::shared_ptr<const ServedModel>(new ServedModel(*Ready("m", version)), [&](const ServedModel* gone) {
      table.SetUnloaded(*gone);
      ++ended;
      delete gone;
    });
  };
  table.SetReady(calls_back(1));
  table.SetReady(calls_back(1));
  EXPECT_EQ(ended, 1);
  table.Unload("m");
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(Rows(table.Index(false)), "m/1 unavailable: unloaded");
  table.SetReady(calls_back(1));
  table.Clear();
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace sluice::server
