// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/moving_average.h"
#include "base/request_class.h"
#include "gpu/device.h"
#include "gpu/slot_pool.h"
#include "model/model.h"
#include "server/served_model.h"

namespace sluice::server {

/// What a model version is prepared for, besides what clients see.
struct InstanceOptions {
  std::vector<int64_t> batch_buckets;                 ///< Ascending row counts; {1} for a model without batches.
  std::array<int, kRequestClassCount> slot_counts{};  ///< Per class, at least 1 where the class is allowed; 0: none.
  model::PlanOptions plan;
};

/// One plan with its slots for each class.
struct PreparedPlan {
  int64_t rows = 1;
  std::unique_ptr<model::Plan> plan;
  std::array<std::unique_ptr<gpu::SlotPool>, kRequestClassCount> slots;
};

/// One model version on one device, ready to run. Purpose: everything a request thread needs, prepared before READY.
/// Bounds: the slots made here are all there ever are. Immutable after Create but for slot pools and averages; any
/// thread. The device, `model` and `served` must outlive it.
class ModelInstance {
 public:
  /// Builds every plan and slot. RESOURCE_EXHAUSTED with the sum when they do not fit into the device's budgets, which
  /// is known before the first slot is made. Any error leaves nothing behind.
  static absl::StatusOr<std::unique_ptr<ModelInstance>> Create(const model::Model& model, gpu::Device& device,
                                                               gpu::Device& host,
                                                               std::shared_ptr<const ServedModel> served,
                                                               const InstanceOptions& options);

  const ServedModel& served() const { return *served_; }
  /// Plans of one entry of ServedModel::shape_buckets, ascending by rows.
  std::span<const PreparedPlan> plans(size_t shape_bucket) const { return plans_[shape_bucket]; }
  std::span<const int64_t> plan_rows() const { return plan_rows_; }
  size_t weight_bytes() const { return device_model_->weight_bytes(); }
  size_t slot_bytes() const { return slot_bytes_; }
  /// Bytes of one row of an input or output of a plan (of the whole tensor when the model has no batch dimension).
  size_t InputRowBytes(const PreparedPlan& plan, size_t input) const;
  size_t OutputRowBytes(const PreparedPlan& plan, size_t output) const;
  /// Time to copy a request of this model in, by what was measured.
  MovingAverage& copy_in_time() { return copy_in_time_; }
  /// Predicted device time of `rows` rows.
  absl::Duration PredictedCompute(size_t shape_bucket, int64_t rows, RequestClass request_class) const;

 private:
  ModelInstance() = default;
  absl::Status BuildPlans();
  absl::Status CheckSlotsFit(gpu::Device& device) const;
  absl::Status MakeSlots();
  /// What the plans' slots take, in bytes of the kind that `member` names; a text with the parts when `parts` is given.
  size_t SlotSum(size_t model::SlotMemory::*member, std::string* parts = nullptr) const;
  /// `cause` with what this model needs and what was in use before.
  absl::Status Refusal(const absl::Status& cause, const std::string& before, gpu::Device& device) const;

  std::shared_ptr<const ServedModel> served_;
  std::unique_ptr<model::DeviceModel> device_model_;
  std::vector<std::vector<PreparedPlan>> plans_;
  std::vector<int64_t> plan_rows_;
  std::array<int, kRequestClassCount> slot_counts_{};
  bool all_plans_built_ = false;
  size_t slot_bytes_ = 0;
  MovingAverage copy_in_time_;
};

}  // namespace sluice::server
