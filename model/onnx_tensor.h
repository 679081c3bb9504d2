// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/onnx_reader.h"

namespace sluice::model {

/// ONNX's number for an element type; UNIMPLEMENTED for one that Sluice does not know, `path` naming the field.
absl::StatusOr<DataType> ElementTypeFromOnnx(int64_t number, size_t offset, absl::string_view path);

/// Parses one TensorProto. Numbers in typed fields are copied into file.owned, raw ones stay where they are, external
/// ones are found in `directory`, of file.given or on disk, where they are mapped.
absl::StatusOr<ConstantTensor> ParseTensor(ByteSpan message, size_t offset, const std::string& directory,
                                           OnnxFile& file);

}  // namespace sluice::model
