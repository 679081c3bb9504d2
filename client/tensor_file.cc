// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/tensor_file.h"

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/convert.h"
#include "client/npy_header.h"
#include "client/tensor_values.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;

constexpr int kMostDimensions = 32;
constexpr int64_t kMostBytes = std::numeric_limits<int32_t>::max();

absl::Status Invalid(absl::string_view name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("input '", name, "': ", what));
}

// Appends one level of nesting. The first array seen at each depth sets that dimension, the others must agree.
absl::Status AppendNested(const json& value, size_t depth, Tensor& tensor, std::optional<size_t>& leaf_depth) {
  if (!value.is_array()) {
    if (leaf_depth.value_or(depth) != depth) return Invalid(tensor.name, "its arrays are not nested equally deep");
    leaf_depth = depth;
    absl::Status status = AppendElement(value, tensor.type, tensor.bytes);
    return status.ok() ? status : Invalid(tensor.name, std::string(status.message()));
  }
  if (depth >= kMostDimensions) return Invalid(tensor.name, "more than 32 dimensions");
  const auto size = static_cast<int64_t>(value.size());
  if (depth == tensor.shape.size()) {
    if (leaf_depth.has_value()) return Invalid(tensor.name, "its arrays are not nested equally deep");
    tensor.shape.push_back(size);
  } else if (tensor.shape[depth] != size) {
    return Invalid(tensor.name,
                   absl::StrCat("ragged: an array of ", size, " where ", tensor.shape[depth], " elements were before"));
  }
  for (const json& element : value) {
    SLUICE_RETURN_IF_ERROR(AppendNested(element, depth + 1, tensor, leaf_depth));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ReadNested(const json& value, const std::string& name, DataType type) {
  Tensor tensor{name, type, {}, {}};
  std::optional<size_t> leaf_depth;
  SLUICE_RETURN_IF_ERROR(AppendNested(value, 0, tensor, leaf_depth));
  return tensor;
}

absl::StatusOr<json> ParseJson(absl::string_view text) {
  json document = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return absl::InvalidArgumentError("is not valid JSON");
  return document;
}

absl::StatusOr<const TensorInfo*> FindInfo(const std::vector<TensorInfo>& infos, const std::string& name) {
  for (const TensorInfo& info : infos) {
    if (info.name == name) return &info;
  }
  return Invalid(name, "the model has no such input");
}

absl::StatusOr<std::vector<int64_t>> ReadShape(const json& value, const std::string& name) {
  if (!value.is_array() || value.size() > kMostDimensions) return Invalid(name, "its shape is not an array");
  std::vector<int64_t> shape;
  for (const json& dimension : value) {
    if (!dimension.is_number_unsigned()) return Invalid(name, "its shape has an element that is not a whole number");
    shape.push_back(dimension.get<int64_t>());
  }
  return shape;
}

// One entry of the HTTP protocol's "inputs": its data may be flat or nested, its shape decides.
absl::StatusOr<Tensor> ReadProtocolInput(const json& entry, const std::vector<TensorInfo>& infos) {
  if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() || !entry.contains("data")) {
    return absl::InvalidArgumentError("an element of \"inputs\" lacks \"name\" or \"data\"");
  }
  const auto& name = entry["name"].get_ref<const std::string&>();
  SLUICE_ASSIGN_OR_RETURN(const TensorInfo* info, FindInfo(infos, name));
  if (entry.contains("datatype") && entry["datatype"] != std::string(WireName(info->type))) {
    return Invalid(name, absl::StrCat("is ", entry["datatype"].dump(), ", the model takes ", WireName(info->type)));
  }
  SLUICE_ASSIGN_OR_RETURN(Tensor tensor, ReadNested(entry["data"], name, info->type));
  if (!entry.contains("shape")) return tensor;
  SLUICE_ASSIGN_OR_RETURN(std::vector<int64_t> shape, ReadShape(entry["shape"], name));
  tensor.shape = std::move(shape);
  SLUICE_RETURN_IF_ERROR(CheckTensor(ViewOf(tensor)));
  return tensor;
}

// A raw file's shape: the model's, with one free dimension worked out from the size.
absl::StatusOr<std::vector<int64_t>> ShapeFromSize(const TensorInfo& info, size_t size) {
  if (info.type == DataType::kBytes) return Invalid(info.name, "raw BYTES need a shape (--shape)");
  int64_t known = static_cast<int64_t>(ElementBytes(info.type));
  int free_count = 0;
  for (const int64_t dimension : info.shape) {
    if (dimension < 0) {
      ++free_count;
    } else if (__builtin_mul_overflow(known, dimension, &known)) {
      return Invalid(info.name, "the model's shape overflows");
    }
  }
  if (free_count > 1) return Invalid(info.name, "has several free dimensions; give its shape (--shape)");
  std::vector<int64_t> shape = info.shape;
  for (int64_t& dimension : shape) {
    if (dimension >= 0) continue;
    if (known == 0 || size % static_cast<size_t>(known) != 0) {
      return Invalid(info.name, absl::StrCat(size, " bytes are not a multiple of the ", known, " bytes of one row of ",
                                             WireName(info.type), " [", absl::StrJoin(info.shape, ","), "]"));
    }
    dimension = static_cast<int64_t>(size) / known;
  }
  return shape;
}

// Adds the batch dimension that a file of one example lacks.
void CompleteBatch(const TensorInfo& info, std::vector<int64_t>& shape) {
  if (shape.size() + 1 == info.shape.size() && info.shape.front() == -1) shape.insert(shape.begin(), 1);
}

absl::StatusOr<Tensor> LoadFile(const TensorInfo& info, const InputSource& source) {
  SLUICE_ASSIGN_OR_RETURN(std::string file, ReadWholeFile(source.source));
  Tensor tensor;
  if (absl::EndsWith(source.source, ".npy")) {
    absl::StatusOr<Tensor> parsed = ParseNpy(file);
    if (!parsed.ok()) {
      return Invalid(info.name, absl::StrCat(source.source, ": ", parsed.status().message()));
    }
    tensor = *std::move(parsed);
  } else if (absl::EndsWith(source.source, ".json")) {
    SLUICE_ASSIGN_OR_RETURN(tensor, ParseJsonTensor(file, info.name, info.type));
  } else {
    tensor.type = info.type;
    if (!source.shape.has_value()) {
      SLUICE_ASSIGN_OR_RETURN(tensor.shape, ShapeFromSize(info, file.size()));
    }
    tensor.bytes = std::move(file);
  }
  tensor.name = info.name;
  if (tensor.type != info.type) {
    return Invalid(info.name, absl::StrCat(source.source, " holds ", WireName(tensor.type), ", the model takes ",
                                           WireName(info.type)));
  }
  return tensor;
}

}  // namespace

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open '", path, "'"));
  const std::streamoff size = file.tellg();
  if (size < 0 || size > kMostBytes)
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is above 2 GiB or no file"));
  std::string content(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(content.data(), size)) return absl::InvalidArgumentError(absl::StrCat("cannot read '", path, "'"));
  return content;
}

