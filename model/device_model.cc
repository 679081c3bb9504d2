// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/device_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/features.h"
#include "model/constant_pool.h"
#include "model/passes/passes.h"
#include "model/plan.h"

namespace sluice::model {
namespace {

class GraphDeviceModel final : public DeviceModel {
 public:
  GraphDeviceModel(Graph graph, const Signature& signature, gpu::Device& device, gpu::Device& host,
                   const PlanOptions& options)
      : graph_(std::move(graph)),
        signature_(signature),
        device_(device),
        host_(host),
        options_(options),
        precision_(gpu::KernelFeaturesOf(device).low_precision ? options.precision : Precision::kFp32),
        pool_(device) {}

  absl::StatusOr<std::unique_ptr<Plan>> BuildPlan(const Bucket& bucket) override {
    Graph graph = graph_.Clone();
    SLUICE_RETURN_IF_ERROR(SimplifyBound(graph, signature_, bucket, host_, gpu::KernelFeaturesOf(device_), precision_));
    SLUICE_RETURN_IF_ERROR(CheckOutputs(graph));
    return BuildPlanFromGraph(std::move(graph), bucket, device_, pool_, options_);
  }

  Precision precision() const override { return precision_; }
  size_t weight_bytes() const override { return pool_.total_bytes(); }
  size_t constant_bytes() const override {
    size_t sum = 0;
    for (const Value& value : graph_.values) sum += value.is_constant ? value.bytes.size() : 0;
    return sum;
  }

 private:
  /// The file's declarations are what clients are told, so results must agree with them.
  absl::Status CheckOutputs(const Graph& graph) const {
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const Value& output = graph.value(graph.outputs[i]);
      const TensorSignature& declared = signature_.outputs[i];
      bool agrees = output.type == declared.type && output.dims->size() == declared.dims.size();
      for (size_t d = 0; agrees && d < declared.dims.size(); ++d) {
        agrees = declared.dims[d] < 0 || declared.dims[d] == (*output.dims)[d];
      }
      if (!agrees) {
        return absl::InvalidArgumentError(absl::StrCat(
            "output '", declared.name, "' is declared as ", WireName(declared.type), ShapeToString(declared.dims),
            " but comes out as ", WireName(output.type), ShapeToString(*output.dims)));
      }
    }
    return absl::OkStatus();
  }

  const Graph graph_;
  const Signature& signature_;
  gpu::Device& device_;
  gpu::Device& host_;
  const PlanOptions options_;
  const Precision precision_;
  ConstantPool pool_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceModel>> MakeDeviceModel(Graph graph, const Signature& signature,
                                                             gpu::Device& device, gpu::Device& host,
                                                             const PlanOptions& options) {
  SLUICE_RETURN_IF_ERROR(SimplifyUnbound(graph, host));
  return std::make_unique<GraphDeviceModel>(std::move(graph), signature, device, host, options);
}

}  // namespace sluice::model
