// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: regions are what the kernel says they are, whatever a client registers or does to its objects afterwards.
// Method: real objects in shared memory, one for each test.
#include "server/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/thread.h"
#include "tests/support/shared_memory_object.h"
#include "tests/support/status_matchers.h"

namespace sluice::server {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPage = 4096;

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::string Read(const SharedMemorySlice& slice) {
  std::string bytes(slice.byte_size, '\0');
  EXPECT_OK(slice.region->Read(slice.offset, std::as_writable_bytes(std::span<char>(bytes))));
  return bytes;
}

absl::Status Write(const SharedMemorySlice& slice, const std::string& bytes) {
  return slice.region->Write(slice.offset, std::as_bytes(std::span<const char>(bytes)));
}

class SharedMemoryRegionsTest : public ::testing::Test {
 protected:
  absl::Status Register(const std::string& name, uint64_t offset, uint64_t byte_size) {
    return regions_.Register({name, object_.key(), offset, byte_size});
  }

  const SharedMemoryObject object_{2 * kPage};
  SharedMemoryRegions regions_{{.regions = 4, .bytes = 4 * kPage, .name_bytes = 16}};
};

TEST_F(SharedMemoryRegionsTest, ReadsAndWritesWhereItWasToldTo) {
  // Goal: offsets of region and slice add up, in both directions, and what is beside stays. Method: a region that
  // begins where no page does.
  object_.Put(0, std::string(2 * kPage, '.'));
  object_.Put(105, "input");
  ASSERT_OK(Register("r", 100, kPage));
  ASSERT_OK_AND_ASSIGN(const SharedMemorySlice slice, regions_.Find("r", 5, 5));
  EXPECT_EQ(Read(slice), "input");
  ASSERT_OK(Write(slice, "other"));
  EXPECT_EQ(object_.Get(104, 7), ".other.");
  EXPECT_EQ(object_.size(), 2 * kPage);
}

TEST_F(SharedMemoryRegionsTest, DescribesWhatIsRegistered) {
  ASSERT_OK(Register("a", 0, 8));
  ASSERT_OK(Register("b", kPage, 16));
  ASSERT_OK_AND_ASSIGN(const auto all, regions_.Describe(""));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].name, "b");
  EXPECT_EQ(all[1].key, object_.key());
  EXPECT_EQ(all[1].offset, kPage);
  EXPECT_EQ(all[1].byte_size, 16u);
  ASSERT_OK_AND_ASSIGN(const auto one, regions_.Describe("a"));
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name, "a");
  EXPECT_THAT(regions_.Describe("c").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("Unable to find system shared memory region: 'c'")));
}

