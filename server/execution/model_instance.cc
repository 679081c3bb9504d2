// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/model_instance.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/execution/micro_batch.h"

namespace sluice::server {
namespace {

size_t TensorBytes(const model::Shape& shape, DataType type) {
  size_t bytes = ElementBytes(type);
  for (const int64_t dim : shape) bytes *= static_cast<size_t>(dim);
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelInstance>> ModelInstance::Create(const model::Model& model, gpu::Device& device,
                                                                     gpu::Device& host,
                                                                     std::shared_ptr<const ServedModel> served,
                                                                     const InstanceOptions& options) {
  std::unique_ptr<ModelInstance> instance(new ModelInstance());
  instance->served_ = std::move(served);
  instance->plan_rows_ = options.batch_buckets;
  SLUICE_ASSIGN_OR_RETURN(instance->device_model_, model.Instantiate(device, host, options.plan));
  SLUICE_RETURN_IF_ERROR(instance->BuildPlans(options));
  return instance;
}

absl::Status ModelInstance::BuildPlans(const InstanceOptions& options) {
  const bool batched = served_->max_batch_size >= 1;
  for (const auto& input_shapes : served_->shape_buckets) {
    std::vector<PreparedPlan>& plans = plans_.emplace_back();
    for (const int64_t rows : plan_rows_) {
      model::Bucket bucket;
      for (model::Shape shape : input_shapes) {
        if (batched) shape.insert(shape.begin(), rows);
        bucket.input_shapes.push_back(std::move(shape));
      }
      PreparedPlan& prepared = plans.emplace_back();
      prepared.rows = rows;
      SLUICE_ASSIGN_OR_RETURN(prepared.plan, device_model_->BuildPlan(bucket));
      for (size_t output = 0; batched && output < prepared.plan->output_shapes().size(); ++output) {
        const model::Shape& shape = prepared.plan->output_shapes()[output];
        if (shape.empty() || shape[0] != rows) {
          return absl::FailedPreconditionError(absl::StrCat("output '", served_->outputs[output].name,
                                                            "': with max_batch_size ", served_->max_batch_size,
                                                            " its first dimension must be the batch (", rows, "), got ",
                                                            shape.empty() ? "a scalar" : absl::StrCat(shape[0])));
        }
      }
      for (const RequestClass request_class : kRequestClasses) {
        const auto index = static_cast<size_t>(request_class);
        std::vector<std::unique_ptr<gpu::Slot>> slots;
        for (int i = 0; i < options.slot_counts[index]; ++i) {
          SLUICE_ASSIGN_OR_RETURN(auto slot, prepared.plan->MakeSlot(request_class));
          slot_bytes_ += prepared.plan->slot_bytes();
          slots.push_back(std::move(slot));
        }
        if (!slots.empty()) prepared.slots[index] = std::make_unique<gpu::SlotPool>(std::move(slots));
      }
    }
  }
  return absl::OkStatus();
}

size_t ModelInstance::InputRowBytes(const PreparedPlan& plan, size_t input) const {
  const size_t bytes = TensorBytes(plan.plan->bucket().input_shapes[input], served_->inputs[input].type);
  return bytes / static_cast<size_t>(plan.rows);
}

size_t ModelInstance::OutputRowBytes(const PreparedPlan& plan, size_t output) const {
  const size_t bytes = TensorBytes(plan.plan->output_shapes()[output], served_->outputs[output].type);
  return bytes / static_cast<size_t>(plan.rows);
}

absl::Duration ModelInstance::PredictedCompute(size_t shape_bucket, int64_t rows, RequestClass request_class) const {
  absl::Duration sum;
  for (const MicroBatch& part : CutRows(rows, plan_rows_, request_class)) {
    sum += plans_[shape_bucket][part.plan_index].plan->predicted_compute();
  }
  return sum;
}

}  // namespace sluice::server
