// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/device_model.h"
#include "model/graph_builder.h"
#include "model/onnx_reader.h"

namespace sluice::model {
namespace {

class OnnxModel final : public Model {
 public:
  OnnxModel(std::unique_ptr<OnnxFile> file, Graph graph)
      : file_(std::move(file)), graph_(std::move(graph)), signature_(ReadSignature(*file_, graph_)) {}

  const Signature& signature() const override { return signature_; }
  int64_t opset() const override { return graph_.opset; }
  absl::StatusOr<std::unique_ptr<DeviceModel>> Instantiate(gpu::Device& device, gpu::Device& host,
                                                           const PlanOptions& options) const override {
    return MakeDeviceModel(graph_.Clone(), signature_, device, host, options);
  }

 private:
  const std::unique_ptr<OnnxFile> file_;  // What the graph's constants point into.
  const Graph graph_;
  const Signature signature_;
};

absl::StatusOr<std::unique_ptr<Model>> Load(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<OnnxFile> file, ReadOnnxFile(path));
  SLUICE_ASSIGN_OR_RETURN(Graph graph, BuildGraph(*file));
  return std::make_unique<OnnxModel>(std::move(file), std::move(graph));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> LoadOnnxModel(const std::string& path) {
  auto model = Load(path);
  if (model.ok()) return model;
  return absl::Status(model.status().code(), absl::StrCat(path, ": ", model.status().message()));
}

}  // namespace sluice::model
