// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/tiny_models.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice::testing {
namespace {

// Just enough of the protobuf encoding to write ONNX files; field numbers are those of onnx.proto.
std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string Number(int field, uint64_t value) { return Varint(static_cast<uint64_t>(field) << 3) + Varint(value); }
std::string Bytes(int field, const std::string& value) {
  return Varint((static_cast<uint64_t>(field) << 3) | 2) + Varint(value.size()) + value;
}

constexpr int kFloat = 1;

std::string ValueInfo(const std::string& name, int64_t columns, int type = kFloat) {
  const std::string shape =
      Bytes(1, Bytes(2, "N")) + Bytes(1, Number(1, static_cast<uint64_t>(columns)));  // dim_param N, dim_value
  return Bytes(1, name) + Bytes(2, Bytes(1, Number(1, static_cast<uint64_t>(type)) + Bytes(2, shape)));
}

std::string Node(const std::string& type, const std::vector<std::string>& inputs, const std::string& output) {
  std::string node;
  for (const std::string& input : inputs) node += Bytes(1, input);
  return node + Bytes(2, output) + Bytes(3, "make_" + output) + Bytes(4, type);
}

std::string File(const std::string& graph) {
  return Number(1, 8) + Bytes(7, graph) + Bytes(8, Bytes(1, "") + Number(2, 15));
}

}  // namespace

std::string DoublingModel(int64_t columns) {
  return File(Bytes(1, Node("Add", {"x", "x"}, "y")) + Bytes(2, "doubling") + Bytes(11, ValueInfo("x", columns)) +
              Bytes(12, ValueInfo("y", columns)));
}

std::string SumModel(int64_t columns) {
  return File(Bytes(1, Node("Add", {"a", "b"}, "y")) + Bytes(2, "sum") + Bytes(11, ValueInfo("a", columns)) +
              Bytes(11, ValueInfo("b", columns)) + Bytes(12, ValueInfo("y", columns)));
}

std::string CastModel(int onnx_type, int64_t columns) {
  const std::string to = Bytes(1, "to") + Number(3, kFloat) + Number(20, 2);  // an attribute of type INT
  return File(Bytes(1, Node("Cast", {"x"}, "y") + Bytes(5, to)) + Bytes(2, "cast") +
              Bytes(11, ValueInfo("x", columns, onnx_type)) + Bytes(12, ValueInfo("y", columns)));
}

std::string ChainModel(int64_t width, int layers) {
  std::string graph;
  for (int i = 0; i < layers; ++i) {
    graph += Bytes(1, Node("MatMul", {i == 0 ? "x" : absl::StrCat("h", i), "w"},
                           i == layers - 1 ? "y" : absl::StrCat("h", i + 1)));
  }
  const std::vector<float> weights(static_cast<size_t>(width * width), 1.0f / static_cast<float>(width));
  std::string raw(weights.size() * sizeof(float), '\0');
  std::memcpy(raw.data(), weights.data(), raw.size());
  const auto dim = static_cast<uint64_t>(width);
  graph += Bytes(2, "chain");
  graph += Bytes(5, Number(1, dim) + Number(1, dim) + Number(2, kFloat) + Bytes(8, "w") + Bytes(9, raw));
  return File(graph + Bytes(11, ValueInfo("x", width)) + Bytes(12, ValueInfo("y", width)));
}

std::string FanOutModel(int64_t columns) {
  std::vector<float> weights(static_cast<size_t>(columns));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 251);
  std::string raw(weights.size() * sizeof(float), '\0');
  std::memcpy(raw.data(), weights.data(), raw.size());
  std::string graph = Bytes(1, Node("MatMul", {"x", "w"}, "y")) + Bytes(2, "fan_out");
  graph += Bytes(
      5, Number(1, 1) + Number(1, static_cast<uint64_t>(columns)) + Number(2, kFloat) + Bytes(8, "w") + Bytes(9, raw));
  return File(graph + Bytes(11, ValueInfo("x", 1)) + Bytes(12, ValueInfo("y", columns)));
}

void AddToRepository(const std::string& repository, const std::string& name, const std::string& onnx,
                     const std::string& config) {
  const std::filesystem::path model = std::filesystem::path(repository) / name;
  std::filesystem::create_directories(model / "1");
  std::ofstream(model / "1" / "model.onnx", std::ios::binary) << onnx;
  if (!config.empty()) std::ofstream(model / "config.pbtxt") << config;
}

}  // namespace sluice::testing
