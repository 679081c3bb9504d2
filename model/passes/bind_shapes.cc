// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/onnx_reader.h"
#include "model/passes/passes.h"

namespace sluice::model {

absl::Status BindShapes(Graph& graph, const Signature& signature, const Bucket& bucket) {
  if (bucket.input_shapes.size() != signature.inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the bucket has ", bucket.input_shapes.size(), " shapes for ",
                                                   signature.inputs.size(), " inputs"));
  }
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const TensorSignature& declared = signature.inputs[i];
    const Shape& shape = bucket.input_shapes[i];
    bool fits = shape.size() == declared.dims.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      fits = shape[d] > 0 && (declared.dims[d] < 0 || declared.dims[d] == shape[d]);
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("input '", declared.name, "': shape ", ShapeToString(shape),
                                                     " does not fit ", ShapeToString(declared.dims)));
    }
    if (absl::Status counted = ElementCount(shape).status(); !counted.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("input '", declared.name, "': ", counted.message()));
    }
    graph.value(graph.inputs[i]).dims = shape;
  }
  return absl::OkStatus();
}

}  // namespace sluice::model
