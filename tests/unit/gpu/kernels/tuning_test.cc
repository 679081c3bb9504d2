// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace sluice::gpu {
namespace {

using ::testing::HasSubstr;

constexpr char kEnvironment[] = "A GPU 9000, driver for CUDA 13.0, cuBLASLt 1, cuDNN 2";

class Tuning : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<TuningTable>> Read(bool tune = false, const std::string& environment = kEnvironment) {
    return TuningTable::Read({.folder = folder_.path() + "/tunings", .tune = tune}, environment);
  }
  void WriteSome() {
    auto table = Read(/*tune=*/true);
    ASSERT_TRUE(table.ok()) << table.status();
    ASSERT_TRUE((*table)->Record("matmul 1x2x3", "way 7").ok());
    ASSERT_TRUE((*table)->Record("conv 4", "way 8").ok());
    ASSERT_TRUE((*table)->Write().ok());
  }
  /// Replaces what was written.
  void Overwrite(const std::string& text) {
    for (const auto& file : std::filesystem::directory_iterator(folder_.path() + "/tunings")) {
      std::ofstream(file.path(), std::ios::trunc) << text;
    }
  }

  TemporaryFolder folder_;
};

TEST_F(Tuning, IsFoundAgainByAnotherProcess) {
  // Goal: what is recorded and written is what is read. Method: two tables over one folder.
  WriteSome();
  const auto table = Read();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->size(), 2u);
  EXPECT_EQ((*table)->Find("matmul 1x2x3"), "way 7");
  EXPECT_EQ((*table)->Find("conv 4"), "way 8");
  EXPECT_EQ((*table)->Find("conv"), std::nullopt);
  EXPECT_THAT((*table)->path(), HasSubstr("a-gpu-9000-driver-for-cuda-13.0-cublaslt-1-cudnn-2.tuning"));
}

TEST_F(Tuning, TriesAnewAndKeepsWhatItDoesNotTry) {
  // Goal: tuning forgets the choices of what it tries, and only those. Method: one of two recorded again.
  WriteSome();
  {
    const auto table = Read(/*tune=*/true);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_EQ((*table)->Find("conv 4"), std::nullopt);
    ASSERT_TRUE((*table)->Record("conv 4", "way 9").ok());
    EXPECT_EQ((*table)->Find("conv 4"), "way 9");
    EXPECT_EQ((*table)->recorded_count(), 1u);
    ASSERT_TRUE((*table)->Write().ok());
  }
  const auto table = Read();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->Find("conv 4"), "way 9");
  EXPECT_EQ((*table)->Find("matmul 1x2x3"), "way 7");
}

TEST_F(Tuning, ServersDoNotRecord) {
  WriteSome();
  const auto table = Read();
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_TRUE((*table)->Record("conv 4", "another").ok());
  EXPECT_EQ((*table)->Find("conv 4"), "way 8");
}

TEST_F(Tuning, WithoutAFolderNothingIsKnownOrWritten) {
  const auto table = TuningTable::Read({}, kEnvironment);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->path(), "");
  EXPECT_THAT((*table)->Write(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no folder")));
  EXPECT_THAT(Read().status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("expected a folder")));
}

TEST_F(Tuning, OtherEnvironmentsHaveOtherFiles) {
  WriteSome();
  const auto other = Read(/*tune=*/false, "A GPU 9000, driver for CUDA 13.1, cuBLASLt 1, cuDNN 2");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->size(), 0u);
}

TEST_F(Tuning, RefusesFilesThatAreNotTunings) {
  // Goal: whatever lies there, an error names the file, the line and what was expected. Method: a table of texts.
  WriteSome();
  const std::string head = absl::StrCat("sluice tuning 1\n", kEnvironment, "\n");
  const std::pair<std::string, std::string> bad[] = {
      {"", "line 1: expected 'sluice tuning 1'"},
      {"sluice tuning 2\nx\n", "line 1: expected 'sluice tuning 1'"},
      {"sluice tuning 1\nanother GPU\n", "got 'another GPU'"},
      {head + "no tab\n", "line 3: expected a problem, a tab and a choice"},
      {head + "a\tb\n\tc\n", "line 4: expected a problem, a tab and a choice"},
      {head + "a\t\n", "line 3: expected a problem, a tab and a choice"},
      {head + "a\tb\tc\n", "line 3: expected a problem, a tab and a choice"},
      {head + "a\tb\n\n", "line 4: expected a problem, a tab and a choice"},
      {head + "a\tb\na\tc\n", "line 4: expected each problem once"},
      {std::string("\0\0\0\n\0", 5), "line 1"},
  };
  for (const auto& [text, message] : bad) {
    Overwrite(text);
    const absl::Status status = Read().status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_THAT(std::string(status.message()), HasSubstr(".tuning"));
  }
}

TEST_F(Tuning, AFileThatCannotBeWrittenIsAnError) {
  // Goal: a tuning that is lost is not called written. Method: the folder's place is taken by a file.
  const auto table = Read(/*tune=*/true);
  ASSERT_TRUE(table.ok()) << table.status();
  std::ofstream(folder_.path() + "/tunings") << "in the way";
  EXPECT_THAT((*table)->Write(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("folder cannot be made")));
}

TEST_F(Tuning, WhatATrialRemembersIsNoTuning) {
  // Goal: a later load finds what an earlier one chose, and no file ever gets it. Method: beside a recorded choice.
  WriteSome();
  const auto table = Read();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->Remembered("conv 5"), std::nullopt);
  (*table)->Remember("conv 5", "way 9");
  EXPECT_EQ((*table)->Remembered("conv 5"), "way 9");
  EXPECT_EQ((*table)->Find("conv 5"), std::nullopt);
  ASSERT_TRUE((*table)->Write().ok());
  const auto again = Read();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->size(), 2u);
  EXPECT_EQ((*again)->Remembered("conv 5"), std::nullopt);
}

}  // namespace
}  // namespace sluice::gpu
