// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/onnx_reader.h"

#include <filesystem>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/onnx_tensor.h"

namespace sluice::model {
namespace {

// AttributeProto.AttributeType.
enum class AttributeKind : int64_t {
  kFloat = 1,
  kInt = 2,
  kString = 3,
  kTensor = 4,
  kFloats = 6,
  kInts = 7,
  kStrings = 8
};

/// Reads the messages of one file. Recursion follows the schema's fixed nesting (model, graph, node, attribute,
/// tensor), since subgraphs are refused, so its depth is bounded by construction.
class OnnxParser {
 public:
  OnnxParser(const std::string& directory, OnnxFile& file) : directory_(directory), file_(file) {}

  absl::Status ParseModel(ByteSpan message) {
    WireReader reader(message, 0);
    bool has_graph = false;
    while (!reader.done()) {
      SLUICE_ASSIGN_OR_RETURN(const WireField field, reader.Next());
      if (field.number == 1) {
        SLUICE_ASSIGN_OR_RETURN(file_.ir_version, FieldInt(field, "model.ir_version"));
      } else if (field.number == 2) {
        SLUICE_ASSIGN_OR_RETURN(file_.producer, FieldText(field, "model.producer_name", kMaxNameBytes));
      } else if (field.number == 7) {
        SLUICE_ASSIGN_OR_RETURN(const ByteSpan graph, FieldBytes(field, "model.graph"));
        if (has_graph) return WireError(field.offset, "model.graph", "given twice");
        has_graph = true;
        SLUICE_RETURN_IF_ERROR(ParseGraph(graph, field.data_offset));
      } else if (field.number == 8) {
        SLUICE_RETURN_IF_ERROR(ParseOpset(field));
      } else if (field.number == 20) {
        return absl::UnimplementedError(absl::StrCat("byte ", field.offset, ": model.training_info: not supported"));
      } else if (field.number == 25) {
        return absl::UnimplementedError(
            absl::StrCat("byte ", field.offset, ": model.functions: model-local functions are not supported"));
      }
    }
    if (!has_graph) return WireError(0, "model.graph", "missing; is this an ONNX file?");
    if (file_.opset_imports.empty()) return WireError(0, "model.opset_import", "missing");
    return absl::OkStatus();
  }

 private:
  absl::Status ParseOpset(const WireField& field) {
    SLUICE_ASSIGN_OR_RETURN(const ByteSpan message, FieldBytes(field, "model.opset_import"));
    if (file_.opset_imports.size() >= 64) return WireError(field.offset, "model.opset_import", "more than 64");
    std::pair<std::string, int64_t> opset;
    WireReader reader(message, field.data_offset);
    while (!reader.done()) {
      SLUICE_ASSIGN_OR_RETURN(const WireField part, reader.Next());
      if (part.number == 1) {
        SLUICE_ASSIGN_OR_RETURN(opset.first, FieldText(part, "opset_import.domain", kMaxNameBytes));
      } else if (part.number == 2) {
        SLUICE_ASSIGN_OR_RETURN(opset.second, FieldInt(part, "opset_import.version"));
      }
    }
    file_.opset_imports.push_back(std::move(opset));
    return absl::OkStatus();
  }

  absl::Status ParseGraph(ByteSpan message, size_t offset) {
    WireReader reader(message, offset);
    while (!reader.done()) {
      SLUICE_ASSIGN_OR_RETURN(const WireField field, reader.Next());
      SLUICE_RETURN_IF_ERROR(ParseGraphField(field));
    }
    return absl::OkStatus();
  }

  absl::Status ParseGraphField(const WireField& field) {
    switch (field.number) {
      case 1: {
        SLUICE_ASSIGN_OR_RETURN(const ByteSpan message, FieldBytes(field, "graph.node"));
        if (file_.nodes.size() >= kMaxNodes) return WireError(field.offset, "graph.node", "too many nodes");
        return ParseNode(message, field.data_offset);
      }
      case 5: {
        SLUICE_ASSIGN_OR_RETURN(const ByteSpan message, FieldBytes(field, "graph.initializer"));
        if (file_.initializers.size() >= kMaxInitializers) {
          return WireError(field.offset, "graph.initializer", "too many initializers");
        }
        SLUICE_ASSIGN_OR_RETURN(ConstantTensor tensor, ParseTensor(message, field.data_offset, directory_, file_));
        if (tensor.name.empty()) return WireError(field.offset, "graph.initializer", "without a name");
        file_.initializers.push_back(std::move(tensor));
        return absl::OkStatus();
      }
      case 11:
        return ParseValueInfo(field, "graph.input", file_.inputs);
      case 12:
        return ParseValueInfo(field, "graph.output", file_.outputs);
      case 15:
        return absl::UnimplementedError(
            absl::StrCat("byte ", field.offset, ": graph.sparse_initializer: not supported"));
      default:
        return absl::OkStatus();  // value_info is not trusted: shapes are inferred. The rest is documentation.
    }
  }

