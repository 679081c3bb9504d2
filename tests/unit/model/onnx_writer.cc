// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "onnx_writer.h"

#include <bit>

namespace sluice::model {
namespace {

std::string ValueInfo(const std::string& name, DataType type, const Shape& dims) {
  WireWriter shape;
  for (const int64_t dim : dims) {
    WireWriter one;
    if (dim >= 0) {
      one.Varint(1, static_cast<uint64_t>(dim));
    } else {
      one.Bytes(2, "N");
    }
    shape.Bytes(1, one.bytes());
  }
  WireWriter tensor;
  tensor.Varint(1, static_cast<uint64_t>(OnnxTypeNumber(type))).Bytes(2, shape.bytes());
  WireWriter type_proto;
  type_proto.Bytes(1, tensor.bytes());
  return WireWriter().Bytes(1, name).Bytes(2, type_proto.bytes()).bytes();
}

}  // namespace

void WireWriter::PutVarint(uint64_t value) {
  while (value >= 0x80) {
    bytes_.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  bytes_.push_back(static_cast<char>(value));
}

WireWriter& WireWriter::Varint(uint32_t number, uint64_t value) {
  PutVarint(uint64_t{number} << 3);
  PutVarint(value);
  return *this;
}

WireWriter& WireWriter::Fixed32(uint32_t number, uint32_t value) {
  PutVarint((uint64_t{number} << 3) | 5);
  for (int i = 0; i < 4; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  return *this;
}

WireWriter& WireWriter::Bytes(uint32_t number, const std::string& bytes) {
  PutVarint((uint64_t{number} << 3) | 2);
  PutVarint(bytes.size());
  bytes_ += bytes;
  return *this;
}

WireWriter& WireWriter::Raw(const std::string& bytes) {
  bytes_ += bytes;
  return *this;
}

std::string IntAttribute(const std::string& name, int64_t value) {
  return WireWriter().Bytes(1, name).Varint(3, static_cast<uint64_t>(value)).Varint(20, 2).bytes();
}

std::string IntsAttribute(const std::string& name, const std::vector<int64_t>& values) {
  WireWriter writer;
  writer.Bytes(1, name).Varint(20, 7);
  for (const int64_t value : values) writer.Varint(8, static_cast<uint64_t>(value));
  return writer.bytes();
}

std::string FloatAttribute(const std::string& name, float value) {
  return WireWriter().Bytes(1, name).Fixed32(2, std::bit_cast<uint32_t>(value)).Varint(20, 1).bytes();
}

std::string FloatsAttribute(const std::string& name, const std::vector<float>& values) {
  WireWriter writer;
  writer.Bytes(1, name).Varint(20, 6);
  for (const float value : values) writer.Fixed32(7, std::bit_cast<uint32_t>(value));
  return writer.bytes();
}

std::string StringAttribute(const std::string& name, const std::string& value) {
  return WireWriter().Bytes(1, name).Bytes(4, value).Varint(20, 3).bytes();
}

std::string TensorAttribute(const std::string& name, const std::string& tensor) {
  return WireWriter().Bytes(1, name).Bytes(5, tensor).Varint(20, 4).bytes();
}

int64_t OnnxTypeNumber(DataType type) {
  switch (type) {
    case DataType::kFp32:
      return 1;
    case DataType::kUint8:
      return 2;
    case DataType::kInt32:
      return 6;
    case DataType::kInt64:
      return 7;
    case DataType::kBool:
      return 9;
    case DataType::kFp64:
      return 11;
    default:
      return 0;
  }
}

std::string RawTensorBytes(const std::string& name, DataType type, const Shape& dims, const std::string& bytes) {
  WireWriter writer;
  for (const int64_t dim : dims) writer.Varint(1, static_cast<uint64_t>(dim));
  writer.Varint(2, static_cast<uint64_t>(OnnxTypeNumber(type))).Bytes(8, name).Bytes(9, bytes);
  return writer.bytes();
}

OnnxWriter& OnnxWriter::Import(const std::string& domain, int64_t opset) {
  imports_.Bytes(8, WireWriter().Bytes(1, domain).Varint(2, static_cast<uint64_t>(opset)).bytes());
  return *this;
}

OnnxWriter& OnnxWriter::Input(const std::string& name, DataType type, const Shape& dims) {
  graph_.Bytes(11, ValueInfo(name, type, dims));
  return *this;
}

OnnxWriter& OnnxWriter::Output(const std::string& name, DataType type, const Shape& dims) {
  graph_.Bytes(12, ValueInfo(name, type, dims));
  return *this;
}

OnnxWriter& OnnxWriter::Map(uint32_t field, const std::string& name) {
  graph_.Bytes(field, WireWriter().Bytes(1, name).Bytes(2, WireWriter().Bytes(5, "").bytes()).bytes());
  return *this;
}

OnnxWriter& OnnxWriter::Initializer(const std::string& tensor) {
  graph_.Bytes(5, tensor);
  return *this;
}

OnnxWriter& OnnxWriter::Floats(const std::string& name, const Shape& dims, const std::vector<float>& values) {
  return Initializer(RawTensor(name, DataType::kFp32, dims, values));
}

OnnxWriter& OnnxWriter::Ints(const std::string& name, const Shape& dims, const std::vector<int64_t>& values) {
  return Initializer(RawTensor(name, DataType::kInt64, dims, values));
}

OnnxWriter& OnnxWriter::Node(const std::string& operator_name, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs, const std::vector<std::string>& attributes,
                             const std::string& domain) {
  WireWriter node;
  for (const std::string& input : inputs) node.Bytes(1, input);
  for (const std::string& output : outputs) node.Bytes(2, output);
  node.Bytes(3, outputs[0] + "_node").Bytes(4, operator_name);
  for (const std::string& attribute : attributes) node.Bytes(5, attribute);
  if (!domain.empty()) node.Bytes(7, domain);
  graph_.Bytes(1, node.bytes());
  return *this;
}

std::string OnnxWriter::Serialize() const {
  const std::string opset = WireWriter().Varint(2, static_cast<uint64_t>(opset_)).bytes();
  return WireWriter().Varint(1, 8).Bytes(7, graph_.bytes()).Bytes(8, opset).Raw(imports_.bytes()).bytes();
}

}  // namespace sluice::model
