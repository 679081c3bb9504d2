// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "convert_fixture.h"

namespace sluice::rpc {
namespace {

using inference::ModelInferRequest;
using testing::HasSubstr;

struct Row {
  const char* what;
  std::function<void(ModelInferRequest&)> change;
  absl::StatusCode code;
  std::vector<std::string> texts;
};

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

void ExpectRows(const std::vector<Row>& rows, const std::function<ModelInferRequest()>& base,
                const server::InferenceBackend& backend) {
  EXPECT_TRUE(Convert(base(), backend)->status.ok()) << "the unchanged request must be good";
  for (const Row& row : rows) {
    ModelInferRequest message = base();
    row.change(message);
    const absl::Status status = Convert(message, backend)->status;
    EXPECT_EQ(status.code(), row.code) << row.what << ": " << status;
    for (const std::string& text : row.texts) EXPECT_THAT(std::string(status.message()), HasSubstr(text)) << row.what;
  }
}

// Goal: a good request arrives whole, in the model's order, with nothing copied. Method: convert one, look at all of
// it.
TEST_F(ConvertTest, GoodRequest) {
  const auto got = Convert(Pair(), backend_);
  ASSERT_TRUE(got->status.ok()) << got->status;
  const server::InferRequest& request = got->request;
  EXPECT_EQ(request.model->name, "pair");
  EXPECT_EQ(request.request_class, RequestClass::kStandard);
  EXPECT_EQ(request.rows, 2);
  EXPECT_EQ(request.bytes, 40u);
  EXPECT_EQ(request.shape_bucket, 0u);
  ASSERT_EQ(request.inputs.size(), 2u);
  EXPECT_THAT(request.inputs[0].shape, testing::ElementsAre(2, 2));
  EXPECT_EQ(JoinPieces(request.inputs[0].pieces), std::string(16, 'a'));
  EXPECT_THAT(request.inputs[1].shape, testing::ElementsAre(2, 3));
  EXPECT_EQ(JoinPieces(request.inputs[1].pieces), std::string(24, 'b'));
  EXPECT_GE(request.inputs[1].pieces[0].data(), got->chunk.data());
  EXPECT_LT(request.inputs[1].pieces[0].data(), got->chunk.data() + got->chunk.size());
  EXPECT_THAT(request.requested_outputs, testing::ElementsAre(0, 1));
  EXPECT_EQ(request.queue_deadline, request.arrival + absl::Milliseconds(5));
  EXPECT_TRUE(request.deadline.is_infinite());
  EXPECT_FALSE(got->conversion.timings);
}

// Goal: outputs keep the order asked for; another bucket is found by its shape. Method: ask for both, reversed.
TEST_F(ConvertTest, OutputsAndBucket) {
  ModelInferRequest message = Pair();
  message.add_outputs()->set_name("z");
  message.add_outputs()->set_name("y");
  message.mutable_inputs(0)->set_shape(1, 5);
  message.set_raw_input_contents(0, std::string(40, 'b'));
  const auto got = Convert(message, backend_);
  ASSERT_TRUE(got->status.ok()) << got->status;
  EXPECT_THAT(got->request.requested_outputs, testing::ElementsAre(1, 0));
  EXPECT_EQ(got->request.shape_bucket, 1u);
}

// Goal: every mistake in names, types and shapes is refused with what was expected and what came. Method: one change
// each to a good request.
TEST_F(ConvertTest, NamesTypesShapes) {
  const auto input = [](ModelInferRequest& m, int i) { return m.mutable_inputs(i); };
  const std::vector<Row> rows = {
      {"unknown model", [](auto& m) { m.set_model_name("nope"); }, absl::StatusCode::kNotFound, {"unknown model"}},
      {"no model", [](auto& m) { m.clear_model_name(); }, absl::StatusCode::kNotFound, {"unknown model"}},
      {"junk version", [](auto& m) { m.set_model_version("x"); }, kInvalid, {"version"}},
      {"unknown version", [](auto& m) { m.set_model_version("9"); }, absl::StatusCode::kNotFound, {}},
      {"not ready", [](auto& m) { m.set_model_name("loading"); }, absl::StatusCode::kUnavailable, {}},
      {"unknown input", [&](auto& m) { input(m, 0)->set_name("c"); }, kInvalid, {"unknown input 'c'", "'a', 'b'"}},
      {"empty input name", [&](auto& m) { input(m, 0)->set_name(""); }, kInvalid, {"unknown input ''"}},
      {"control characters", [&](auto& m) { input(m, 0)->set_name("\n\x01"); }, kInvalid, {"'\\n\\001'"}},
      {"longest name", [&](auto& m) { input(m, 0)->set_name(std::string(4096, 'n')); }, kInvalid, {"nnn..."}},
      {"huge name",
       [&](auto& m) { input(m, 0)->set_name(std::string(1 << 20, 'n')); },
       kInvalid,
       {"inputs.name", "4096", "1048576"}},
      {"duplicate input", [&](auto& m) { input(m, 0)->set_name("a"); }, kInvalid, {"input 'a'", "more than once"}},
      {"missing input",
       [](auto& m) {
         m.mutable_inputs()->RemoveLast();
         m.mutable_raw_input_contents()->RemoveLast();
       },
       kInvalid,
       {"expected 2 inputs", "got 'b'", "missing 'a'"}},
      {"no inputs", [](auto& m) { m.clear_inputs(); }, kInvalid, {"got none", "missing 'a', 'b'"}},
      {"extra input", [](auto& m) { m.add_inputs()->set_name("c"); }, kInvalid, {"unknown input 'c'"}},
      {"unknown output", [](auto& m) { m.add_outputs()->set_name("w"); }, kInvalid, {"unknown output 'w'", "'y', 'z'"}},
      {"duplicate output",
       [](auto& m) {
         m.add_outputs()->set_name("y");
         m.add_outputs()->set_name("y");
       },
       kInvalid,
       {"output 'y'", "more than once"}},
      {"wrong datatype",
       [&](auto& m) { input(m, 1)->set_datatype("INT64"); },
       kInvalid,
       {"input 'a'", "expected datatype INT32, got INT64"}},
      {"unknown datatype", [&](auto& m) { input(m, 1)->set_datatype("int32"); }, kInvalid, {"INT32, got 'int32'"}},
      {"no datatype", [&](auto& m) { input(m, 1)->set_datatype(""); }, kInvalid, {"got ''"}},
      {"BYTES for INT32", [&](auto& m) { input(m, 1)->set_datatype("BYTES"); }, kInvalid, {"got BYTES"}},
      {"rank too low",
       [&](auto& m) { input(m, 1)->mutable_shape()->RemoveLast(); },
       kInvalid,
       {"input 'a'", "expected shape [-1,2], got [2]"}},
      {"rank too high", [&](auto& m) { input(m, 1)->add_shape(1); }, kInvalid, {"[2,2,1]"}},
      {"no shape", [&](auto& m) { input(m, 1)->clear_shape(); }, kInvalid, {"got []"}},
      {"wrong dimension",
       [&](auto& m) { input(m, 1)->set_shape(1, 3); },
       kInvalid,
       {"expected shape [-1,2], got [2,3]"}},
      {"-1", [&](auto& m) { input(m, 0)->set_shape(0, -1); }, kInvalid, {"input 'b'", "[-1,3]"}},
      {"lowest int64", [&](auto& m) { input(m, 0)->set_shape(1, std::numeric_limits<int64_t>::min()); }, kInvalid, {}},
      {"product overflows",
       [&](auto& m) {
         input(m, 0)->set_shape(0, int64_t{1} << 62);
         input(m, 0)->set_shape(1, 4);
       },
       kInvalid,
       {"too many elements"}},
      {"bytes overflow", [&](auto& m) { input(m, 0)->set_shape(1, (int64_t{1} << 61) + 3); }, kInvalid, {}},
      {"three large dimensions",
       [&](auto& m) {
         input(m, 0)->clear_shape();
         for (int i = 0; i < 4; ++i) input(m, 0)->add_shape(65536);
       },
       kInvalid,
       {"too many elements"}},
      {"33 dimensions",
       [&](auto& m) {
         for (int i = 0; i < 31; ++i) input(m, 0)->add_shape(1);
       },
       kInvalid,
       {"expected shape [-1,-1]"}},
      {"batches differ",
       [&](auto& m) {
         input(m, 0)->set_shape(0, 1);
         m.set_raw_input_contents(0, std::string(12, 'b'));
       },
       kInvalid,
       {"input 'b'", "expected batch size 2", "input 'a'", "got 1"}},
      {"batch of 0",
       [&](auto& m) {
         for (int i = 0; i < 2; ++i) {
           input(m, i)->set_shape(0, 0);
           m.set_raw_input_contents(i, "");
         }
       },
       kInvalid,
       {"1 to 4", "got 0"}},
      {"batch too large",
       [&](auto& m) {
         for (int i = 0; i < 2; ++i) input(m, i)->set_shape(0, 5);
       },
       kInvalid,
       {"1 to 4", "got 5"}},
      {"no such bucket",
       [&](auto& m) { input(m, 0)->set_shape(1, 4); },
       kInvalid,
       {"a=[2] b=[4]", "a=[2] b=[3]; a=[2] b=[5]"}},
      {"zero dimension", [&](auto& m) { input(m, 0)->set_shape(1, 0); }, kInvalid, {"b=[0]"}},
  };
  ExpectRows(rows, Pair, backend_);
}

// Goal: exactly one source of data, of exactly the right size. Method: as above.
TEST_F(ConvertTest, Sources) {
  const std::vector<Row> rows = {
      {"no raw", [](auto& m) { m.clear_raw_input_contents(); }, kInvalid, {"input 'b'", "has no data"}},
      {"too few raw",
       [](auto& m) { m.mutable_raw_input_contents()->RemoveLast(); },
       kInvalid,
       {"expected 2 entries in raw_input_contents", "got 1"}},
      {"too many raw", [](auto& m) { m.add_raw_input_contents("x"); }, kInvalid, {"got 3"}},
      {"contents and raw",
       [](auto& m) { Contents(m).add_fp32_contents(1); },
       kInvalid,
       {"input 'b'", "raw_input_contents is not empty"}},
      {"a byte too few",
       [](auto& m) { m.mutable_raw_input_contents(0)->pop_back(); },
       kInvalid,
       {"input 'b'", "expected 24 bytes for shape [2,3] of FP32, got 23"}},
      {"a byte too many",
       [](auto& m) { m.mutable_raw_input_contents(1)->push_back('x'); },
       kInvalid,
       {"input 'a'", "expected 16 bytes", "got 17"}},
      {"empty entry", [](auto& m) { m.set_raw_input_contents(1, ""); }, kInvalid, {"got 0"}},
      {"typed for one only",
       [](auto& m) {
         m.clear_raw_input_contents();
         for (int i = 0; i < 6; ++i) Contents(m).add_fp32_contents(1);
       },
       kInvalid,
       {"input 'a'", "has no data"}},
  };
  ExpectRows(rows, Pair, backend_);
}

// Goal: each parameter has one meaning and one type. Method: as above.
TEST_F(ConvertTest, Parameters) {
  const auto parameter = [](const char* key, auto set) {
    return [key, set](ModelInferRequest& m) { set(Parameter(m, key)); };
  };
  using P = inference::InferParameter;
  const auto on_input = [](const char* key, auto set) {
    return [key, set](ModelInferRequest& m) { set((*m.mutable_inputs(0)->mutable_parameters())[key]); };
  };
  const std::vector<Row> rows = {
      {"negative priority", parameter("priority", [](P& p) { p.set_int64_param(-1); }), kInvalid, {"priority", "-1"}},
      {"priority as text",
       parameter("priority", [](P& p) { p.set_string_param("1"); }),
       kInvalid,
       {"'priority': expected int64 or uint64, got string"}},
      {"priority unset", parameter("priority", [](P&) {}), kInvalid, {"got no value"}},
      {"timeout as uint64",
       parameter("timeout", [](P& p) { p.set_uint64_param(5); }),
       kInvalid,
       {"'timeout': expected int64", "got uint64"}},
      {"negative timeout", parameter("timeout", [](P& p) { p.set_int64_param(-5); }), kInvalid, {"-5"}},
      {"sequence", parameter("sequence_id", [](P& p) { p.set_int64_param(5); }), kUnimplemented, {"sequence"}},
      {"sequence by name", parameter("sequence_id", [](P& p) { p.set_string_param("s"); }), kUnimplemented, {}},
      {"sequence of bool", parameter("sequence_id", [](P& p) { p.set_bool_param(true); }), kInvalid, {"sequence_id"}},
      {"sequence start", parameter("sequence_start", [](P& p) { p.set_bool_param(true); }), kUnimplemented, {}},
      {"sequence end as int", parameter("sequence_end", [](P& p) { p.set_int64_param(1); }), kInvalid, {"bool"}},
      {"unknown triton_", parameter("triton_x", [](P& p) { p.set_bool_param(true); }), kInvalid, {"triton_x"}},
      {"final response as int",
       parameter("triton_enable_empty_final_response", [](P& p) { p.set_int64_param(1); }),
       kInvalid,
       {"bool"}},
      {"unknown sluice_", parameter("sluice_x", [](P& p) { p.set_bool_param(true); }), kInvalid, {"sluice_x"}},
      {"timings as text", parameter("sluice_timings", [](P& p) { p.set_string_param("true"); }), kInvalid, {"bool"}},
      {"headers", parameter("headers", [](P& p) { p.set_string_param("x"); }), kInvalid, {"reserved"}},
      {"binary", parameter("binary_data_output", [](P& p) { p.set_bool_param(true); }), kInvalid, {"reserved"}},
      {"uint64 of our own", parameter("mine", [](P& p) { p.set_uint64_param(1); }), kInvalid, {"'mine'", "uint64"}},
      {"no value", parameter("mine", [](P&) {}), kInvalid, {"no value"}},
      {"shared memory",
       on_input("shared_memory_region", [](P& p) { p.set_string_param("r"); }),
       kUnimplemented,
       {"input 'b'", "shared memory is not served"}},
      {"classification",
       [](ModelInferRequest& m) {
         auto& output = *m.add_outputs();
         output.set_name("y");
         (*output.mutable_parameters())["classification"].set_int64_param(3);
       },
       kUnimplemented,
       {"output 'y'", "classification"}},
      {"unknown sluice_ on an input",
       on_input("sluice_x", [](P& p) { p.set_bool_param(true); }),
       kInvalid,
       {"input 'b'"}},
  };
  ExpectRows(rows, Pair, backend_);
}

// Goal: what clients send without meaning it is accepted. Method: all of it at once.
TEST_F(ConvertTest, HarmlessParameters) {
  ModelInferRequest message = Pair();
  Parameter(message, "triton_enable_empty_final_response").set_bool_param(false);
  Parameter(message, "sequence_id").set_int64_param(0);
  Parameter(message, "sequence_start").set_bool_param(false);
  Parameter(message, "sluice_timings").set_bool_param(true);
  Parameter(message, "mine").set_double_param(0.5);
  Parameter(message, "priority").set_int64_param(0);
  Parameter(message, "timeout").set_int64_param(0);
  const auto got = Convert(message, backend_);
  ASSERT_TRUE(got->status.ok()) << got->status;
  EXPECT_TRUE(got->conversion.timings);
  EXPECT_EQ(got->request.queue_deadline, got->request.arrival + absl::Milliseconds(5));
}

// Goal: a timeout shortens the model's limit, never lengthens it, and only where the model allows. Method: one each.
TEST_F(ConvertTest, QueueTimeout) {
  ModelInferRequest message = Pair();
  Parameter(message, "timeout").set_int64_param(2'000);
  auto got = Convert(message, backend_);
  EXPECT_EQ(got->request.queue_deadline, got->request.arrival + absl::Milliseconds(2));
  Parameter(message, "timeout").set_int64_param(std::numeric_limits<int64_t>::max());
  got = Convert(message, backend_);
  EXPECT_EQ(got->request.queue_deadline, got->request.arrival + absl::Milliseconds(5));
  message.Clear();
  message.set_model_name("flat");
  auto& input = *message.add_inputs();
  input.set_name("v");
  input.set_datatype("INT8");
  input.add_shape(6);
  message.add_raw_input_contents("123456");
  Parameter(message, "timeout").set_int64_param(2'000);
  got = Convert(message, backend_);
  ASSERT_TRUE(got->status.ok()) << got->status;
  EXPECT_TRUE(got->request.queue_deadline.is_infinite());
  EXPECT_EQ(got->request.rows, 1);
}

// Goal: class from metadata, priority and port reaches the request; strict servers refuse instead of demoting. Method:
// one of each.
TEST_F(ConvertTest, Class) {
  ModelInferRequest message = Pair();
  EXPECT_EQ(Convert(message, backend_, "latency")->request.request_class, RequestClass::kLatency);
  EXPECT_THAT(std::string(Convert(message, backend_, "fast")->status.message()), HasSubstr("'fast'"));
  EXPECT_EQ(Convert(message, backend_, {}, {.class_of_the_port = RequestClass::kBatch, .strict_class = false})
                ->request.request_class,
            RequestClass::kBatch);
  Parameter(message, "priority").set_uint64_param(1);
  EXPECT_EQ(Convert(message, backend_)->request.request_class, RequestClass::kLatency);
  EXPECT_EQ(Convert(message, backend_, "batch")->request.request_class, RequestClass::kBatch);

  ModelInferRequest flat = Typed("flat");
  flat.mutable_inputs(0)->set_datatype("INT8");
  flat.mutable_inputs(0)->set_shape(0, 6);
  for (int i = 0; i < 6; ++i) Contents(flat).add_int_contents(i - 3);
  const auto demoted = Convert(flat, backend_, "latency");
  ASSERT_TRUE(demoted->status.ok()) << demoted->status;
  EXPECT_EQ(demoted->request.request_class, RequestClass::kBatch);
  EXPECT_TRUE(demoted->conversion.decision.demoted());
  const absl::Status refused =
      Convert(flat, backend_, "latency", {.class_of_the_port = {}, .strict_class = true})->status;
  EXPECT_EQ(refused.code(), kInvalid);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("does not allow class latency; it allows batch"));
}

}  // namespace
}  // namespace sluice::rpc
