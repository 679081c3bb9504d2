// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execution/model_instance.h"

#include <algorithm>
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

/// One budget or two.
bool SharesMemory(gpu::Device& device) { return &device.memory() == &device.pinned_memory(); }

absl::Status RefreshBudgets(gpu::Device& device) {
  SLUICE_RETURN_IF_ERROR(device.memory().Refresh());
  return SharesMemory(device) ? absl::OkStatus() : device.pinned_memory().Refresh();
}

std::string DescribeBudgets(gpu::Device& device) {
  const std::string memory = device.memory().ToString();
  if (SharesMemory(device)) return memory;
  return absl::StrCat(memory, "; pinned memory: ", device.pinned_memory().ToString());
}

}  // namespace

InstanceOptions MakeInstanceOptions(const ModelSettings& settings, const ServerConfig& config) {
  InstanceOptions options;
  options.batch_buckets = settings.batch_buckets.empty() ? std::vector<int64_t>{1} : settings.batch_buckets;
  options.slot_counts = settings.slots;
  options.batch_rows = settings.batch_rows;
  options.unit_limit = config.unit_limit;
  options.plan.unit_target = config.unit_target;
  options.plan.precision = settings.precision;
  return options;
}

absl::StatusOr<std::unique_ptr<ModelInstance>> ModelInstance::Create(const model::Model& model, gpu::Device& device,
                                                                     gpu::Device& host,
                                                                     std::shared_ptr<const ServedModel> served,
                                                                     const InstanceOptions& options) {
  SLUICE_RETURN_IF_ERROR(RefreshBudgets(device));
  const std::string before = DescribeBudgets(device);
  std::unique_ptr<ModelInstance> instance(new ModelInstance());
  instance->model_ = &model;
  instance->served_ = std::move(served);
  instance->plan_rows_ = options.batch_buckets;
  instance->slot_counts_ = options.slot_counts;
  instance->unit_limit_ = options.unit_limit;
  SLUICE_ASSIGN_OR_RETURN(instance->device_model_, model.Instantiate(device, host, options.plan));
  absl::Status status = instance->BuildPlans(options.stop);
  if (status.ok()) instance->ChooseMicroBatches(device.info().backend, options.batch_rows);
  if (status.ok()) status = instance->CheckSlotsFit(device);
  if (status.ok()) status = instance->MakeSlots();
  if (absl::IsResourceExhausted(status)) return instance->Refusal(status, before, device);
  SLUICE_RETURN_IF_ERROR(status);
  SLUICE_RETURN_IF_ERROR(RefreshBudgets(device));  // What libraries took meanwhile shows in metrics.
  return instance;
}

absl::Status ModelInstance::BuildPlans(const std::atomic<bool>* stop) {
  const bool batched = served_->max_batch_size >= 1;
  for (const auto& input_shapes : served_->shape_buckets) {
    std::vector<PreparedPlan>& plans = plans_.emplace_back();
    for (const int64_t rows : plan_rows_) {
      if (stop != nullptr && stop->load(std::memory_order_acquire)) {
        return absl::UnavailableError("the server is shutting down");
      }
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
    }
  }
  all_plans_built_ = true;
  return absl::OkStatus();
}

void ModelInstance::ChooseMicroBatches(gpu::Backend backend, const std::optional<int64_t>& batch_rows) {
  const bool has_units = slot_counts_[static_cast<size_t>(RequestClass::kStandard)] > 0 ||
                         slot_counts_[static_cast<size_t>(RequestClass::kBatch)] > 0;
  for (const std::vector<PreparedPlan>& plans : plans_) {
    std::vector<RowProfile> profiles;
    for (const PreparedPlan& prepared : plans) {
      profiles.push_back({.rows = prepared.rows,
                          .whole = prepared.plan->profile(),
                          .longest_unit = prepared.plan->longest_unit(),
                          .longest_kernel = prepared.plan->longest_unit_kernel()});
    }
    const auto configured =
        batch_rows ? std::find(plan_rows_.begin(), plan_rows_.end(), *batch_rows) : plan_rows_.end();
    if (configured != plan_rows_.end()) {
      const auto index = static_cast<size_t>(configured - plan_rows_.begin());
      row_choices_.push_back(TakeRows(profiles, index, RowRule::kConfigured));
    } else if (backend == gpu::Backend::kHost || !has_units) {
      row_choices_.push_back(TakeRows(profiles, profiles.size() - 1, RowRule::kLargest));
    } else {
      row_choices_.push_back(ChooseRows(profiles, unit_limit_));
    }
  }
  // One graph is kept for people; the others differ in rows only.
  bound_graph_ = micro_batch(0).plan->TakeGraph();
  for (const std::vector<PreparedPlan>& plans : plans_) {
    for (const PreparedPlan& prepared : plans) prepared.plan->TakeGraph();
  }
}

