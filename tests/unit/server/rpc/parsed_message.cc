// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "parsed_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <variant>
#include <vector>

namespace sluice::rpc {
namespace {

using Contents = inference::InferTensorContents;
using Counts = std::array<size_t, kContentsFieldCount>;
using ProtoParameters = google::protobuf::Map<std::string, inference::InferParameter>;

/// Fields of contents by number, and the type whose raw form each is decoded to.
constexpr DataType kFieldTypes[kContentsFieldCount] = {DataType::kInvalid, DataType::kBool,   DataType::kInt32,
                                                       DataType::kInt64,   DataType::kUint32, DataType::kUint64,
                                                       DataType::kFp32,    DataType::kFp64,   DataType::kBytes};

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

std::string Serialize(const inference::ModelInferRequest& request) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  Require(request.SerializeToCodedStream(&coded), "a request does not serialize");
  coded.Trim();
  return bytes;
}

std::string Join(const std::vector<Bytes>& pieces) {
  std::string all;
  for (const Bytes& piece : pieces) {
    Require(!piece.empty(), "an empty piece");
    all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return all;
}

Counts CountsOf(const Contents& contents) {
  const int sizes[kContentsFieldCount] = {0,
                                          contents.bool_contents_size(),
                                          contents.int_contents_size(),
                                          contents.int64_contents_size(),
                                          contents.uint_contents_size(),
                                          contents.uint64_contents_size(),
                                          contents.fp32_contents_size(),
                                          contents.fp64_contents_size(),
                                          contents.bytes_contents_size()};
  Counts counts{};
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<size_t>(sizes[i]);
  return counts;
}

/// Raw form of the one field that is filled.
std::string RawOf(size_t field, const Contents& contents) {
  const auto raw = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       static_cast<size_t>(values.size()) * sizeof(*values.data()));
  };
  switch (kFieldTypes[field]) {
    case DataType::kBool:
      return raw(contents.bool_contents());
    case DataType::kInt32:
      return raw(contents.int_contents());
    case DataType::kInt64:
      return raw(contents.int64_contents());
    case DataType::kUint32:
      return raw(contents.uint_contents());
    case DataType::kUint64:
      return raw(contents.uint64_contents());
    case DataType::kFp32:
      return raw(contents.fp32_contents());
    case DataType::kFp64:
      return raw(contents.fp64_contents());
    default:
      break;
  }
  std::string bytes;
  for (const std::string& element : contents.bytes_contents()) {
    const auto length = static_cast<uint32_t>(element.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(element);
  }
  return bytes;
}

/// The canonical contents: how many elements each field has, and, when one field alone is filled, their raw form.
template <class RawForm>
void SetContents(const Counts& counts, const RawForm& raw_form, Contents& contents) {
  contents.Clear();
  size_t filled = 0, field = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    contents.add_uint64_contents(counts[i]);
    if (counts[i] == 0) continue;
    field = i;
    ++filled;
  }
  if (filled == 1) contents.add_bytes_contents(raw_form(field));
}

void SetContents(const TypedContents& ours, Contents& contents) {
  SetContents(
      ours.element_counts,
      [&ours](size_t field) {
        std::string bytes;
        const auto count = static_cast<int64_t>(ours.element_counts[field]);
        Require(DecodeContents(ours, kFieldTypes[field], count, bytes).ok(), "contents do not decode");
        return bytes;
      },
      contents);
}

void SetParameters(const Parameters& ours, ProtoParameters& parameters) {
  for (const auto& [key, value] : ours) {
    inference::InferParameter& parameter = parameters[key];
    if (const auto* flag = std::get_if<bool>(&value)) parameter.set_bool_param(*flag);
    if (const auto* number = std::get_if<int64_t>(&value)) parameter.set_int64_param(*number);
    if (const auto* text = std::get_if<std::string>(&value)) parameter.set_string_param(*text);
    if (const auto* real = std::get_if<double>(&value)) parameter.set_double_param(*real);
    if (const auto* number = std::get_if<uint64_t>(&value)) parameter.set_uint64_param(*number);
  }
}

}  // namespace

std::string Canonical(const ParsedRequest& request) {
  inference::ModelInferRequest message;
  message.set_model_name(request.model_name);
  message.set_model_version(request.model_version);
  message.set_id(request.id);
  SetParameters(request.parameters, *message.mutable_parameters());
  for (const ParsedInput& from : request.inputs) {
    auto& input = *message.add_inputs();
    input.set_name(from.name);
    input.set_datatype(from.datatype);
    input.mutable_shape()->Assign(from.shape.begin(), from.shape.end());
    SetParameters(from.parameters, *input.mutable_parameters());
    if (from.contents.present) SetContents(from.contents, *input.mutable_contents());
  }
  for (const ParsedOutput& from : request.outputs) {
    auto& output = *message.add_outputs();
    output.set_name(from.name);
    SetParameters(from.parameters, *output.mutable_parameters());
  }
  for (const std::vector<Bytes>& raw : request.raw_inputs) message.add_raw_input_contents(Join(raw));
  return Serialize(message);
}

std::string Canonical(inference::ModelInferRequest request) {
  for (auto& input : *request.mutable_inputs()) {
    if (!input.has_contents()) continue;
    const Contents contents = input.contents();
    SetContents(
        CountsOf(contents), [&contents](size_t field) { return RawOf(field, contents); }, *input.mutable_contents());
  }
  request.DiscardUnknownFields();
  return Serialize(request);
}

}  // namespace sluice::rpc
