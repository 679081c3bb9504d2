// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: every kind of wrong request gets its code and a message that names what is wrong, hurts nobody else, and leaves
// nothing behind. Method: a table of bytes on the wire (bad_*.cc), sent to a real server through gRPC's generic stub,
// which sends what no protobuf library would.
#include "tests/integration/bad_input.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/process_memory.h"
#include "tests/integration/server_fixture.h"
#include "tests/integration/tiny_models.h"
#include "tests/support/shared_memory_object.h"
#include "tests/support/status_matchers.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

/// The models of ServerTest, "sum" of inputs a and b, and for each type one "of_TYPE"; all are [N,4], up to 8 rows.
class BadInputTest : public ServerTest {
 protected:
  BadInputTest() {
    constexpr char kConfig[] = "max_batch_size: 8\n";
    AddToRepository(repository_, "sum", SumModel(4), kConfig);
    const std::pair<const char*, int> types[] = {{"FP32", 1},  {"UINT8", 2}, {"INT8", 3},  {"INT32", 6},
                                                 {"INT64", 7}, {"BOOL", 9},  {"FP16", 10}, {"FP64", 11}};
    for (const auto& [name, number] : types) {
      AddToRepository(repository_, std::string("of_") + name, CastModel(number, 4), kConfig);
    }
    for (const auto& part : {BadNames(), BadTensors(), BadContents(), BadParameters(), BadEncodings(), BadCalls()}) {
      rows_.insert(rows_.end(), part.begin(), part.end());
    }
  }
  ~BadInputTest() override {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  void StartServer(server::ServerConfig config = SmallConfig()) {
    config.max_message_bytes = kMessageLimit;
    Start(config);
    // A connection of its own: some rows make gRPC close it, which must not touch the good requests.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    generic_ = std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", server_->grpc_port()), grpc::InsecureChannelCredentials(), arguments));
  }

  void ExpectRefusals(const BadInputs& rows) {
    for (const BadInput& row : rows) {
      SCOPED_TRACE(row.what);
      const grpc::Status status = Send(row);
      const std::string message = status.error_message();
      EXPECT_EQ(status.error_code(), row.code) << message;
      for (const std::string& word : row.words) EXPECT_THAT(message, HasSubstr(word));
      EXPECT_LT(message.size(), 4096u);
      EXPECT_TRUE(std::none_of(message.begin(), message.end(), [](char c) {
        return std::iscntrl(static_cast<unsigned char>(c)) != 0;
      })) << message;
    }
    std::printf("rows: %zu\n", rows.size());
    EXPECT_TRUE(Infer(GoodRequest()).ok());
  }

  /// A row may make gRPC close the connection just when the next one is sent on it; that one goes over a new one.
  grpc::Status Send(const BadInput& row) {
    grpc::Status status = SendOnce(row);
    for (int again = 0; again < 3 && status.error_message() == "Socket closed"; ++again) status = SendOnce(row);
    return status;
  }

  grpc::Status SendOnce(const BadInput& row) {
    grpc::ClientContext context;
    for (const auto& [key, value] : row.metadata) context.AddMetadata(key, value);
    const grpc::Slice slice(row.message);
    const auto call = generic_->PrepareUnaryCall(&context, row.method, grpc::ByteBuffer(&slice, 1), &queue_);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
    return status;
  }

  BadInputs rows_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericStub> generic_;
};

TEST_F(BadInputTest, EveryOneHasItsCodeAndItsWords) {
  StartServer();
  EXPECT_GE(rows_.size(), 150u);
  ExpectRefusals(rows_);
}

TEST_F(BadInputTest, ThoseOfSharedMemoryToo) {
  server::ServerConfig config = SmallConfig();
  config.system_shared_memory = true;
  config.max_shared_memory_regions = 2;
  config.max_shared_memory_bytes = 4096;
  StartServer(config);
  const SharedMemoryObject object(64);
  ASSERT_OK(server_->serving().shared_memory()->Register({"region", object.key(), 0, 64}));
  ExpectRefusals(BadRegions(object.key()));
  EXPECT_EQ(server_->serving().shared_memory()->Describe("")->size(), 1u);
}

TEST_F(BadInputTest, NoTwoRowsAreTheSame) {
  std::vector<std::string> names;
  for (const BadInput& row : rows_) names.push_back(row.what);
  for (const BadInput& row : BadRegions("/key")) names.push_back(row.what);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end())
      << "twice: " << *std::adjacent_find(names.begin(), names.end());
}

TEST_F(BadInputTest, MemoryStaysFlat) {
  // Rounds of the whole table. What every later round leaves allocated is compared with what the second left: the first
  // warms up.
  const char* const wanted = std::getenv("SLUICE_LONG_REQUESTS");
  size_t requests = 4 * rows_.size();
  if (wanted != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(wanted, &requests) && requests >= 4 * rows_.size());
  }
  StartServer();
  std::vector<double> allocated, resident;
  size_t sent = 0;
  while (sent < requests) {
    for (const BadInput& row : rows_) EXPECT_FALSE(Send(row).ok()) << row.what;
    sent += rows_.size();
    allocated.push_back(AllocatedMiB());
    resident.push_back(ResidentMiB());
  }
  EXPECT_TRUE(Infer(GoodRequest()).ok());
  // What the rows weigh together is several MiB: a round that leaked a message of the larger ones, or a hundred bytes a
  // request in the long run, would show. gRPC frees the last messages on threads of its own.
  Await("memory is still held", [&] { return AllocatedMiB() < allocated[1] + 1; });
  std::printf("%zu bad requests, MiB after the second round and the last: allocated %.3f, %.3f; resident %.1f, %.1f\n",
              sent, allocated[1], AllocatedMiB(), resident[1], resident.back());
  EXPECT_LT(resident.back(), resident[1] * 1.25 + 32);
}

}  // namespace
}  // namespace sluice::testing