TEST_F(SharedMemoryRegionsTest, RefusesWhatCannotBe) {
  // Goal: each field's bound, the sum's overflow, and things that are no object. Method: one call each; then nothing is
  // registered and no descriptor open.
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const std::string fifo = absl::StrCat(object_.key(), "_fifo");
  ASSERT_EQ(mkfifo(("/dev/shm" + fifo).c_str(), 0600), 0);
  const size_t descriptors = OpenDescriptors();
  const std::string& key = object_.key();
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const struct {
    SharedMemoryRegionFacts facts;
    absl::StatusCode code;
    std::string words;
  } rows[] = {
      {{"", key, 0, 1}, kInvalid, "name: expected 1 to 16 bytes (--max-name-bytes), got 0"},
      {{std::string(17, 'n'), key, 0, 1}, kInvalid, "got 17"},
      {{"r", "", 0, 1}, kInvalid, "key: expected '/'"},
      {{"r", "/", 0, 1}, kInvalid, "got '/'"},
      {{"r", key.substr(1), 0, 1}, kInvalid, "got 'sluice_test"},
      {{"r", "/" + key, 0, 1}, kInvalid, "without another '/'"},
      {{"r", key + "/x", 0, 1}, kInvalid, "without another '/'"},
      {{"r", "/../etc/passwd", 0, 1}, kInvalid, "without another '/'"},
      {{"r", key + std::string("\0x", 2), 0, 1}, kInvalid, "key: expected '/'"},
      {{"r", "/" + std::string(256, 'k'), 0, 1}, kInvalid, "1 to 255 bytes"},
      {{"r", "/..", 0, 1}, kInvalid, "Unable to open shared memory region: '/..'"},
      {{"r", key + "_none", 0, 1}, absl::StatusCode::kNotFound, "Unable to open shared memory region: '" + key},
      {{"r", fifo, 0, 1}, kInvalid, "expected a shared memory object"},
      {{"r", key, 0, 0}, kInvalid, "byte_size: expected 1 or more, got 0"},
      {{"r", key, 1, 2 * kPage}, kInvalid, "offset + byte_size of at most 8192, the bytes of the object, got 1 + 8192"},
      {{"r", key, 2 * kPage, 1}, kInvalid, "got 8192 + 1"},
      {{"r", key, kMost, 1}, kInvalid, "got 18446744073709551615 + 1"},
      {{"r", key, 1, kMost}, kInvalid, "got 1 + 18446744073709551615"},
      {{"r", key, kMost / 2, kMost / 2}, kInvalid, "at most 9223372036854775807"},
  };
  for (const auto& row : rows) EXPECT_THAT(regions_.Register(row.facts), StatusIs(row.code, HasSubstr(row.words)));
  EXPECT_EQ(regions_.Describe("")->size(), 0u);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  std::filesystem::remove("/dev/shm" + fifo);
}

TEST_F(SharedMemoryRegionsTest, ANameIsTakenOnce) {
  ASSERT_OK(Register("r", 0, 8));
  // Whatever the rest says.
  EXPECT_THAT(regions_.Register({"r", object_.key() + "_none", 0, 8}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("shared memory region 'r' already in manager")));
  regions_.Unregister("r");
  EXPECT_OK(Register("r", 8, 8));
  EXPECT_OK(Register("the same bytes", 8, 8));
}

TEST_F(SharedMemoryRegionsTest, TensorsAreInsideTheirRegion) {
  ASSERT_OK(Register("r", 100, 50));
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_OK(regions_.Find("r", 0, 50).status());
  EXPECT_OK(regions_.Find("r", 50, 0).status());
  EXPECT_THAT(regions_.Find("r", 1, 50).status(), StatusIs(kInvalid, HasSubstr("of at most 50, got 1 + 50")));
  EXPECT_THAT(regions_.Find("r", 51, 0).status(), StatusIs(kInvalid, HasSubstr("got 51 + 0")));
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(regions_.Find("r", kMost, kMost).status(), StatusIs(kInvalid, HasSubstr("shared memory region 'r'")));
  EXPECT_THAT(regions_.Find("x", 0, 1).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("Unable to find shared memory region: 'x'")));
}

TEST_F(SharedMemoryRegionsTest, ARegionLivesAsLongAsItIsUsed) {
  // Goal: unregistering frees the name at once and the object when its last user is done, and until then it counts.
  // Method: hold a slice meanwhile; the object has no name any more either.
  object_.Put(0, "kept");
  const size_t descriptors = OpenDescriptors();
  ASSERT_OK(Register("r", 0, kPage));
  ASSERT_OK_AND_ASSIGN(std::optional<SharedMemorySlice> slice, regions_.Find("r", 0, 4));
  regions_.Unregister("r");
  object_.Unlink();
  EXPECT_EQ(regions_.Describe("")->size(), 0u);
  EXPECT_FALSE(regions_.Find("r", 0, 4).ok());
  EXPECT_EQ(Read(*slice), "kept");
  EXPECT_EQ(OpenDescriptors(), descriptors + 1);
  slice.reset();
  EXPECT_EQ(OpenDescriptors(), descriptors);
  regions_.Unregister("r");  // unknown by now, and no error
}

