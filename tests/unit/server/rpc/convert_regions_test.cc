// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: tensors in shared memory are found, checked, and kept apart from those in the message. Method: messages with
// parameters, against one registered region of 64 bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "convert_fixture.h"
#include "server/shared_memory.h"
#include "tests/support/shared_memory_object.h"
#include "tests/support/status_matchers.h"

namespace sluice::rpc {
namespace {

using inference::InferParameter;
using inference::ModelInferRequest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ConvertRegionsTest : public ConvertTest {
 protected:
  ConvertRegionsTest() {
    EXPECT_OK(regions_.Register({"r", object_.key(), 0, 64}));
    backend_.SetSharedMemory(&regions_);
  }

  template <class Tensor>
  static void SetRegion(Tensor& tensor, const std::string& region, int64_t byte_size, int64_t offset = 0) {
    auto& parameters = *tensor.mutable_parameters();
    parameters["shared_memory_region"].set_string_param(region);
    parameters["shared_memory_byte_size"].set_int64_param(byte_size);
    if (offset != 0) parameters["shared_memory_offset"].set_int64_param(offset);
  }
  /// Pair() with input b, the message's first, in the region.
  static ModelInferRequest PairInRegion() {
    ModelInferRequest message = Pair();
    SetRegion(*message.mutable_inputs(0), "r", 24, 8);
    message.mutable_raw_input_contents()->DeleteSubrange(0, 1);
    return message;
  }

  const SharedMemoryObject object_{64};
  server::SharedMemoryRegions regions_{{}};
};

TEST_F(ConvertRegionsTest, RawEntriesBelongToTheOtherInputs) {
  const auto got = Convert(PairInRegion(), backend_);
  ASSERT_OK(got->status);
  const server::RequestInput& a = got->request.inputs[0];
  const server::RequestInput& b = got->request.inputs[1];
  EXPECT_FALSE(a.region);
  EXPECT_EQ(JoinPieces(a.pieces), std::string(16, 'a'));
  ASSERT_TRUE(b.region);
  EXPECT_EQ(b.region.region->facts().name, "r");
  EXPECT_EQ(b.region.offset, 8u);
  EXPECT_EQ(b.region.byte_size, 24u);
  EXPECT_THAT(b.pieces, IsEmpty());
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(got->request.bytes, 40u);
  EXPECT_THAT(got->request.output_regions, IsEmpty());
}

TEST_F(ConvertRegionsTest, TypedContentsBesideARegion) {
  ModelInferRequest message = PairInRegion();
  message.clear_raw_input_contents();
  for (int i = 0; i < 4; ++i) message.mutable_inputs(1)->mutable_contents()->add_int_contents(i);
  const auto got = Convert(message, backend_);
  ASSERT_OK(got->status);
  EXPECT_EQ(JoinPieces(got->request.inputs[0].pieces).size(), 16u);
  EXPECT_TRUE(got->request.inputs[1].region);
}

TEST_F(ConvertRegionsTest, EverythingInRegions) {
  ModelInferRequest message = PairInRegion();
  message.clear_raw_input_contents();
  SetRegion(*message.mutable_inputs(1), "r", 16, 32);
  message.add_outputs()->set_name("z");
  SetRegion(*message.mutable_outputs(0), "r", 8, 56);
  message.add_outputs()->set_name("y");
  const auto got = Convert(message, backend_);
  ASSERT_OK(got->status);
  EXPECT_TRUE(got->request.inputs[0].region);
  EXPECT_TRUE(got->request.inputs[1].region);
  EXPECT_THAT(got->request.requested_outputs, ElementsAre(1, 0));
  ASSERT_NE(got->request.OutputRegion(0), nullptr);
  EXPECT_EQ(got->request.OutputRegion(0)->offset, 56u);
  EXPECT_EQ(got->request.OutputRegion(1), nullptr);
}

TEST_F(ConvertRegionsTest, Mistakes) {
  using Change = std::function<void(ModelInferRequest&)>;
  const auto parameter = [](ModelInferRequest& m, const char* key) -> InferParameter& {
    return (*m.mutable_inputs(0)->mutable_parameters())[key];
  };
  const auto without = [](const char* key) -> Change {
    return [key](ModelInferRequest& m) { m.mutable_inputs(0)->mutable_parameters()->erase(key); };
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const struct {
    const char* what;
    Change change;
    absl::StatusCode code;
    const char* text;
  } rows[] = {
      {"data beside the region", [](auto& m) { m.add_raw_input_contents(std::string(24, 'b')); }, kInvalid,
       "expected 1 entries in raw_input_contents, one per input outside shared memory, got 2"},
      {"contents beside the region", [](auto& m) { m.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1); },
       kInvalid, "input 'b': has contents beside parameter 'shared_memory_region'"},
      {"no data of the other", [](auto& m) { m.clear_raw_input_contents(); }, kInvalid, "input 'a': has no data"},
      {"no size", without("shared_memory_byte_size"), kInvalid,
       "input 'b': parameter 'shared_memory_region': expected 'shared_memory_byte_size' beside it, got none"},
      {"no region", without("shared_memory_region"), kInvalid,
       "input 'b': parameter 'shared_memory_byte_size': expected 'shared_memory_region' beside it, got none"},
      {"size as text", [&](auto& m) { parameter(m, "shared_memory_byte_size").set_string_param("24"); }, kInvalid,
       "input 'b': parameter 'shared_memory_byte_size': expected int64 (bytes), got string"},
      {"offset below 0", [&](auto& m) { parameter(m, "shared_memory_offset").set_int64_param(-8); }, kInvalid,
       "input 'b': parameter 'shared_memory_offset': expected 0 or more bytes, got -8"},
      {"region as a number", [&](auto& m) { parameter(m, "shared_memory_region").set_int64_param(1); }, kInvalid,
       "input 'b': parameter 'shared_memory_region': expected string, got int64"},
      {"unknown parameter", [&](auto& m) { parameter(m, "shared_memory_key").set_string_param("k"); }, kInvalid,
       "input 'b': parameter 'shared_memory_key' is not known"},
      {"unknown region", [&](auto& m) { parameter(m, "shared_memory_region").set_string_param("s"); },
       absl::StatusCode::kNotFound, "input 'b': Unable to find shared memory region: 's'"},
      {"size of another shape", [&](auto& m) { parameter(m, "shared_memory_byte_size").set_int64_param(20); }, kInvalid,
       "input 'b': expected 24 bytes for shape [2,3] of FP32, got 20 in shared_memory_byte_size"},
      {"not inside", [&](auto& m) { parameter(m, "shared_memory_offset").set_int64_param(41); }, kInvalid,
       "input 'b': shared memory region 'r': expected shared_memory_offset + shared_memory_byte_size of at most 64, "
       "got 41 + 24"},
      {"output not inside",
       [](auto& m) {
         m.add_outputs()->set_name("y");
         SetRegion(*m.mutable_outputs(0), "r", 65);
       },
       kInvalid, "output 'y': shared memory region 'r'"},
      {"top classes in shared memory",
       [](auto& m) {
         m.add_outputs()->set_name("y");
         SetRegion(*m.mutable_outputs(0), "r", 8);
         (*m.mutable_outputs(0)->mutable_parameters())["classification"].set_int64_param(3);
       },
       absl::StatusCode::kUnimplemented, "output 'y': parameter 'classification' is not served"},
  };
  for (const auto& row : rows) {
    ModelInferRequest message = PairInRegion();
    row.change(message);
    EXPECT_THAT(Convert(message, backend_)->status, StatusIs(row.code, HasSubstr(row.text))) << row.what;
  }
}

TEST_F(ConvertRegionsTest, TextIsNotReadFromSharedMemory) {
  ModelInferRequest message = Typed("text");
  auto& input = *message.mutable_inputs(0);
  input.set_name("s");
  input.set_datatype("BYTES");
  input.set_shape(0, 1);
  input.add_shape(2);
  input.clear_contents();
  SetRegion(input, "r", 16);
  EXPECT_THAT(
      Convert(message, backend_)->status,
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("input 's': BYTES are not read from shared memory")));
}

}  // namespace
}  // namespace sluice::rpc
