// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "base/request_class.h"
#include "model/model.h"
#include "model_config.pb.h"
#include "server/repository/config_pbtxt.h"
#include "server/served_model.h"

namespace sluice::server {

/// Where instance_group puts a model.
enum class Placement : uint8_t { kAuto, kHost, kGpu };

struct SettingsOptions {
  bool has_gpu = false;                ///< A CUDA device is in use.
  int64_t default_max_batch_size = 8;  ///< For a model that can be batched and whose config does not say how far.
  int latency_slots = 2;               ///< Unless sluice.slots says it: as many as there are threads to use them.
};

/// Everything config.pbtxt and the model's signature together say about one model: completed, checked, with no
/// contradictions left.
struct ModelSettings {
  inference::ModelConfig config;     ///< Auto-completed.
  int64_t max_batch_size = 0;        ///< 0: no batch dimension.
  std::vector<ServedTensor> inputs;  ///< In the signature's order, as are outputs.
  std::vector<ServedTensor> outputs;
  std::vector<std::vector<std::vector<int64_t>>> shape_buckets;  ///< As ServedModel::shape_buckets.
  std::vector<int64_t> batch_buckets;  ///< Ascending, at most max_batch_size; empty without a batch dimension.
  model::Precision precision = model::Precision::kFp32;
  std::optional<int64_t> batch_rows;  ///< The batch bucket that standard and batch work runs in; else it is measured.
  std::array<int, kRequestClassCount> slots = {2, 1, 2};  ///< By class; 0 for a class that is not allowed.
  ClassRules class_rules;
  QueueRules queue_rules;
  std::array<std::optional<QueueRules>, kRequestClassCount> class_queue_rules;
  Placement placement = Placement::kAuto;
  std::vector<int> gpus;              ///< instance_group.gpus; empty: any.
  std::vector<std::string> warnings;  ///< Settings that are read but change nothing here; for the log.

  /// The snapshot that requests hold.
  std::shared_ptr<const ServedModel> MakeServedModel(ModelId id, int64_t version) const;
};

/// Completes `parsed` (null: there is no config.pbtxt) for the model folder `name` from the signature, and checks it.
/// INVALID_ARGUMENT for what contradicts the model or itself, UNIMPLEMENTED for features Sluice does not have,
/// FAILED_PRECONDITION for a device that is not there; messages name the field, what was expected and what came. Pure.
///
/// How max_batch_size is found when config.pbtxt does not say it: 0 when a tensor is declared there with as many
/// dimensions as the model gives it; otherwise, when every input and output of the model begins with an open dimension,
/// that is the batch dimension and the largest of sluice.buckets (or default_max_batch_size) is its bound; otherwise 0.
/// A written 0 is obeyed.
absl::StatusOr<ModelSettings> MakeModelSettings(absl::string_view name, const ParsedConfig* parsed,
                                                const model::Signature& signature, const SettingsOptions& options);

}  // namespace sluice::server
