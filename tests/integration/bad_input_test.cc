// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: every kind of wrong request gets its code and a message that names what is wrong, and hurts nobody else.
// Method: a table; each row spoils a right request in one way and sends it to a real server. At the end a right request
// still works.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/integration/server_fixture.h"

namespace sluice::testing {
namespace {

using grpc::StatusCode;
using Request = inference::ModelInferRequest;

struct Row {
  const char* what;
  std::function<void(Request&)> spoil;
  StatusCode code;
  std::vector<std::string> words;
  const char* class_word = "";
};

void Shape(Request& request, std::vector<int64_t> shape) {
  request.mutable_inputs(0)->clear_shape();
  for (const int64_t dim : shape) request.mutable_inputs(0)->add_shape(dim);
}

inference::InferParameter& Parameter(Request& request, const std::string& key) {
  return (*request.mutable_parameters())[key];
}

/// Replaces the raw bytes by typed contents of `count` floats.
void Typed(Request& request, int count) {
  request.clear_raw_input_contents();
  for (int i = 0; i < count; ++i) request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
}

std::vector<Row> ModelAndNameRows() {
  return {
      {"unknown model", [](Request& r) { r.set_model_name("nobody"); }, StatusCode::NOT_FOUND, {"unknown model"}},
      {"empty model name", [](Request& r) { r.clear_model_name(); }, StatusCode::NOT_FOUND, {"unknown model"}},
      {"long model name",
       [](Request& r) { r.set_model_name(std::string(100000, 'm')); },
       StatusCode::NOT_FOUND,
       {"mmm"}},
      {"path as model name", [](Request& r) { r.set_model_name("../double"); }, StatusCode::NOT_FOUND, {"../double"}},
      {"NUL in model name",
       [](Request& r) { r.set_model_name(std::string("do\0uble", 7)); },
       StatusCode::NOT_FOUND,
       {"unknown model"}},
      {"unknown version", [](Request& r) { r.set_model_version("2"); }, StatusCode::NOT_FOUND, {"unknown model"}},
      {"version is a word",
       [](Request& r) { r.set_model_version("new"); },
       StatusCode::INVALID_ARGUMENT,
       {"version", "new"}},
      {"negative version",
       [](Request& r) { r.set_model_version("-1"); },
       StatusCode::INVALID_ARGUMENT,
       {"version", "-1"}},
      {"huge version",
       [](Request& r) { r.set_model_version("99999999999999999999"); },
       StatusCode::INVALID_ARGUMENT,
       {"version"}},
      {"unknown input",
       [](Request& r) { r.mutable_inputs(0)->set_name("y"); },
       StatusCode::INVALID_ARGUMENT,
       {"'y'", "'x'"}},
      {"empty input name",
       [](Request& r) { r.mutable_inputs(0)->clear_name(); },
       StatusCode::INVALID_ARGUMENT,
       {"'x'"}},
      {"no input",
       [](Request& r) {
         r.clear_inputs();
         r.clear_raw_input_contents();
       },
       StatusCode::INVALID_ARGUMENT,
       {"x"}},
      {"input twice",
       [](Request& r) {
         *r.add_inputs() = r.inputs(0);
         r.add_raw_input_contents(r.raw_input_contents(0));
       },
       StatusCode::INVALID_ARGUMENT,
       {"x"}},
      {"extra input",
       [](Request& r) {
         *r.add_inputs() = r.inputs(0);
         r.mutable_inputs(1)->set_name("z");
         r.add_raw_input_contents(r.raw_input_contents(0));
       },
       StatusCode::INVALID_ARGUMENT,
       {"z"}},
      {"unknown output",
       [](Request& r) { r.add_outputs()->set_name("logits"); },
       StatusCode::INVALID_ARGUMENT,
       {"logits", "y"}},
      {"output twice",
       [](Request& r) {
         r.add_outputs()->set_name("y");
         r.add_outputs()->set_name("y");
       },
       StatusCode::INVALID_ARGUMENT,
       {"y"}},
  };
}

std::vector<Row> TensorRows() {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  return {
      {"wrong type",
       [](Request& r) { r.mutable_inputs(0)->set_datatype("INT32"); },
       StatusCode::INVALID_ARGUMENT,
       {"x", "FP32", "INT32"}},
      {"unknown type",
       [](Request& r) { r.mutable_inputs(0)->set_datatype("FLOAT"); },
       StatusCode::INVALID_ARGUMENT,
       {"x", "FLOAT"}},
      {"empty type", [](Request& r) { r.mutable_inputs(0)->clear_datatype(); }, StatusCode::INVALID_ARGUMENT, {"x"}},
      {"bytes",
       [](Request& r) { r.mutable_inputs(0)->set_datatype("BYTES"); },
       StatusCode::INVALID_ARGUMENT,
       {"x", "FP32", "BYTES"}},
      {"no shape", [](Request& r) { Shape(r, {}); }, StatusCode::INVALID_ARGUMENT, {"x"}},
      {"rank 1", [](Request& r) { Shape(r, {4}); }, StatusCode::INVALID_ARGUMENT, {"x"}},
      {"rank 3",
       [](Request& r) {
         Shape(r, {1, 4, 1});
       },
       StatusCode::INVALID_ARGUMENT,
       {"x"}},
      {"rank 33", [](Request& r) { Shape(r, std::vector<int64_t>(33, 1)); }, StatusCode::INVALID_ARGUMENT, {"x"}},
      {"wrong dimension",
       [](Request& r) {
         Shape(r, {1, 5});
       },
       StatusCode::INVALID_ARGUMENT,
       {"x", "4", "5"}},
      {"open dimension",
       [](Request& r) {
         Shape(r, {1, -1});
       },
       StatusCode::INVALID_ARGUMENT,
       {"x", "-1"}},
      {"open batch",
       [](Request& r) {
         Shape(r, {-1, 4});
       },
       StatusCode::INVALID_ARGUMENT,
       {"x", "-1"}},
      {"zero batch",
       [](Request& r) {
         Shape(r, {0, 4});
         r.set_raw_input_contents(0, "");
       },
       StatusCode::INVALID_ARGUMENT,
       {"x", "0"}},
      {"batch too large",
       [](Request& r) {
         Shape(r, {9, 4});
         r.set_raw_input_contents(0, std::string(144, 'a'));
       },
       StatusCode::INVALID_ARGUMENT,
       {"9", "8"}},
      {"overflowing shape",
       [](Request& r) {
         Shape(r, {kMax, 4});
       },
       StatusCode::INVALID_ARGUMENT,
       {"x"}},
      {"shape that wraps to the right size",
       [](Request& r) {
         Shape(r, {(int64_t{1} << 62) + 1, 4});
       },
       StatusCode::INVALID_ARGUMENT,
       {"x"}},
      {"smallest integer",
       [](Request& r) {
         Shape(r, {std::numeric_limits<int64_t>::min(), 4});
       },
       StatusCode::INVALID_ARGUMENT,
       {"x"}},
      {"too few bytes",
       [](Request& r) { r.set_raw_input_contents(0, "abc"); },
       StatusCode::INVALID_ARGUMENT,
       {"x", "16", "3"}},
      {"too many bytes",
       [](Request& r) { r.set_raw_input_contents(0, std::string(17, 'a')); },
       StatusCode::INVALID_ARGUMENT,
       {"x", "16", "17"}},
      {"no bytes", [](Request& r) { r.set_raw_input_contents(0, ""); }, StatusCode::INVALID_ARGUMENT, {"x", "16", "0"}},
      {"no data at all", [](Request& r) { r.clear_raw_input_contents(); }, StatusCode::INVALID_ARGUMENT, {"x"}},
      {"an entry too many",
       [](Request& r) { r.add_raw_input_contents("more"); },
       StatusCode::INVALID_ARGUMENT,
       {"raw_input_contents", "1", "2"}},
      {"raw and typed",
       [](Request& r) { r.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1); },
       StatusCode::INVALID_ARGUMENT,
       {"x", "contents"}},
      {"too few typed values", [](Request& r) { Typed(r, 3); }, StatusCode::INVALID_ARGUMENT, {"x", "4", "3"}},
      {"too many typed values", [](Request& r) { Typed(r, 5); }, StatusCode::INVALID_ARGUMENT, {"x", "4", "5"}},
      {"wrong typed field",
       [](Request& r) {
         Typed(r, 0);
         for (int i = 0; i < 4; ++i) r.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
       },
       StatusCode::INVALID_ARGUMENT,
       {"x", "fp32_contents"}},
      {"two typed fields",
       [](Request& r) {
         Typed(r, 4);
         r.mutable_inputs(0)->mutable_contents()->add_int64_contents(1);
       },
       StatusCode::INVALID_ARGUMENT,
       {"x"}},
  };
}

std::vector<Row> ParameterRows() {
  return {
      {"unknown class", [](Request&) {}, StatusCode::INVALID_ARGUMENT, {"sluice-class", "fast"}, "fast"},
      {"class in capitals", [](Request&) {}, StatusCode::INVALID_ARGUMENT, {"sluice-class", "LATENCY"}, "LATENCY"},
      {"priority is a string",
       [](Request& r) { Parameter(r, "priority").set_string_param("1"); },
       StatusCode::INVALID_ARGUMENT,
       {"priority"}},
      {"priority is negative",
       [](Request& r) { Parameter(r, "priority").set_int64_param(-1); },
       StatusCode::INVALID_ARGUMENT,
       {"priority", "-1"}},
      {"priority is a boolean",
       [](Request& r) { Parameter(r, "priority").set_bool_param(true); },
       StatusCode::INVALID_ARGUMENT,
       {"priority"}},
      {"priority without a value",
       [](Request& r) { Parameter(r, "priority"); },
       StatusCode::INVALID_ARGUMENT,
       {"priority"}},
      {"timeout is a string",
       [](Request& r) { Parameter(r, "timeout").set_string_param("1s"); },
       StatusCode::INVALID_ARGUMENT,
       {"timeout"}},
      {"timeout is negative",
       [](Request& r) { Parameter(r, "timeout").set_int64_param(-5); },
       StatusCode::INVALID_ARGUMENT,
       {"timeout", "-5"}},
      {"timeout is unsigned",
       [](Request& r) { Parameter(r, "timeout").set_uint64_param(5); },
       StatusCode::INVALID_ARGUMENT,
       {"timeout"}},
      {"unknown triton parameter",
       [](Request& r) { Parameter(r, "triton_speed").set_int64_param(5); },
       StatusCode::INVALID_ARGUMENT,
       {"triton_speed"}},
      {"unknown sluice parameter",
       [](Request& r) { Parameter(r, "sluice_speed").set_int64_param(5); },
       StatusCode::INVALID_ARGUMENT,
       {"sluice_speed"}},
      {"timings is a number",
       [](Request& r) { Parameter(r, "sluice_timings").set_int64_param(1); },
       StatusCode::INVALID_ARGUMENT,
       {"sluice_timings"}},
      {"final response flag is a string",
       [](Request& r) { Parameter(r, "triton_enable_empty_final_response").set_string_param("no"); },
       StatusCode::INVALID_ARGUMENT,
       {"triton_enable_empty_final_response"}},
      {"unsigned user parameter",
       [](Request& r) { Parameter(r, "mine").set_uint64_param(1); },
       StatusCode::INVALID_ARGUMENT,
       {"mine"}},
  };
}

TEST_F(ServerTest, EveryBadRequestHasItsCodeAndItsWords) {
  Start(SmallConfig());
  int rows = 0;
  for (const auto& table : {ModelAndNameRows(), TensorRows(), ParameterRows()}) {
    for (const Row& row : table) {
      SCOPED_TRACE(row.what);
      inference::ModelInferRequest request = ServerTest::Request("double", 1);
      row.spoil(request);
      const grpc::Status status = Infer(request, nullptr, row.class_word);
      EXPECT_EQ(status.error_code(), row.code) << status.error_message();
      for (const std::string& word : row.words) EXPECT_THAT(status.error_message(), ::testing::HasSubstr(word));
      EXPECT_LT(status.error_message().size(), 4096u);
      ++rows;
    }
  }
  EXPECT_GE(rows, 40);
  EXPECT_TRUE(Infer(ServerTest::Request("double", 1)).ok());
}

TEST_F(ServerTest, BytesThatAreNoMessageAreRefused) {
  // Method: the generic stub sends what no protobuf library would.
  Start(SmallConfig());
  for (const std::string& bytes : {std::string("\x0a\xff\xff\xff\xff\x0f", 6), std::string("\xff"),
                                   std::string("\x0a\x05"
                                               "ab",
                                               4),
                                   std::string("\x0a\x02\xc3\x28", 4), std::string(1000, '\x0b')}) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::Slice slice(bytes);
    grpc::ByteBuffer message(&slice, 1);
    grpc::GenericStub stub(channel_);
    auto call = stub.PrepareUnaryCall(&context, "/inference.GRPCInferenceService/ModelInfer", message, &queue);
    call->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag;
    bool ok;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << status.error_message();
    queue.Shutdown();
    EXPECT_FALSE(queue.Next(&tag, &ok));
  }
  EXPECT_TRUE(Infer(ServerTest::Request("double", 1)).ok());
}

}  // namespace
}  // namespace sluice::testing