  absl::Status ParseNode(ByteSpan message, size_t offset) {
    OnnxNode node;
    WireReader reader(message, offset);
    while (!reader.done()) {
      SLUICE_ASSIGN_OR_RETURN(const WireField field, reader.Next());
      SLUICE_RETURN_IF_ERROR(ParseNodeField(field, node));
    }
    if (node.operator_name.empty()) return WireError(offset, "node.op_type", "missing");
    // A refusal must name its node, and files need not.
    if (node.name.empty()) node.name = absl::StrCat("#", file_.nodes.size());
    if (!refused_attribute_.empty()) {
      return absl::UnimplementedError(absl::StrCat("node '", node.name, "' (", node.operator_name, "): attribute '",
                                                   refused_attribute_,
                                                   "' holds a graph or a type; control flow is not supported"));
    }
    file_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::Status ParseNodeField(const WireField& field, OnnxNode& node) {
    switch (field.number) {
      case 1: {
        if (node.inputs.size() >= kMaxNodeInputs) return WireError(field.offset, "node.input", "too many inputs");
        SLUICE_ASSIGN_OR_RETURN(node.inputs.emplace_back(), FieldText(field, "node.input", kMaxNameBytes));
        return absl::OkStatus();
      }
      case 2: {
        if (node.outputs.size() >= kMaxNodeInputs) return WireError(field.offset, "node.output", "too many outputs");
        SLUICE_ASSIGN_OR_RETURN(node.outputs.emplace_back(), FieldText(field, "node.output", kMaxNameBytes));
        return absl::OkStatus();
      }
      case 3: {
        SLUICE_ASSIGN_OR_RETURN(node.name, FieldText(field, "node.name", kMaxNameBytes));
        return absl::OkStatus();
      }
      case 4: {
        SLUICE_ASSIGN_OR_RETURN(node.operator_name, FieldText(field, "node.op_type", kMaxNameBytes));
        return absl::OkStatus();
      }
      case 5: {
        SLUICE_ASSIGN_OR_RETURN(const ByteSpan message, FieldBytes(field, "node.attribute"));
        if (node.attributes.size() >= kMaxAttributes) return WireError(field.offset, "node.attribute", "too many");
        return ParseAttribute(message, field.data_offset, node);
      }
      case 7: {
        SLUICE_ASSIGN_OR_RETURN(node.domain, FieldText(field, "node.domain", kMaxNameBytes));
        return absl::OkStatus();
      }
      default:
        return absl::OkStatus();
    }
  }

  /// Everything an AttributeProto may hold that Sluice can use; `kind` says which of it counts.
  struct AttributeParts {
    std::string name;
    int64_t kind = 0;
    int64_t integer = 0;
    float number = 0;
    std::string text;
    std::vector<int64_t> integers;
    std::vector<float> numbers;
    std::vector<std::string> texts;
    std::optional<ConstantTensor> tensor;
    bool unsupported = false;
  };

  absl::Status ParseAttributeField(const WireField& field, AttributeParts& parts) {
    switch (field.number) {
      case 1: {
        SLUICE_ASSIGN_OR_RETURN(parts.name, FieldText(field, "attribute.name", kMaxNameBytes));
        break;
      }
      case 2: {
        SLUICE_ASSIGN_OR_RETURN(parts.number, FieldFloat(field, "attribute.f"));
        break;
      }
      case 3: {
        SLUICE_ASSIGN_OR_RETURN(parts.integer, FieldInt(field, "attribute.i"));
        break;
      }
      case 4: {
        SLUICE_ASSIGN_OR_RETURN(parts.text, FieldText(field, "attribute.s", kMaxNameBytes));
        break;
      }
      case 5: {
        SLUICE_ASSIGN_OR_RETURN(const ByteSpan message, FieldBytes(field, "attribute.t"));
        if (parts.tensor.has_value()) return WireError(field.offset, "attribute.t", "given twice");
        SLUICE_ASSIGN_OR_RETURN(parts.tensor, ParseTensor(message, field.data_offset, directory_, file_));
        break;
      }
      case 7:
        return AppendFloats(field, "attribute.floats", kMaxAttributeValues, parts.numbers);
      case 8:
        return AppendInts(field, "attribute.ints", kMaxAttributeValues, parts.integers);
      case 9: {
        if (parts.texts.size() >= kMaxNodeInputs) return WireError(field.offset, "attribute.strings", "too many");
        SLUICE_ASSIGN_OR_RETURN(parts.texts.emplace_back(), FieldText(field, "attribute.strings", kMaxNameBytes));
        break;
      }
      case 20: {
        SLUICE_ASSIGN_OR_RETURN(parts.kind, FieldInt(field, "attribute.type"));
        break;
      }
      case 6:   // g
      case 10:  // tensors
      case 11:  // graphs
      case 14:  // tp
      case 15:  // type_protos
      case 21:  // ref_attr_name: only inside functions
      case 22:  // sparse_tensor
      case 23:  // sparse_tensors
        parts.unsupported = true;
        break;
      default:
        break;
    }
    return absl::OkStatus();
  }

  absl::Status ParseAttribute(ByteSpan message, size_t offset, OnnxNode& node) {
    AttributeParts parts;
    WireReader reader(message, offset);
    while (!reader.done()) {
      SLUICE_ASSIGN_OR_RETURN(const WireField field, reader.Next());
      SLUICE_RETURN_IF_ERROR(ParseAttributeField(field, parts));
    }
    if (parts.name.empty()) return WireError(offset, "attribute.name", "missing");
    if (parts.unsupported) {
      refused_attribute_ = parts.name;
      return absl::OkStatus();
    }
    for (const Attribute& other : node.attributes) {
      if (other.name == parts.name)
        return WireError(offset, absl::StrCat("attribute '", parts.name, "'"), "given twice");
    }
    Attribute attribute{std::move(parts.name), {}};
    switch (static_cast<AttributeKind>(parts.kind)) {
      case AttributeKind::kFloat:
        attribute.value = parts.number;
        break;
      case AttributeKind::kInt:
        attribute.value = parts.integer;
        break;
      case AttributeKind::kString:
        attribute.value = std::move(parts.text);
        break;
      case AttributeKind::kTensor:
        if (!parts.tensor.has_value()) {
          return WireError(offset, absl::StrCat("attribute '", attribute.name, "'"), "no tensor");
        }
        attribute.value = *std::move(parts.tensor);
        break;
      case AttributeKind::kFloats:
        attribute.value = std::move(parts.numbers);
        break;
      case AttributeKind::kInts:
        attribute.value = std::move(parts.integers);
        break;
      case AttributeKind::kStrings:
        attribute.value = std::move(parts.texts);
        break;
      default:
        return WireError(offset, absl::StrCat("attribute '", attribute.name, "'"),
                         absl::StrCat("type ", parts.kind, " is unknown"));
    }
    node.attributes.push_back(std::move(attribute));
    return absl::OkStatus();
  }

  absl::Status ParseValueInfo(const WireField& field, absl::string_view path, std::vector<OnnxValueInfo>& out) {
    SLUICE_ASSIGN_OR_RETURN(const ByteSpan message, FieldBytes(field, path));
    if (out.size() >= kMaxGraphInputs) return WireError(field.offset, path, "too many");
    OnnxValueInfo info;
    WireReader reader(message, field.data_offset);
    while (!reader.done()) {
      SLUICE_ASSIGN_OR_RETURN(const WireField part, reader.Next());
      if (part.number == 1) {
        SLUICE_ASSIGN_OR_RETURN(info.name, FieldText(part, path, kMaxNameBytes));
      } else if (part.number == 2) {
        SLUICE_ASSIGN_OR_RETURN(const ByteSpan type, FieldBytes(part, path));
        SLUICE_RETURN_IF_ERROR(ParseType(type, part.data_offset, path, info));
      }
    }
    if (info.name.empty()) return WireError(field.offset, path, "without a name");
    if (info.is_tensor && info.type == DataType::kInvalid) {
      return WireError(field.offset, absl::StrCat(path, " '", info.name, "'"), "no tensor type");
    }
    out.push_back(std::move(info));
    return absl::OkStatus();
  }

  absl::Status ParseType(ByteSpan message, size_t offset, absl::string_view path, OnnxValueInfo& info) {
    WireReader reader(message, offset);
    while (!reader.done()) {
      SLUICE_ASSIGN_OR_RETURN(const WireField field, reader.Next());
      if (field.number == 1) {
        SLUICE_ASSIGN_OR_RETURN(const ByteSpan tensor, FieldBytes(field, path));
        SLUICE_RETURN_IF_ERROR(ParseTensorType(tensor, field.data_offset, path, info));
      } else if (field.number != 6) {  // 6 is the denotation.
        info.is_tensor = false;
      }
    }
    return absl::OkStatus();
  }

  absl::Status ParseTensorType(ByteSpan message, size_t offset, absl::string_view path, OnnxValueInfo& info) {
    WireReader reader(message, offset);
    while (!reader.done()) {
      SLUICE_ASSIGN_OR_RETURN(const WireField field, reader.Next());
      if (field.number == 1) {
        SLUICE_ASSIGN_OR_RETURN(const int64_t number, FieldInt(field, path));
        SLUICE_ASSIGN_OR_RETURN(info.type, ElementTypeFromOnnx(number, field.offset, path));
      } else if (field.number == 2) {
        SLUICE_ASSIGN_OR_RETURN(const ByteSpan shape, FieldBytes(field, path));
        info.dims.emplace();
        WireReader dims(shape, field.data_offset);
        while (!dims.done()) {
          SLUICE_ASSIGN_OR_RETURN(const WireField dim, dims.Next());
          if (dim.number == 1) SLUICE_RETURN_IF_ERROR(ParseDim(dim, path, *info.dims));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status ParseDim(const WireField& field, absl::string_view path, Shape& dims) {
    SLUICE_ASSIGN_OR_RETURN(const ByteSpan message, FieldBytes(field, path));
    if (dims.size() >= kMaxRank) {
      return WireError(field.offset, path, absl::StrCat("more than ", kMaxRank, " dimensions"));
    }
    int64_t value = -1;  // A name, or nothing at all, leaves the dimension open.
    WireReader reader(message, field.data_offset);
    while (!reader.done()) {
      SLUICE_ASSIGN_OR_RETURN(const WireField part, reader.Next());
      if (part.number != 1) continue;
      SLUICE_ASSIGN_OR_RETURN(value, FieldInt(part, path));
      // Some exporters write 0 or -1 for "unknown".
      if (value == 0) value = -1;
      if (value < -1 || value > kMaxElements) return WireError(part.offset, path, absl::StrCat("dimension ", value));
    }
    dims.push_back(value);
    return absl::OkStatus();
  }

  const std::string& directory_;
  OnnxFile& file_;
  std::string refused_attribute_;  // Of the node being read, whose name may come later.
};

}  // namespace

absl::StatusOr<std::unique_ptr<OnnxFile>> ParseOnnx(ByteSpan bytes, const std::string& directory,
                                                    std::shared_ptr<const FilesInMemory> given) {
  auto file = std::make_unique<OnnxFile>();
  file->given = std::move(given);
  SLUICE_RETURN_IF_ERROR(OnnxParser(directory, *file).ParseModel(bytes));
  return file;
}

absl::StatusOr<std::unique_ptr<OnnxFile>> ReadOnnxFile(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? std::string(".") : parent.string();
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<OnnxFile> file, ParseOnnx(mapping.bytes(), directory));
  file->mapping.emplace(std::move(mapping));
  return file;
}

absl::StatusOr<std::unique_ptr<OnnxFile>> ReadOnnxFile(std::shared_ptr<const FilesInMemory> given,
                                                       const std::string& path) {
  const auto found = given->find(path);
  if (found == given->end()) return absl::NotFoundError("there is no such file");
  const ByteSpan bytes = std::as_bytes(std::span(found->second));
  return ParseOnnx(bytes, std::filesystem::path(path).parent_path().string(), std::move(given));
}

}  // namespace sluice::model
