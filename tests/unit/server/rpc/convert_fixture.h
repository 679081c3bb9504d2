// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inference.pb.h"
#include "puppet_backend.h"
#include "server/rpc/convert.h"
#include "server/rpc/infer_parser.h"

namespace sluice::rpc {

struct TestRequest final : server::InferRequest {
  bool Finish(absl::StatusOr<server::InferResult> /*result*/) override { return true; }
};

/// A message, its parse and its conversion, with everything they point into.
struct Converted {
  std::string message;
  Bytes chunk;
  ParsedRequest parsed;
  TestRequest request;
  Conversion conversion;
  absl::Status status;
};

inline std::unique_ptr<Converted> Convert(const inference::ModelInferRequest& message,
                                          const server::InferenceBackend& backend,
                                          std::optional<absl::string_view> class_word = std::nullopt,
                                          RequestPolicy policy = {}) {
  auto result = std::make_unique<Converted>();
  result->message = message.SerializeAsString();
  result->chunk = Bytes(reinterpret_cast<const std::byte*>(result->message.data()), result->message.size());
  result->request.arrival = Time::FromNanoseconds(1'000'000);
  result->status = ParseInferRequest({&result->chunk, 1}, result->parsed);
  if (result->status.ok()) {
    result->status = ConvertRequest(result->parsed, class_word, policy, backend, result->request, result->conversion);
  }
  return result;
}

inline std::string JoinPieces(const std::vector<Bytes>& pieces) {
  std::string all;
  for (const Bytes& piece : pieces) all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return all;
}

/// `pair`: inputs a INT32 [-1,2] and b FP32 [-1,-1], outputs y and z; batches of 1 to 4; b of 3 or 5 columns.
/// `flat`: input v INT8 [-1], no batch; 6 elements. `text`: input s BYTES [-1,2], batches. One model per data type,
/// named after it, with input v [2].
class ConvertTest : public testing::Test {
 protected:
  ConvertTest() {
    const auto pair =
        MakeModel("pair", {{"a", DataType::kInt32, {-1, 2}}, {"b", DataType::kFp32, {-1, -1}}},
                  {{"y", DataType::kFp32, {-1, 1}}, {"z", DataType::kFp32, {-1, 1}}}, 4, {{{2}, {3}}, {{2}, {5}}});
    pair->queue_rules.default_timeout = absl::Milliseconds(5);
    backend_.AddModel(pair);
    const auto flat = MakeModel("flat", {{"v", DataType::kInt8, {-1}}}, {{"y", DataType::kFp32, {1}}}, 0, {{{6}}});
    flat->class_rules.allowed = {RequestClass::kBatch};
    flat->queue_rules.allow_timeout_override = false;
    backend_.AddModel(flat);
    backend_.AddModel(MakeModel("text", {{"s", DataType::kBytes, {-1, 2}}}, {{"y", DataType::kFp32, {1}}}, 4, {{{2}}}));
    backend_.AddModel(MakeModel("loading", {}, {}, 0, {}));
    for (const DataTypeFacts& facts : kDataTypes) {
      backend_.AddModel(
          MakeModel(std::string(facts.wire_name), {{"v", facts.type, {2}}}, {{"y", DataType::kFp32, {1}}}, 0, {{{2}}}));
    }
  }

  static inference::ModelInferRequest Pair() {
    inference::ModelInferRequest message;
    message.set_model_name("pair");
    auto& b = *message.add_inputs();  // not the model's order
    b.set_name("b");
    b.set_datatype("FP32");
    b.add_shape(2);
    b.add_shape(3);
    auto& a = *message.add_inputs();
    a.set_name("a");
    a.set_datatype("INT32");
    a.add_shape(2);
    a.add_shape(2);
    message.add_raw_input_contents(std::string(24, 'b'));
    message.add_raw_input_contents(std::string(16, 'a'));
    return message;
  }

  static inference::ModelInferRequest Typed(const std::string& type) {
    inference::ModelInferRequest message;
    message.set_model_name(type);
    auto& input = *message.add_inputs();
    input.set_name("v");
    input.set_datatype(type);
    input.add_shape(2);
    input.mutable_contents();
    return message;
  }

  static inference::InferTensorContents& Contents(inference::ModelInferRequest& message) {
    return *message.mutable_inputs(0)->mutable_contents();
  }
  static inference::InferParameter& Parameter(inference::ModelInferRequest& message, const std::string& key) {
    return (*message.mutable_parameters())[key];
  }

  PuppetBackend backend_;
};

}  // namespace sluice::rpc
