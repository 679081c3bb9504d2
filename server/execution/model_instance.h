// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/moving_average.h"
#include "base/request_class.h"
#include "gpu/device.h"
#include "gpu/slot_pool.h"
#include "model/description.h"
#include "model/model.h"
#include "server/config.h"
#include "server/execution/row_cut.h"
#include "server/repository/model_settings.h"
#include "server/served_model.h"

namespace sluice::server {

/// What a model version is prepared for, besides what clients see.
struct InstanceOptions {
  std::vector<int64_t> batch_buckets;                 ///< Ascending row counts; {1} for a model without batches.
  std::array<int, kRequestClassCount> slot_counts{};  ///< Per class, at least 1 where the class is allowed; 0: none.
  std::optional<int64_t> batch_rows;                  ///< The bucket that is the micro-batch; else it is chosen.
  absl::Duration unit_limit = absl::Microseconds(60);
  model::PlanOptions plan;
  const std::atomic<bool>* stop = nullptr;  ///< Once it is set, the next plan is not built. Null: nobody can.
};

/// Those that a model's settings and the server's flags ask for; PlanOptions of the device are left to it
/// (DeviceLanes::CompletePlanOptions).
InstanceOptions MakeInstanceOptions(const ModelSettings& settings, const ServerConfig& config);

/// One plan with its slots for each class; no pool where the class never uses the plan.
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
  /// is known before the first slot is made; UNAVAILABLE when it was stopped. Any error leaves nothing behind.
  static absl::StatusOr<std::unique_ptr<ModelInstance>> Create(const model::Model& model, gpu::Device& device,
                                                               gpu::Device& host,
                                                               std::shared_ptr<const ServedModel> served,
                                                               const InstanceOptions& options);

  /// What its plans compute in, which is FP32 on a device that has nothing less.
  model::Precision precision() const { return device_model_->precision(); }
  const ServedModel& served() const { return *served_; }
  /// The same, for those who outlive this.
  const std::shared_ptr<const ServedModel>& served_model() const { return served_; }
  /// Plans of one entry of ServedModel::shape_buckets, ascending by rows.
  std::span<const PreparedPlan> plans(size_t shape_bucket) const { return plans_[shape_bucket]; }
  /// Rows of the plans that a class uses, ascending: the first of plans(shape_bucket). Latency requests use all of
  /// them, standard and batch work those up to the micro-batch.
  std::span<const int64_t> plan_rows(size_t shape_bucket, RequestClass request_class) const;
  /// Which of plans(shape_bucket) is the micro-batch of standard and batch work, and why.
  const RowChoice& row_choice(size_t shape_bucket) const { return row_choices_[shape_bucket]; }
  const PreparedPlan& micro_batch(size_t shape_bucket) const {
    return plans_[shape_bucket][row_choices_[shape_bucket].index];
  }
  absl::Duration unit_limit() const { return unit_limit_; }
  /// The file's graph, and what passes made of it for the micro-batch of the first shape bucket.
  model::GraphDescription file_graph() const { return model_->Describe(); }
  const model::GraphDescription& bound_graph() const { return bound_graph_; }
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
  absl::Status BuildPlans(const std::atomic<bool>* stop);
  void ChooseMicroBatches(gpu::Backend backend, const std::optional<int64_t>& batch_rows);
  /// How many slots a class gets of a plan.
  int SlotCount(size_t shape_bucket, size_t plan, RequestClass request_class) const;
  absl::Status CheckSlotsFit(gpu::Device& device) const;
  absl::Status MakeSlots();
  /// What the plans' slots take, in bytes of the kind that `member` names; a text with the parts when `parts` is given.
  size_t SlotSum(size_t model::SlotMemory::*member, std::string* parts = nullptr) const;
  /// `cause` with what this model needs and what was in use before.
  absl::Status Refusal(const absl::Status& cause, const std::string& before, gpu::Device& device) const;

  const model::Model* model_ = nullptr;
  std::shared_ptr<const ServedModel> served_;
  std::unique_ptr<model::DeviceModel> device_model_;
  std::vector<std::vector<PreparedPlan>> plans_;
  std::vector<int64_t> plan_rows_;
  std::vector<RowChoice> row_choices_;  // One a shape bucket; none while plans are being built.
  absl::Duration unit_limit_;
  model::GraphDescription bound_graph_;
  std::array<int, kRequestClassCount> slot_counts_{};
  bool all_plans_built_ = false;
  size_t slot_bytes_ = 0;
  MovingAverage copy_in_time_;
};

}  // namespace sluice::server
