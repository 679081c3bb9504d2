// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: tensors in shared memory give the numbers that tensors in messages give, and a client that changes its mind
// about its memory hurts itself alone. Method: a real server and real clients in this process, real objects in memory.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/server_fixture.h"
#include "tests/integration/tiny_models.h"
#include "tests/support/shared_memory_calls.h"
#include "tests/support/shared_memory_object.h"

namespace sluice::testing {
namespace {

using grpc::StatusCode;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// Rows of "chain" for an execution that takes long enough to be met in mid-flight, on any machine.
constexpr int64_t kLongRows = 4096;

std::vector<float> Floats(const std::string& raw) {
  std::vector<float> values(raw.size() / sizeof(float));
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

void ExpectDoubled(const std::string& in, const std::string& out) {
  const std::vector<float> given = Floats(in), got = Floats(out);
  ASSERT_EQ(got.size(), given.size());
  for (size_t i = 0; i < given.size(); ++i) EXPECT_EQ(got[i], 2 * given[i]) << i;
}

/// Each row of "chain" is its mean, everywhere.
void ExpectMeans(const std::string& in, const std::string& out) {
  const std::vector<float> given = Floats(in), got = Floats(out);
  constexpr size_t kWidth = 64;
  ASSERT_EQ(got.size(), given.size());
  for (size_t row = 0; row < given.size() / kWidth; ++row) {
    float mean = 0;
    for (size_t i = 0; i < kWidth; ++i) mean += given[row * kWidth + i] / kWidth;
    for (size_t i = 0; i < kWidth; i += 7) ASSERT_NEAR(got[row * kWidth + i], mean, 0.01f) << row;
  }
}

class SharedMemoryTest : public ServerTest {
 protected:
  SharedMemoryTest() { AddToRepository(repository_, "sum", SumModel(4), "max_batch_size: 8\n"); }

  void StartServer() {
    server::ServerConfig config = SmallConfig();
    config.system_shared_memory = true;
    Start(config);
  }
  grpc::Status Register(const std::string& name, const SharedMemoryObject& object) {
    return RegisterRegion(*stub_, name, object.key(), 0, object.size());
  }
  grpc::Status Unregister(const std::string& name) { return UnregisterRegion(*stub_, name); }
  template <class Tensor>
  static void SetPlace(Tensor& tensor, const std::string& region, size_t byte_size, size_t offset) {
    auto& parameters = *tensor.mutable_parameters();
    parameters["shared_memory_region"].set_string_param(region);
    parameters["shared_memory_byte_size"].set_int64_param(static_cast<int64_t>(byte_size));
    parameters["shared_memory_offset"].set_int64_param(static_cast<int64_t>(offset));
  }
  /// A request whose input lies at the beginning of `object`, registered as "r", and whose output goes behind it.
  inference::ModelInferRequest InObject(const std::string& model, int64_t rows, const SharedMemoryObject& object,
                                        std::string& input) {
    inference::ModelInferRequest request = Request(model, rows);
    input = request.raw_input_contents(0);
    object.Put(0, input);
    request.clear_raw_input_contents();
    SetPlace(*request.mutable_inputs(0), "r", input.size(), 0);
    request.add_outputs()->set_name("y");
    SetPlace(*request.mutable_outputs(0), "r", input.size(), input.size());
    return request;
  }
};

TEST_F(SharedMemoryTest, InAndOutForEachClass) {
  StartServer();
  for (const char* class_word : {"latency", "standard", "batch"}) {
    const SharedMemoryObject object(2 * 61 * 64 * sizeof(float));
    ASSERT_TRUE(Register("r", object).ok());
    std::string input;
    inference::ModelInferResponse response;
    grpc::Status status = Infer(InObject("double", 3, object, input), &response, class_word);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectDoubled(input, object.Get(input.size(), input.size()));
    ASSERT_EQ(response.raw_output_contents_size(), 1);
    EXPECT_EQ(response.raw_output_contents(0), "");
    EXPECT_EQ(response.outputs(0).name(), "y");
    EXPECT_EQ(response.outputs(0).datatype(), "FP32");
    EXPECT_EQ(response.outputs(0).shape(0), 3);
    const auto& parameters = response.outputs(0).parameters();
    EXPECT_EQ(parameters.at("shared_memory_region").string_param(), "r");
    EXPECT_EQ(parameters.at("shared_memory_byte_size").int64_param(), static_cast<int64_t>(input.size()));
    EXPECT_EQ(parameters.at("shared_memory_offset").int64_param(), static_cast<int64_t>(input.size()));

    // Seven full buckets and a padded one.
    status = Infer(InObject("chain", 61, object, input), &response, class_word);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectMeans(input, object.Get(input.size(), input.size()));
    ASSERT_TRUE(Unregister("").ok());
  }
}

TEST_F(SharedMemoryTest, MixedWithTensorsInTheMessage) {
  // Goal: inputs and outputs find their data wherever the others have theirs. Method: a sum of one in the region and
  // one in the message, both ways round; then its output in the message, and one that stays there.
  StartServer();
  const SharedMemoryObject object(64);
  ASSERT_TRUE(Register("r", object).ok());
  const float numbers[4] = {1, 2, 3, 4}, tens[4] = {10, 20, 30, 40};
  const std::string in_region(reinterpret_cast<const char*>(numbers), 16);
  object.Put(16, in_region);
  for (const bool first : {true, false}) {
    for (const bool output_in_region : {true, false}) {
      inference::ModelInferRequest request = Request("double", 1);
      request.set_model_name("sum");
      request.mutable_inputs(0)->set_name("a");
      *request.add_inputs() = request.inputs(0);
      request.mutable_inputs(1)->set_name("b");
      request.set_raw_input_contents(0, tens, 16);
      SetPlace(*request.mutable_inputs(first ? 0 : 1), "r", 16, 16);
      request.add_outputs()->set_name("y");
      if (output_in_region) SetPlace(*request.mutable_outputs(0), "r", 32, 32);
      inference::ModelInferResponse response;
      const grpc::Status status = Infer(request, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      const std::string out = output_in_region ? object.Get(32, 16) : response.raw_output_contents(0);
      EXPECT_THAT(Floats(out), ::testing::ElementsAre(11, 22, 33, 44));
      EXPECT_EQ(response.outputs(0).parameters_size(), output_in_region ? 3 : 0);
      object.Put(32, std::string(16, '\0'));
    }
  }
}

TEST_F(SharedMemoryTest, OnStreams) {
  // Goal: each message of a stream has its own places, and what is wrong with one leaves the stream open. Method: one
  // in the region, one in the message, one with an unknown region, one in the region again.
  StartServer();
  const SharedMemoryObject object(64);
  ASSERT_TRUE(Register("r", object).ok());
  std::string input;
  const inference::ModelInferRequest in_region = InObject("double", 1, object, input);
  inference::ModelInferRequest unknown = in_region;
  SetPlace(*unknown.mutable_inputs(0), "s", 16, 0);
  grpc::ClientContext context;
  const auto stream = stub_->ModelStreamInfer(&context);
  for (const inference::ModelInferRequest& request : {in_region, Request("double", 2), unknown, in_region}) {
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  std::vector<inference::ModelStreamInferResponse> responses;
  for (inference::ModelStreamInferResponse response; stream->Read(&response);) responses.push_back(response);
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(responses.size(), 4u);
  for (const size_t i : {0, 3}) {
    EXPECT_EQ(responses[i].error_message(), "");
    EXPECT_EQ(responses[i].infer_response().raw_output_contents(0), "");
    EXPECT_EQ(responses[i].infer_response().outputs(0).parameters().at("shared_memory_region").string_param(), "r");
  }
  EXPECT_EQ(responses[1].infer_response().raw_output_contents(0).size(), 32u);
  EXPECT_THAT(responses[2].error_message(), HasSubstr("input 'x': Unable to find shared memory region: 's'"));
  ExpectDoubled(input, object.Get(16, 16));
}

TEST_F(SharedMemoryTest, UnregisteringLeavesWhatIsUnderWayAlone) {
  // Goal: a request keeps the region it was accepted with, to its end. Method: a long one; while it executes, the name
  // goes, comes back for other memory, and the object loses its name too.
  StartServer();
  const size_t bytes = kLongRows * kChainWidth * sizeof(float);
  const SharedMemoryObject object(2 * bytes), other(16);
  ASSERT_TRUE(Register("r", object).ok());
  std::string input;
  PendingCall call(*stub_, InObject("chain", kLongRows, object, input), RequestClass::kBatch);
  AwaitExecuting(1);
  ASSERT_TRUE(Unregister("r").ok());
  ASSERT_TRUE(Register("r", other).ok());
  EXPECT_EQ(Metric("sluice_shared_memory_bytes", {"state=\"registered\""}), 16);
  object.Unlink();
  const grpc::Status status = call.Wait();
  ASSERT_TRUE(status.ok()) << status.error_message();
  ExpectMeans(input, object.Get(bytes, bytes));
  EXPECT_EQ(other.Get(0, 16), std::string(16, '\0'));
  Await("the region is let go of", [&] { return Metric("sluice_shared_memory_bytes", {"state=\"leaving\""}) == 0; });
}

TEST_F(SharedMemoryTest, AnObjectThatShrinksFailsItsRequestAndNothingElse) {
  StartServer();
  const SharedMemoryObject object(64);
  ASSERT_TRUE(Register("r", object).ok());
  std::string input;
  const inference::ModelInferRequest request = InObject("double", 1, object, input);
  object.Resize(24);  // half of the output is gone
  grpc::Status status = Infer(request);
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              HasSubstr(absl::StrCat("output 'y': shared memory region 'r' (key '", object.key(),
                                     "'): expected 16 bytes at offset 16, got 8: the object became smaller")));
  EXPECT_EQ(object.size(), 24u);
  object.Resize(4);  // and of the input
  status = Infer(request);
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("input 'x': shared memory region 'r'"));
  EXPECT_TRUE(Infer(Request("double", 1)).ok());
  object.Resize(64);
  EXPECT_TRUE(Infer(request).ok());
}

TEST_F(SharedMemoryTest, AnObjectThatShrinksInMidFlight) {
  // Goal: no moment is the wrong one. Method: everything is cut off and put back again while a long request goes
  // through in parts; it ends well or with the reason, and the server goes on.
  StartServer();
  const size_t bytes = kLongRows * kChainWidth * sizeof(float);
  const SharedMemoryObject object(2 * bytes);
  ASSERT_TRUE(Register("r", object).ok());
  std::string input;
  PendingCall call(*stub_, InObject("chain", kLongRows, object, input), RequestClass::kBatch);
  AwaitExecuting(1);
  while (!call.Done()) {
    object.Resize(0);
    object.Resize(2 * bytes);
  }
  EXPECT_THAT(call.Wait().error_code(), AnyOf(StatusCode::OK, StatusCode::FAILED_PRECONDITION));
  EXPECT_TRUE(Infer(Request("double", 1)).ok());
}

}  // namespace
}  // namespace sluice::testing
