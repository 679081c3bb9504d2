// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/data_type.h"
#include "model/model.h"
#include "model/wire.h"

namespace sluice::model {

/// Writes protobuf's wire format, well-formed or not.
class WireWriter {
 public:
  WireWriter& Varint(uint32_t number, uint64_t value);
  WireWriter& Fixed32(uint32_t number, uint32_t value);
  WireWriter& Bytes(uint32_t number, const std::string& bytes);
  WireWriter& Raw(const std::string& bytes);
  const std::string& bytes() const { return bytes_; }

 private:
  void PutVarint(uint64_t value);
  std::string bytes_;
};

// Serialized AttributeProto messages.
std::string IntAttribute(const std::string& name, int64_t value);
std::string IntsAttribute(const std::string& name, const std::vector<int64_t>& values);
std::string FloatAttribute(const std::string& name, float value);
std::string FloatsAttribute(const std::string& name, const std::vector<float>& values);
std::string StringAttribute(const std::string& name, const std::string& value);
std::string TensorAttribute(const std::string& name, const std::string& tensor);

/// A serialized TensorProto with raw_data.
template <class T>
std::string RawTensor(const std::string& name, DataType type, const Shape& dims, const std::vector<T>& values);
std::string RawTensorBytes(const std::string& name, DataType type, const Shape& dims, const std::string& bytes);
int64_t OnnxTypeNumber(DataType type);

/// Builds small ONNX files for tests.
class OnnxWriter {
 public:
  explicit OnnxWriter(int64_t opset = 13) : opset_(opset) {}
  /// A further domain; ai.onnx is there.
  OnnxWriter& Import(const std::string& domain, int64_t opset);
  OnnxWriter& Input(const std::string& name, DataType type, const Shape& dims);
  OnnxWriter& Output(const std::string& name, DataType type, const Shape& dims);
  /// A map as input or output: `field` of GraphProto, 11 or 12.
  OnnxWriter& Map(uint32_t field, const std::string& name);
  OnnxWriter& Initializer(const std::string& tensor);
  OnnxWriter& Floats(const std::string& name, const Shape& dims, const std::vector<float>& values);
  OnnxWriter& Ints(const std::string& name, const Shape& dims, const std::vector<int64_t>& values);
  OnnxWriter& Node(const std::string& operator_name, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& outputs, const std::vector<std::string>& attributes = {},
                   const std::string& domain = "");
  std::string Serialize() const;

 private:
  const int64_t opset_;
  WireWriter imports_;
  WireWriter graph_;
};

inline ByteSpan AsBytes(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

template <class T>
std::string RawTensor(const std::string& name, DataType type, const Shape& dims, const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return RawTensorBytes(name, type, dims, bytes);
}

}  // namespace sluice::model
