// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/repository/refused_settings.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace sluice::server {
namespace {

absl::Status Refuse(absl::string_view setting, absl::string_view reason) {
  return absl::UnimplementedError(absl::StrCat("config.pbtxt: ", setting, ": ", reason));
}

struct Check {
  absl::string_view setting;
  bool present;
  absl::string_view reason;
};

template <size_t kCount>
absl::Status FirstPresent(const Check (&checks)[kCount]) {
  for (const Check& check : checks) {
    if (check.present) return Refuse(check.setting, check.reason);
  }
  return absl::OkStatus();
}

absl::Status CheckScheduling(const inference::ModelConfig& config) {
  const inference::ModelDynamicBatching& batching = config.dynamic_batching();
  return FirstPresent({
      {"sequence_batching", config.has_sequence_batching(), "sequences are not served"},
      {"ensemble_scheduling", config.has_ensemble_scheduling(), "ensembles are not served"},
      {"model_transaction_policy.decoupled", config.model_transaction_policy().decoupled(),
       "every request gets exactly one response"},
      {"dynamic_batching.preserve_ordering", batching.preserve_ordering(), "responses may overtake each other"},
      {"batch_input", config.batch_input_size() > 0, "inputs made from the batch are not supported"},
      {"batch_output", config.batch_output_size() > 0, "outputs scattered over the batch are not supported"},
  });
}

absl::Status CheckExtras(const inference::ModelConfig& config) {
  const inference::ModelOptimizationPolicy& optimization = config.optimization();
  return FirstPresent({
      {"response_cache.enable", config.response_cache().enable(), "responses are not cached"},
      {"model_warmup", config.model_warmup_size() > 0, "every plan is warmed up already when the model is loaded"},
      {"model_operations", config.has_model_operations(), "operator libraries are not loaded"},
      {"model_repository_agents", config.has_model_repository_agents(), "agents are not run"},
      {"model_metrics", config.has_model_metrics(), "metrics are the same for all models"},
      {"runtime", !config.runtime().empty(), "there is one runtime"},
      {"cc_model_filenames", !config.cc_model_filenames().empty(), "use default_model_filename"},
      {"optimization.execution_accelerators", optimization.has_execution_accelerators(), "there are none"},
  });
}

absl::Status CheckTensors(const inference::ModelConfig& config) {
  for (const inference::ModelInput& input : config.input()) {
    const auto name = [&input](absl::string_view field) { return absl::StrCat("input '", input.name(), "' ", field); };
    if (input.has_reshape()) return Refuse(name("reshape"), "dims must be the model's own");
    if (input.is_shape_tensor()) return Refuse(name("is_shape_tensor"), "an ONNX model has none");
    if (input.allow_ragged_batch())
      return Refuse(name("allow_ragged_batch"), "requests of one batch share their shape");
    if (input.optional()) return Refuse(name("optional"), "every input is required");
    if (input.is_non_linear_format_io()) return Refuse(name("is_non_linear_format_io"), "tensors are row-major");
  }
  for (const inference::ModelOutput& output : config.output()) {
    const auto name = [&output](absl::string_view field) {
      return absl::StrCat("output '", output.name(), "' ", field);
    };
    if (output.has_reshape()) return Refuse(name("reshape"), "dims must be the model's own");
    if (output.is_shape_tensor()) return Refuse(name("is_shape_tensor"), "an ONNX model has none");
    if (output.is_non_linear_format_io()) return Refuse(name("is_non_linear_format_io"), "tensors are row-major");
  }
  return absl::OkStatus();
}

absl::Status CheckInstanceGroup(const inference::ModelConfig& config) {
  if (config.instance_group_size() > 1) return Refuse("instance_group", "one group places the model");
  for (const inference::ModelInstanceGroup& group : config.instance_group()) {
    SLUICE_RETURN_IF_ERROR(FirstPresent({
        {"instance_group.kind", group.kind() == inference::ModelInstanceGroup::KIND_MODEL,
         "KIND_MODEL is for models that place themselves"},
        {"instance_group.profile", group.profile_size() > 0,
         "optimization profiles are TensorRT's; see sluice.buckets"},
        {"instance_group.rate_limiter", group.has_rate_limiter(), "the gate shares the device"},
        {"instance_group.passive", group.passive(), "every instance answers requests"},
        {"instance_group.secondary_devices", group.secondary_devices_size() > 0, "a model uses one device"},
        {"instance_group.host_policy", !group.host_policy().empty(), "there are no host policies"},
    }));
  }
  return absl::OkStatus();
}

void CollectWarnings(const inference::ModelConfig& config, std::vector<std::string>& warnings) {
  const inference::ModelOptimizationPolicy& optimization = config.optimization();
  const Check checks[] = {
      {"metric_tags", !config.metric_tags().empty(), "metrics have no tags"},
      {"optimization.graph", optimization.has_graph(), "plans are always optimized"},
      {"optimization.cuda", optimization.has_cuda(), "graphs are used wherever they help"},
      {"optimization.input_pinned_memory", optimization.has_input_pinned_memory(), "inputs are always pinned"},
      {"optimization.output_pinned_memory", optimization.has_output_pinned_memory(), "outputs are always pinned"},
      {"optimization.gather_kernel_buffer_threshold", optimization.gather_kernel_buffer_threshold() != 0,
       "inputs are gathered by the host"},
      {"optimization.eager_batching", optimization.eager_batching(), "a batch never waits when nothing else does"},
  };
  for (const Check& check : checks) {
    if (check.present) warnings.push_back(absl::StrCat(check.setting, " changes nothing: ", check.reason));
  }
  for (const inference::ModelOutput& output : config.output()) {
    if (output.label_filename().empty()) continue;
    warnings.push_back(
        absl::StrCat("output '", output.name(), "' label_filename changes nothing: results have no labels"));
  }
  for (const inference::ModelInstanceGroup& group : config.instance_group()) {
    if (group.count() <= 1) continue;
    warnings.push_back("instance_group.count changes nothing: sluice.slots says how many executions run at once");
  }
}

}  // namespace

absl::Status CheckRefusedSettings(const inference::ModelConfig& config, std::vector<std::string>& warnings) {
  SLUICE_RETURN_IF_ERROR(CheckScheduling(config));
  SLUICE_RETURN_IF_ERROR(CheckExtras(config));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config));
  SLUICE_RETURN_IF_ERROR(CheckInstanceGroup(config));
  CollectWarnings(config, warnings);
  return absl::OkStatus();
}

}  // namespace sluice::server