std::span<const int64_t> ModelInstance::plan_rows(size_t shape_bucket, RequestClass request_class) const {
  if (request_class == RequestClass::kLatency) return plan_rows_;
  return std::span(plan_rows_).first(row_choices_[shape_bucket].index + 1);
}

int ModelInstance::SlotCount(size_t shape_bucket, size_t plan, RequestClass request_class) const {
  const bool used = shape_bucket >= row_choices_.size() || plan < plan_rows(shape_bucket, request_class).size();
  return used ? slot_counts_[static_cast<size_t>(request_class)] : 0;
}

absl::Status ModelInstance::CheckSlotsFit(gpu::Device& device) const {
  const size_t device_bytes = SlotSum(&model::SlotMemory::device_bytes);
  const size_t pinned_bytes = SlotSum(&model::SlotMemory::pinned_bytes);
  if (SharesMemory(device)) return device.memory().CheckFits(device_bytes + pinned_bytes, gpu::MemoryKind::kSlots);
  SLUICE_RETURN_IF_ERROR(device.memory().CheckFits(device_bytes, gpu::MemoryKind::kSlots));
  return device.pinned_memory().CheckFits(pinned_bytes, gpu::MemoryKind::kSlots);
}

absl::Status ModelInstance::MakeSlots() {
  for (size_t bucket = 0; bucket < plans_.size(); ++bucket) {
    for (size_t plan = 0; plan < plans_[bucket].size(); ++plan) {
      PreparedPlan& prepared = plans_[bucket][plan];
      for (const RequestClass request_class : kRequestClasses) {
        std::vector<std::unique_ptr<gpu::Slot>> slots;
        const int count = SlotCount(bucket, plan, request_class);
        for (int i = 0; i < count; ++i) {
          SLUICE_ASSIGN_OR_RETURN(auto slot, prepared.plan->MakeSlot(request_class));
          slot_bytes_ += prepared.plan->slot_bytes();
          slots.push_back(std::move(slot));
        }
        if (slots.empty()) continue;
        prepared.slots[static_cast<size_t>(request_class)] = std::make_unique<gpu::SlotPool>(std::move(slots));
      }
    }
  }
  return absl::OkStatus();
}

size_t ModelInstance::SlotSum(size_t model::SlotMemory::*member, std::string* parts) const {
  size_t sum = 0;
  for (size_t bucket = 0; bucket < plans_.size(); ++bucket) {
    for (size_t plan = 0; plan < plans_[bucket].size(); ++plan) {
      const PreparedPlan& prepared = plans_[bucket][plan];
      if (prepared.plan == nullptr) continue;  // The one that could not be built.
      size_t count = 0;
      for (const RequestClass request_class : kRequestClasses) {
        count += static_cast<size_t>(SlotCount(bucket, plan, request_class));
      }
      if (count == 0) continue;
      const size_t bytes = prepared.plan->slot_memory().*member;
      sum += count * bytes;
      if (parts == nullptr) continue;
      absl::StrAppend(parts, parts->empty() ? "" : " + ", count, " x ", bytes, " (rows: ", prepared.rows, ")");
    }
  }
  return sum;
}

absl::Status ModelInstance::Refusal(const absl::Status& cause, const std::string& before, gpu::Device& device) const {
  const size_t weights = device_model_->weight_bytes();
  std::string needs = all_plans_built_ ? absl::StrCat("weights ", weights, " bytes")
                                       : absl::StrCat("weights of at least ",
                                                      std::max(weights, device_model_->constant_bytes()), " bytes");
  const auto add_slots = [&](absl::string_view what, size_t model::SlotMemory::*member) {
    std::string parts;
    const size_t sum = SlotSum(member, &parts);
    if (!parts.empty()) absl::StrAppend(&needs, ", ", what, " ", sum, " bytes = ", parts);
  };
  add_slots("slots", &model::SlotMemory::device_bytes);
  add_slots("pinned memory of slots", &model::SlotMemory::pinned_bytes);
  if (!all_plans_built_) absl::StrAppend(&needs, ", and slots of buckets that were not reached");
  return absl::ResourceExhaustedError(absl::StrCat("model '", served_->name, "' version ", served_->version,
                                                   " does not fit on ", device.info().name, ": ", cause.message(),
                                                   ". It needs ", needs, ". Before it: ", before));
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
  for (const MicroBatch& part : CutRows(rows, plan_rows(shape_bucket, request_class), request_class)) {
    sum += plans_[shape_bucket][part.plan_index].plan->predicted_compute();
  }
  return sum;
}

}  // namespace sluice::server
