// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/description.h"
#include "model/device_model.h"
#include "model/graph_builder.h"
#include "model/onnx_reader.h"
#include "model/print.h"

namespace sluice::model {
namespace {

/// Gives those of `values` that `places` names the type and dimensions of their namesakes among `tensors`.
void DeclareTensors(const std::vector<TensorSignature>& tensors, const std::vector<int32_t>& places,
                    std::vector<ValueDescription>& values) {
  for (const int32_t place : places) {
    if (place < 0) continue;
    ValueDescription& value = values[static_cast<size_t>(place)];
    for (const TensorSignature& tensor : tensors) {
      if (tensor.name != value.name) continue;
      value.type = tensor.type;
      value.dims = tensor.dims;
    }
  }
}

class OnnxModel final : public Model {
 public:
  OnnxModel(std::unique_ptr<OnnxFile> file, Graph graph)
      : file_(std::move(file)), graph_(std::move(graph)), signature_(ReadSignature(*file_, graph_)) {}

  const Signature& signature() const override { return signature_; }
  int64_t opset() const override { return graph_.opset; }
  GraphDescription Describe() const override {
    GraphDescription described = DescribeGraph(graph_, kMostGraphBytes);
    // Dimensions are the bucket's until one is bound; what the file declares is the signature's.
    DeclareTensors(signature_.inputs, described.inputs, described.values);
    DeclareTensors(signature_.outputs, described.outputs, described.values);
    return described;
  }
  absl::StatusOr<std::unique_ptr<DeviceModel>> Instantiate(gpu::Device& device, gpu::Device& host,
                                                           const PlanOptions& options) const override {
    return MakeDeviceModel(graph_.Clone(), signature_, device, host, options);
  }

 private:
  const std::unique_ptr<OnnxFile> file_;  // What the graph's constants point into.
  const Graph graph_;
  const Signature signature_;
};

absl::StatusOr<std::unique_ptr<Model>> Build(absl::StatusOr<std::unique_ptr<OnnxFile>> file) {
  SLUICE_RETURN_IF_ERROR(file.status());
  SLUICE_ASSIGN_OR_RETURN(Graph graph, BuildGraph(**file));
  return std::make_unique<OnnxModel>(*std::move(file), std::move(graph));
}

/// With the file's name in the error.
absl::StatusOr<std::unique_ptr<Model>> BuildNamed(absl::StatusOr<std::unique_ptr<OnnxFile>> file,
                                                  const std::string& path) {
  auto model = Build(std::move(file));
  if (model.ok()) return model;
  return absl::Status(model.status().code(), absl::StrCat(path, ": ", model.status().message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> LoadOnnxModel(const std::string& path) {
  return BuildNamed(ReadOnnxFile(path), path);
}

absl::StatusOr<std::unique_ptr<Model>> LoadOnnxModel(std::shared_ptr<const FilesInMemory> files,
                                                     const std::string& path) {
  return BuildNamed(ReadOnnxFile(std::move(files), path), path);
}

}  // namespace sluice::model
