// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: the memory this process may use is read as the kernel says it, and a pinned limit beyond it stops the start.
// Method: a root folder of the test's own with the kernel's files in it.
#include "server/container_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/status_matchers.h"

namespace sluice::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

class ContainerMemoryTest : public ::testing::Test {
 protected:
  ContainerMemoryTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice_memory_XXXXXX").string();
    root_ = std::string(mkdtemp(pattern.data())) + "/";
    Write("proc/meminfo",
          "MemTotal:       1024 kB\nMemFree: 1 kB\nMemAvailable:    768 kB\nHugePages_Total:       0\n");
  }
  ~ContainerMemoryTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::trunc) << text;
  }
  void WriteGroup(const std::string& path, const std::string& max, size_t current, size_t cache) {
    Write(path + "/memory.max", max + "\n");
    Write(path + "/memory.current", std::to_string(current) + "\n");
    Write(path + "/memory.stat",
          "anon 5\nfile 99999999\ninactive_file " + std::to_string(cache) + "\nactive_file 1\nslab 7\n");
  }

  std::string root_;
};

TEST_F(ContainerMemoryTest, WithoutACgroupItIsTheMachine) {
  ASSERT_OK_AND_ASSIGN(const ContainerMemory memory, ReadContainerMemory(root_));
  EXPECT_EQ(memory.limit_bytes, 1024u * 1024);
  EXPECT_EQ(memory.room_bytes(), 768u * 1024);
  EXPECT_THAT(memory.source, EndsWith("proc/meminfo"));
}

TEST_F(ContainerMemoryTest, AGroupWithLessRoomWins) {
  WriteGroup("sys/fs/cgroup", "500000", 200000, 99999);
  ASSERT_OK_AND_ASSIGN(const ContainerMemory memory, ReadContainerMemory(root_));
  EXPECT_EQ(memory.limit_bytes, 500000u);
  EXPECT_EQ(memory.used_bytes, 100000u) << "the page cache can be dropped";
  EXPECT_THAT(memory.source, EndsWith("sys/fs/cgroup/memory.max"));
}

TEST_F(ContainerMemoryTest, AGroupWithoutALimitDoesNot) {
  WriteGroup("sys/fs/cgroup", "max", 200000, 0);
  ASSERT_OK_AND_ASSIGN(const ContainerMemory memory, ReadContainerMemory(root_));
  EXPECT_THAT(memory.source, EndsWith("proc/meminfo"));
}

TEST_F(ContainerMemoryTest, TheLimitOfAGroupAboveHoldsToo) {
  Write("proc/self/cgroup", "4:memory:/old\n0::/pods/one/box\n");
  WriteGroup("sys/fs/cgroup/pods/one/box", "max", 1000, 0);
  WriteGroup("sys/fs/cgroup/pods/one", "600000", 1001, 0);
  WriteGroup("sys/fs/cgroup/pods", "700000", 650001, 0);
  ASSERT_OK_AND_ASSIGN(const ContainerMemory memory, ReadContainerMemory(root_));
  EXPECT_EQ(memory.limit_bytes, 700000u);
  EXPECT_EQ(memory.room_bytes(), 50000u);
}

TEST_F(ContainerMemoryTest, NothingToReadIsAnError) {
  std::filesystem::remove(root_ + "proc/meminfo");
  EXPECT_THAT(ReadContainerMemory(root_), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("proc/meminfo")));
}

TEST_F(ContainerMemoryTest, APinnedLimitBeyondTheContainerIsRefusedWithTheNumbers) {
  Write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 67000000 kB\n");
  WriteGroup("sys/fs/cgroup", std::to_string(160 * kMiB), 50 * kMiB + 1, 0);
  EXPECT_OK(MakeHostMemoryBudget(100 * kMiB, root_));
  EXPECT_THAT(MakeHostMemoryBudget(101 * kMiB, root_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("--pinned-memory-limit: expected at most 104857600 bytes"),
                             HasSubstr("memory.max says 167772160"), HasSubstr("in use are 52428800"),
                             HasSubstr("kept free 10485760"), HasSubstr("got 105906176"))));
}

TEST_F(ContainerMemoryTest, TheResponsePoolIsKeptFree) {
  Write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 67000000 kB\n");
  WriteGroup("sys/fs/cgroup", std::to_string(160 * kMiB), 50 * kMiB + 1, 0);
  ASSERT_OK_AND_ASSIGN(const auto budget, MakeHostMemoryBudget(0, root_, 40 * kMiB));
  EXPECT_EQ(budget->limit_bytes(), 60 * kMiB);
  EXPECT_THAT(MakeHostMemoryBudget(0, root_, 101 * kMiB),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("--response-pool-bytes: expected less than the 115343360 bytes"),
                             HasSubstr("got 105906176"))));
}

TEST_F(ContainerMemoryTest, TheBudgetFollowsTheContainer) {
  Write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 67000000 kB\n");
  WriteGroup("sys/fs/cgroup", std::to_string(160 * kMiB), 50 * kMiB + 1, 0);
  ASSERT_OK_AND_ASSIGN(const auto budget, MakeHostMemoryBudget(0, root_));
  EXPECT_EQ(budget->limit_bytes(), 100 * kMiB);
  EXPECT_OK(budget->CheckFits(100 * kMiB, gpu::MemoryKind::kSlots));
  EXPECT_THAT(
      budget->CheckFits(100 * kMiB + 1, gpu::MemoryKind::kSlots),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("limit 157286400 bytes, 52428800 bytes in use")));
  // The heap grows meanwhile.
  WriteGroup("sys/fs/cgroup", std::to_string(160 * kMiB), 80 * kMiB + 1, 0);
  EXPECT_OK(budget->Refresh());
  EXPECT_EQ(budget->limit_bytes(), 70 * kMiB);
  EXPECT_OK(budget->Reserve(70 * kMiB, gpu::MemoryKind::kSlots));
  WriteGroup("sys/fs/cgroup", std::to_string(160 * kMiB), 150 * kMiB + 1, 0);  // Our own 70 MiB show.
  EXPECT_THAT(budget->Reserve(1, gpu::MemoryKind::kSlots), StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace sluice::server