absl::StatusOr<Tensor> ParseNpy(absl::string_view file) {
  SLUICE_ASSIGN_OR_RETURN(NpyHeader header, ParseNpyHeader(file));
  Tensor tensor{"", header.type, std::move(header.shape), std::string(file.substr(header.data_offset))};
  SLUICE_RETURN_IF_ERROR(CheckTensor(ViewOf(tensor)));
  return tensor;
}

absl::StatusOr<Tensor> ParseJsonTensor(absl::string_view text, const std::string& name, DataType type) {
  absl::StatusOr<json> document = ParseJson(text);
  if (!document.ok()) return Invalid(name, std::string(document.status().message()));
  return ReadNested(*document, name, type);
}

absl::StatusOr<std::vector<Tensor>> ParseJsonInputs(absl::string_view text, const std::vector<TensorInfo>& infos) {
  SLUICE_ASSIGN_OR_RETURN(const json document, ParseJson(text));
  if (!document.is_object()) return absl::InvalidArgumentError("the inputs are not a JSON object");
  std::vector<Tensor> tensors;
  if (document.contains("inputs") && document["inputs"].is_array()) {
    for (const json& entry : document["inputs"]) {
      SLUICE_ASSIGN_OR_RETURN(Tensor tensor, ReadProtocolInput(entry, infos));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }
  for (const auto& [name, value] : document.items()) {
    SLUICE_ASSIGN_OR_RETURN(const TensorInfo* info, FindInfo(infos, name));
    SLUICE_ASSIGN_OR_RETURN(Tensor tensor, ReadNested(value, name, info->type));
    CompleteBatch(*info, tensor.shape);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<Tensor> LoadInput(const TensorInfo& info, const InputSource& source, int64_t batch, uint64_t seed) {
  if (source.source == "random") {
    std::vector<int64_t> shape = source.shape.value_or(info.shape);
    if (!source.shape.has_value() && !shape.empty() && shape.front() == -1) shape.front() = batch;
    return RandomTensor(info.name, info.type, std::move(shape), seed);
  }
  SLUICE_ASSIGN_OR_RETURN(Tensor tensor, LoadFile(info, source));
  if (source.shape.has_value()) tensor.shape = *source.shape;
  CompleteBatch(info, tensor.shape);
  SLUICE_RETURN_IF_ERROR(CheckTensor(ViewOf(tensor)));
  return tensor;
}

}  // namespace sluice::client
