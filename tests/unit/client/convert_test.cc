// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/errors.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

Tensor Ints(std::vector<int64_t> shape, size_t bytes) {
  return {"x", DataType::kInt32, std::move(shape), std::string(bytes, '\1')};
}

// Goal: a tensor that is not consistent is refused before it is sent. Method: wrong sizes, shapes and BYTES prefixes.
TEST(CheckTensor, RefusesInconsistentTensors) {
  EXPECT_TRUE(CheckTensor(ViewOf(Ints({2, 3}, 24))).ok());
  EXPECT_TRUE(CheckTensor(ViewOf(Ints({}, 4))).ok());
  EXPECT_FALSE(CheckTensor(ViewOf(Ints({2, 3}, 20))).ok());
  EXPECT_FALSE(CheckTensor(ViewOf(Ints({-1, 3}, 12))).ok());
  EXPECT_FALSE(CheckTensor(ViewOf(Ints({int64_t{1} << 62, 4}, 0))).ok());
  EXPECT_FALSE(CheckTensor(ViewOf(Ints({int64_t{1} << 62}, 0))).ok());
  EXPECT_FALSE(CheckTensor({"x", DataType::kInvalid, {}, ""}).ok());
  const std::string one("\1\0\0\0a", 5);
  EXPECT_TRUE(CheckTensor({"x", DataType::kBytes, {2}, one + one}).ok());
  EXPECT_FALSE(CheckTensor({"x", DataType::kBytes, {3}, one + one}).ok());
  EXPECT_FALSE(CheckTensor({"x", DataType::kBytes, {1}, one + one}).ok());
  EXPECT_FALSE(CheckTensor({"x", DataType::kBytes, {1}, std::string("\xff\xff\xff\xff", 4)}).ok());
}

// Goal: every option has its place in the message. Method: set all, look at the message.
TEST(BuildInferRequest, CarriesEveryOption) {
  InferOptions options;
  options.timeout = absl::Milliseconds(5);
  options.priority = 2;
  options.id = "i";
  options.model_version = "3";
  options.outputs = {"y"};
  options.timings = true;
  const auto request = BuildInferRequest("m", {Ints({1}, 4)}, options);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->model_name(), "m");
  EXPECT_EQ(request->model_version(), "3");
  EXPECT_EQ(request->id(), "i");
  EXPECT_EQ(request->parameters().at("timeout").int64_param(), 5000);
  EXPECT_EQ(request->parameters().at("priority").uint64_param(), 2u);
  EXPECT_TRUE(request->parameters().at("sluice_timings").bool_param());
  EXPECT_EQ(request->inputs(0).datatype(), "INT32");
  EXPECT_EQ(request->raw_input_contents(0), "\1\1\1\1");
  EXPECT_EQ(request->outputs(0).name(), "y");
  EXPECT_TRUE(BuildInferRequest("m", {Ints({1}, 4)}, {})->parameters().empty());
}

// Goal: a response that is not consistent is an error, never read past its end. Method: break one in three ways.
TEST(ReadInferResponse, ChecksConsistency) {
  inference::ModelInferResponse response;
  auto* output = response.add_outputs();
  output->set_name("y");
  output->set_datatype("INT32");
  output->add_shape(1);
  EXPECT_EQ(ReadInferResponse(response).status().code(), absl::StatusCode::kInternal);
  response.add_raw_output_contents("abcd");
  (*response.mutable_parameters())["sluice_class"].set_string_param("batch");
  (*response.mutable_parameters())["sluice_queue_us"].set_int64_param(120);
  (*response.mutable_parameters())["sluice_total_us"].set_int64_param(450);
  const auto reply = ReadInferResponse(response);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->effective_class, RequestClass::kBatch);
  EXPECT_EQ(reply->timings->queue, absl::Microseconds(120));
  EXPECT_EQ(reply->timings->total, absl::Microseconds(450));
  response.set_raw_output_contents(0, "abc");
  EXPECT_THAT(std::string(ReadInferResponse(response).status().message()), HasSubstr("needs 4 bytes, but has 3"));
  response.mutable_outputs(0)->set_datatype("FP99");
  EXPECT_FALSE(ReadInferResponse(response).ok());
}

// Goal: which errors may be retried. Method: each code, without what the server says about it.
TEST(Errors, Retryable) {
  EXPECT_TRUE(IsRetryable(absl::UnavailableError("")));
  EXPECT_FALSE(IsRetryable(absl::ResourceExhaustedError("")));
  EXPECT_FALSE(IsRetryable(absl::DeadlineExceededError("")));
  EXPECT_FALSE(IsRetryable(absl::InvalidArgumentError("")));
  EXPECT_FALSE(IsRetryable(absl::InternalError("")));
  EXPECT_FALSE(IsRetryable(absl::OkStatus()));
}

}  // namespace
}  // namespace sluice::client
