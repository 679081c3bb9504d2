// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/thread.h"
#include "inference.pb.h"
#include "puppet_backend.h"
#include "tests/support/shared_memory_object.h"

namespace sluice::rpc {
namespace {

std::shared_ptr<server::ServedModel> ThreeOutputs() {
  return MakeModel(
      "m", {}, {{"a", DataType::kFp32, {-1, 2}}, {"b", DataType::kInt64, {-1}}, {"c", DataType::kBytes, {1}}}, 4, {});
}

std::string Join(const std::vector<grpc::Slice>& slices) {
  std::string all;
  for (const grpc::Slice& slice : slices) all.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return all;
}

// Goal: protobuf reads what we encode, with every output in order, small or large or empty. Method: parse it back.
TEST(Response, ParsesAsProtobuf) {
  const auto model = ThreeOutputs();
  server::InferResult result;
  const std::string large(kOwnSliceBytes, 'L');
  result.outputs.push_back({1, {3}, std::string(24, 's')});
  result.outputs.push_back({0, {512, 2}, large});
  result.outputs.push_back({2, {0}, ""});
  result.timings = {absl::Microseconds(1), absl::Microseconds(2), absl::Microseconds(3),
                    absl::Microseconds(4), absl::Microseconds(5), absl::Microseconds(300)};
  const std::string id = "id \xc3\x9f";
  const auto slices = EncodeResponse({*model, id, RequestClass::kBatch, true}, std::move(result));
  ASSERT_TRUE(slices.ok()) << slices.status();
  EXPECT_EQ(slices->size(), 3u);  // head, the large output alone, the rest
  inference::ModelInferResponse response;
  ASSERT_TRUE(response.ParseFromString(Join(*slices)));
  EXPECT_EQ(response.model_name(), "m");
  EXPECT_EQ(response.model_version(), "3");
  EXPECT_EQ(response.id(), id);
  ASSERT_EQ(response.outputs_size(), 3);
  EXPECT_EQ(response.outputs(0).name(), "b");
  EXPECT_EQ(response.outputs(0).datatype(), "INT64");
  EXPECT_THAT(response.outputs(1).shape(), testing::ElementsAre(512, 2));
  EXPECT_THAT(response.outputs(2).shape(), testing::ElementsAre(0));
  ASSERT_EQ(response.raw_output_contents_size(), 3);
  EXPECT_EQ(response.raw_output_contents(0), std::string(24, 's'));
  EXPECT_EQ(response.raw_output_contents(1), large);
  EXPECT_EQ(response.raw_output_contents(2), "");
  EXPECT_EQ(response.parameters().at("sluice_class").string_param(), "batch");
  EXPECT_EQ(response.parameters_size(), 7);
  EXPECT_EQ(response.parameters().at("sluice_queue_us").int64_param(), 1);
  EXPECT_EQ(response.parameters().at("sluice_copy_in_us").int64_param(), 2);
  EXPECT_EQ(response.parameters().at("sluice_h2d_us").int64_param(), 3);
  EXPECT_EQ(response.parameters().at("sluice_gpu_wait_us").int64_param(), 4);
  EXPECT_EQ(response.parameters().at("sluice_compute_us").int64_param(), 5);
  EXPECT_EQ(response.parameters().at("sluice_d2h_us").int64_param(), 300);
}

// Goal: an output in shared memory says where, and leaves the others' raw entries in their places. Method: one between
// two that are not.
TEST(Response, OutputsInSharedMemory) {
  const auto model = ThreeOutputs();
  const SharedMemoryObject object(64);
  auto region = server::SharedMemoryRegion::Open({"r", object.key(), 0, 64});
  ASSERT_TRUE(region.ok()) << region.status();
  const std::vector<server::SharedMemorySlice> regions = {{}, {*region, 32, 16}, {}};
  server::InferResult result;
  result.outputs.push_back({1, {3}, std::string(24, 's')});
  result.outputs.push_back({0, {1, 2}, ""});
  result.outputs.push_back({2, {1}, "12345"});
  const auto slices = EncodeResponse({*model, "", RequestClass::kBatch, false, regions}, std::move(result));
  ASSERT_TRUE(slices.ok()) << slices.status();
  inference::ModelInferResponse response;
  ASSERT_TRUE(response.ParseFromString(Join(*slices)));
  EXPECT_THAT(response.raw_output_contents(), testing::ElementsAre(std::string(24, 's'), "", "12345"));
  EXPECT_EQ(response.outputs(0).parameters_size(), 0);
  EXPECT_EQ(response.outputs(2).parameters_size(), 0);
  const auto& parameters = response.outputs(1).parameters();
  EXPECT_EQ(response.outputs(1).datatype(), "FP32");
  EXPECT_THAT(response.outputs(1).shape(), testing::ElementsAre(1, 2));
  EXPECT_EQ(parameters.size(), 3u);
  EXPECT_EQ(parameters.at("shared_memory_region").string_param(), "r");
  EXPECT_EQ(parameters.at("shared_memory_byte_size").int64_param(), 16);
  EXPECT_EQ(parameters.at("shared_memory_offset").int64_param(), 32);
}

// Goal: the total time can follow what was encoded before it. Method: parse both together.
TEST(Response, TotalTimeFollows) {
  const auto model = ThreeOutputs();
  auto slices = EncodeResponse({*model, "", RequestClass::kLatency, true}, {});
  ASSERT_TRUE(slices.ok()) << slices.status();
  slices->push_back(EncodeTotalTime(absl::Microseconds(1234)));
  inference::ModelInferResponse response;
  ASSERT_TRUE(response.ParseFromString(Join(*slices)));
  EXPECT_EQ(response.parameters_size(), 8);
  EXPECT_EQ(response.parameters().at("sluice_total_us").int64_param(), 1234);
}

// Goal: large outputs are not copied. Method: the slice's bytes are the string's own.
TEST(Response, LargeOutputKeepsItsStorage) {
  const auto model = ThreeOutputs();
  server::InferResult result;
  result.outputs.push_back({0, {1 << 18, 1}, std::string(1 << 20, 'x')});
  const void* storage = result.outputs[0].bytes.data();
  const auto slices = EncodeResponse({*model, "", RequestClass::kLatency, false}, std::move(result));
  ASSERT_TRUE(slices.ok());
  ASSERT_EQ(slices->size(), 2u);
  EXPECT_EQ((*slices)[1].begin(), storage);
}

// Goal: memory of the pool is owned by the slice that is written, however gRPC shares it, and goes back with the last
// reference. Method: encode a pooled output, look at where it lies, then let go of copy and slices, on another thread.
TEST(Response, PooledOutputGoesBackWithItsSlice) {
  const auto pool = server::ResponsePool::Create({.limit_bytes = 4 << 20, .reserved_share = 0});
  const auto model = ThreeOutputs();
  const auto used = [&] { return pool->use(RequestClass::kBatch).used_bytes; };
  constexpr size_t kBytes = 1 << 20;
  ASSERT_TRUE(pool->TryReserve(RequestClass::kBatch, kBytes, 0));
  server::InferResult result;
  server::ResponseOutput output{.output_index = 0, .shape = {1 << 18, 1}, .bytes = ""};
  output.pooled = pool->Adopt(RequestClass::kBatch, kBytes).Take(kBytes);
  std::memset(output.pooled.bytes().data(), 'p', kBytes);
  const void* storage = output.pooled.bytes().data();
  result.outputs.push_back(std::move(output));
  auto slices = EncodeResponse({*model, "", RequestClass::kBatch, false}, std::move(result));
  ASSERT_TRUE(slices.ok()) << slices.status();
  ASSERT_EQ(slices->size(), 2u);
  EXPECT_EQ((*slices)[1].begin(), storage) << "not copied";
  inference::ModelInferResponse response;
  ASSERT_TRUE(response.ParseFromString(Join(*slices)));
  EXPECT_EQ(response.raw_output_contents(0), std::string(kBytes, 'p'));
  std::optional<grpc::ByteBuffer> buffer(std::in_place, slices->data(), slices->size());
  slices->clear();
  EXPECT_EQ(used(), kBytes);
  {
    Thread writer("writer", [&] { buffer.reset(); });
  }
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(pool->kept_bytes(), kBytes);
}

// Goal: no timings unless asked for; an output that is not the model's is our bug. Method: one of each.
TEST(Response, WithoutTimingsAndUnknownOutput) {
  const auto model = ThreeOutputs();
  const auto slices = EncodeResponse({*model, "", RequestClass::kLatency, false}, {});
  inference::ModelInferResponse response;
  ASSERT_TRUE(response.ParseFromString(Join(*slices)));
  EXPECT_EQ(response.parameters_size(), 1);
  server::InferResult result;
  result.outputs.push_back({3, {}, ""});
  EXPECT_TRUE(
      absl::IsInternal(EncodeResponse({*model, "", RequestClass::kLatency, false}, std::move(result)).status()));
}

}  // namespace
}  // namespace sluice::rpc
