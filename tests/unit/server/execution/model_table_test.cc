// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a model's name and version mean the same in every state the model can be in. Method: direct calls.
#include "server/model_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const ServedModel> Ready(const std::string& name, int64_t version) {
  auto model = std::make_shared<ServedModel>();
  model->name = name;
  model->version = version;
  return model;
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

TEST(ModelTable, SettlesWhenNothingLoads) {
  ModelTable table;
  EXPECT_TRUE(table.Settled(true));
  table.SetLoading("m", 1);
  EXPECT_FALSE(table.Settled(false));
  table.SetFailed("m", 1, absl::InternalError("no"));
  EXPECT_TRUE(table.Settled(false));
  EXPECT_FALSE(table.Settled(true));
  table.SetReady(Ready("m", 1));
  EXPECT_TRUE(table.Settled(true));
}

}  // namespace
}  // namespace sluice::server
