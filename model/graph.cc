// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/graph.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::model {
namespace {

uint64_t Mix(uint64_t value) {
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93u;
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93u;
  return value ^ (value >> 32);
}

/// Two 64-bit lanes over 8-byte words; several GB/s, so that a plan's constants are named in milliseconds.
struct ContentHash {
  uint64_t a = 0x243F6A8885A308D3u;
  uint64_t b = 0x13198A2E03707344u;
  void AddWord(uint64_t word) {
    a = (a ^ word) * 0x9E3779B97F4A7C15u;
    a ^= a >> 29;
    b = (b + word) * 0xC2B2AE3D27D4EB4Fu;
    b ^= b >> 31;
  }
  void AddBytes(ByteSpan bytes) {
    size_t position = 0;
    for (; position + 8 <= bytes.size(); position += 8) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + position, 8);
      AddWord(word);
    }
    uint64_t word = 0;
    if (position < bytes.size()) std::memcpy(&word, bytes.data() + position, bytes.size() - position);
    AddWord(word);
    AddWord(bytes.size());
  }
};

}  // namespace

const Attribute* Node::FindAttribute(absl::string_view attribute_name) const {
  for (const Attribute& attribute : attributes) {
    if (attribute.name == attribute_name) return &attribute;
  }
  return nullptr;
}

void Node::SetAttribute(absl::string_view attribute_name, decltype(Attribute::value) value) {
  for (Attribute& attribute : attributes) {
    if (attribute.name == attribute_name) {
      attribute.value = std::move(value);
      return;
    }
  }
  attributes.push_back({std::string(attribute_name), std::move(value)});
}

Graph Graph::Clone() const {
  Graph clone;
  clone.opset = opset;
  clone.tf32 = tf32;
  clone.values = values;
  clone.nodes = nodes;
  clone.inputs = inputs;
  clone.outputs = outputs;
  return clone;
}

ValueIndex Graph::AddValue(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueIndex>(values.size() - 1);
}

ValueIndex Graph::AddConstant(std::string name, DataType type, Shape dims, std::vector<std::byte> bytes) {
  const ValueIndex index = AddValue({.name = std::move(name)});
  SetConstant(index, type, std::move(dims), std::move(bytes));
  return index;
}

void Graph::SetConstant(ValueIndex index, DataType type, Shape dims, std::vector<std::byte> bytes) {
  owned_.push_back(std::move(bytes));
  Value& constant = value(index);
  constant.type = type;
  constant.is_constant = true;
  constant.bytes = owned_.back();
  constant.constant_name = ContentName(type, dims, constant.bytes);
  constant.dims = std::move(dims);
}

bool Graph::IsOutput(ValueIndex index) const {
  return std::find(outputs.begin(), outputs.end(), index) != outputs.end();
}

std::vector<int> Graph::UseCounts() const {
  std::vector<int> counts(values.size(), 0);
  const auto count = [&](ValueIndex index) {
    if (index != kNoValue) ++counts[static_cast<size_t>(index)];
  };
  for (const Node& node : nodes) std::for_each(node.inputs.begin(), node.inputs.end(), count);
  std::for_each(outputs.begin(), outputs.end(), count);
  return counts;
}

std::vector<int> Graph::Producers() const {
  std::vector<int> producers(values.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const ValueIndex output : nodes[i].outputs) {
      if (output != kNoValue) producers[static_cast<size_t>(output)] = static_cast<int>(i);
    }
  }
  return producers;
}

void Graph::ReplaceUses(ValueIndex from, ValueIndex to) {
  for (Node& node : nodes) std::replace(node.inputs.begin(), node.inputs.end(), from, to);
  std::replace(outputs.begin(), outputs.end(), from, to);
}

void Graph::EraseNodes(const std::vector<bool>& erased) {
  size_t kept = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (erased[i]) continue;
    if (kept != i) nodes[kept] = std::move(nodes[i]);
    ++kept;
  }
  nodes.resize(kept);
}

std::string ContentName(DataType type, const Shape& dims, ByteSpan bytes) {
  ContentHash hash;
  hash.AddWord(static_cast<uint64_t>(type));
  hash.AddWord(dims.size());
  for (const int64_t dim : dims) hash.AddWord(static_cast<uint64_t>(dim));
  hash.AddBytes(bytes);
  return absl::StrCat("content:", absl::Hex(Mix(hash.a), absl::kZeroPad16), absl::Hex(Mix(hash.b), absl::kZeroPad16));
}

std::string ShapeToString(const Shape& dims) { return absl::StrCat("[", absl::StrJoin(dims, ","), "]"); }

}  // namespace sluice::model