TEST_F(SharedMemoryRegionsTest, UnregistersAll) {
  const size_t descriptors = OpenDescriptors();
  for (const char* name : {"a", "b", "c"}) ASSERT_OK(Register(name, 0, 8));
  regions_.UnregisterAll();
  EXPECT_EQ(regions_.Describe("")->size(), 0u);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_F(SharedMemoryRegionsTest, IsBounded) {
  // Goal: neither regions nor bytes go over their limits, and those still in use count. Method: fill up both, with one
  // region unregistered and held.
  constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
  ASSERT_OK(Register("a", 0, 2 * kPage));
  ASSERT_OK_AND_ASSIGN(std::optional<SharedMemorySlice> held, regions_.Find("a", 0, 1));
  regions_.Unregister("a");
  ASSERT_OK(Register("b", 0, kPage));
  EXPECT_EQ(regions_.use().registered_regions, 1u);
  EXPECT_EQ(regions_.use().registered_bytes, kPage);
  EXPECT_EQ(regions_.use().leaving_regions, 1u);
  EXPECT_EQ(regions_.use().leaving_bytes, 2 * kPage);
  EXPECT_THAT(Register("c", 0, kPage + 1),
              StatusIs(kExhausted, HasSubstr("at most 16384 bytes of all regions (--max-shared-memory-bytes), got 4097 "
                                             "beside 12288")));
  ASSERT_OK(Register("c", 0, 1));
  ASSERT_OK(Register("d", 0, 1));
  EXPECT_THAT(Register("e", 0, 1),
              StatusIs(kExhausted, HasSubstr("at most 4 regions (--max-shared-memory-regions), and 4 are")));
  held.reset();
  EXPECT_EQ(regions_.use().leaving_regions, 0u) << "seen before anybody registers again";
  EXPECT_OK(Register("e", 0, 2 * kPage));
}

TEST_F(SharedMemoryRegionsTest, AnObjectThatShrankIsAnErrorAndNoSignal) {
  // Goal: a client that truncates its object gets a sentence, and its object does not grow again. Method: cut inside
  // the slice, then everything.
  object_.Put(0, "12345678");
  ASSERT_OK(Register("r", 0, 8));
  ASSERT_OK_AND_ASSIGN(const SharedMemorySlice slice, regions_.Find("r", 0, 8));
  for (const size_t left : {5, 0}) {
    object_.Resize(left);
    std::string bytes(8, '\0');
    EXPECT_THAT(slice.region->Read(0, std::as_writable_bytes(std::span<char>(bytes))),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(absl::StrCat("shared memory region 'r' (key '", object_.key(),
                                                "'): expected 8 bytes at offset 0, got ", left))));
    EXPECT_THAT(Write(slice, "abcdefgh"), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("smaller")));
    EXPECT_EQ(object_.size(), left);
  }
  object_.Resize(8);
  EXPECT_EQ(Read(slice), std::string(8, '\0'));
}

TEST_F(SharedMemoryRegionsTest, ThreadsRegisterUseAndUnregister) {
  // Goal: the table's lock covers it, and regions go whoever lets go last. Method: three threads on one name each, and
  // one that unregisters all; a name that is gone, or no room, is an answer.
  const size_t descriptors = OpenDescriptors();
  {
    std::vector<Thread> threads;
    for (const char* name : {"a", "b", "c"}) {
      threads.emplace_back(name, [this, name] {
        for (int i = 0; i < 500; ++i) {
          const absl::Status registered = Register(name, 0, 8);
          EXPECT_TRUE(registered.ok() || absl::IsResourceExhausted(registered)) << registered;
          if (const auto slice = regions_.Find(name, 0, 8); slice.ok()) {
            EXPECT_OK(Write(*slice, "12345678"));
          }
          regions_.Unregister(name);
        }
      });
    }
    threads.emplace_back("all", [this] {
      for (int i = 0; i < 500; ++i) regions_.UnregisterAll();
    });
  }
  EXPECT_EQ(regions_.Describe("")->size(), 0u);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

}  // namespace
}  // namespace sluice::server
