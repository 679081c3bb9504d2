// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/data_type.h"
#include "model/model.h"
#include "model/wire.h"

namespace sluice::model {

/// A tensor that the file spells out. Its bytes live with the file (onnx_reader.h), unaligned, exactly as many as
/// `dims` needs.
struct ConstantTensor {
  std::string name;
  DataType type = DataType::kInvalid;
  Shape dims;
  ByteSpan bytes;
};

/// One named setting of a node.
struct Attribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>, std::vector<std::string>,
               ConstantTensor>
      value;
};

}  // namespace sluice::model
