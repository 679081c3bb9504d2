// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "model/attribute.h"
#include "model/mapped_file.h"
#include "model/model.h"
#include "model/wire.h"

namespace sluice::model {

// What an ONNX file says, checked for form but not for meaning: graph_builder.h does that.

struct OnnxNode {
  std::string name;
  std::string operator_name;
  std::string domain;
  std::vector<std::string> inputs;  ///< An empty name stands for an optional input that is left out.
  std::vector<std::string> outputs;
  std::vector<Attribute> attributes;
};

struct OnnxValueInfo {
  std::string name;
  bool is_tensor = true;  ///< Or a sequence, map or optional: graph_builder.h refuses it, after the nodes that make it.
  DataType type = DataType::kInvalid;
  std::optional<Shape> dims;  ///< -1 for a dimension left open.
};

/// A parsed file and what its tensors point into.
struct OnnxFile {
  int64_t ir_version = 0;
  std::string producer;
  std::vector<std::pair<std::string, int64_t>> opset_imports;
  std::vector<OnnxNode> nodes;
  std::vector<ConstantTensor> initializers;
  std::vector<OnnxValueInfo> inputs;
  std::vector<OnnxValueInfo> outputs;
  // Where bytes live.
  std::shared_ptr<const FilesInMemory> given;  ///< Null: on disk, and mapped.
  std::optional<MappedFile> mapping;
  std::map<std::string, MappedFile> external;  ///< By location.
  std::deque<std::vector<std::byte>> owned;    ///< Tensors whose numbers were stored in typed fields.
};

/// Bounds on what a file may contain; all are far above what real models have.
inline constexpr size_t kMaxNodes = 200'000;
inline constexpr size_t kMaxInitializers = 200'000;
inline constexpr size_t kMaxGraphInputs = 4'096;
inline constexpr size_t kMaxNodeInputs = 4'096;
inline constexpr size_t kMaxAttributes = 256;
inline constexpr size_t kMaxAttributeValues = 1 << 20;
inline constexpr size_t kMaxNameBytes = 4'096;
inline constexpr size_t kMaxRank = 8;
inline constexpr int64_t kMaxElements = int64_t{1} << 40;

/// Parses `bytes`, which must outlive the result; external data is looked for in `directory` (refused when empty), of
/// `given` if there are any, else on disk.
/// INVALID_ARGUMENT with byte offset and field for a malformed file; UNIMPLEMENTED naming the node for subgraphs,
/// functions, sparse tensors and element types that Sluice does not know.
absl::StatusOr<std::unique_ptr<OnnxFile>> ParseOnnx(ByteSpan bytes, const std::string& directory,
                                                    std::shared_ptr<const FilesInMemory> given = nullptr);

/// Maps `path` and parses it; external data is looked for beside it. NOT_FOUND when there is no such file.
absl::StatusOr<std::unique_ptr<OnnxFile>> ReadOnnxFile(const std::string& path);
/// The same among `given`.
absl::StatusOr<std::unique_ptr<OnnxFile>> ReadOnnxFile(std::shared_ptr<const FilesInMemory> given,
                                                       const std::string& path);

/// Elements of a tensor with these dimensions; INVALID_ARGUMENT when one is negative or the product exceeds
/// kMaxElements.
absl::StatusOr<int64_t> ElementCount(const Shape& dims);

}  // namespace sluice::model
