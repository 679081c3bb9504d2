// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/repository/model_settings.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/data_type.h"
#include "base/status_macros.h"
#include "server/repository/class_settings.h"
#include "server/repository/refused_settings.h"
#include "server/repository/sluice_parameters.h"

namespace sluice::server {
namespace {

constexpr struct {
  DataType type;
  inference::DataType config_type;
} kConfigTypes[] = {
    {DataType::kBool, inference::TYPE_BOOL},     {DataType::kUint8, inference::TYPE_UINT8},
    {DataType::kUint16, inference::TYPE_UINT16}, {DataType::kUint32, inference::TYPE_UINT32},
    {DataType::kUint64, inference::TYPE_UINT64}, {DataType::kInt8, inference::TYPE_INT8},
    {DataType::kInt16, inference::TYPE_INT16},   {DataType::kInt32, inference::TYPE_INT32},
    {DataType::kInt64, inference::TYPE_INT64},   {DataType::kFp16, inference::TYPE_FP16},
    {DataType::kFp32, inference::TYPE_FP32},     {DataType::kFp64, inference::TYPE_FP64},
    {DataType::kBf16, inference::TYPE_BF16},     {DataType::kBytes, inference::TYPE_STRING},
};

inference::DataType ConfigType(DataType type) {
  for (const auto& entry : kConfigTypes) {
    if (entry.type == type) return entry.config_type;
  }
  return inference::TYPE_INVALID;
}

template <class Dims>
std::string DimsText(const Dims& dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ","), "]");
}

absl::Status Invalid(absl::string_view field, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("config.pbtxt: ", field, ": ", reason));
}

/// What messages call a tensor, so that inputs and outputs share their code.
template <class Declared>
constexpr absl::string_view kKind = "input";
template <>
constexpr absl::string_view kKind<inference::ModelOutput> = "output";

template <class Declared>
std::string FieldName(const std::string& name) {
  return absl::StrCat(kKind<Declared>, " '", name, "'");
}

/// Every declared tensor is one of the model's, and declared once.
template <class Declared>
absl::Status CheckNames(const google::protobuf::RepeatedPtrField<Declared>& declared,
                        const std::vector<model::TensorSignature>& tensors) {
  std::vector<std::string> seen;
  for (const Declared& tensor : declared) {
    if (tensor.name().empty()) return Invalid(kKind<Declared>, "each needs a name");
    const bool known = std::any_of(tensors.begin(), tensors.end(), [&tensor](const model::TensorSignature& signature) {
      return signature.name == tensor.name();
    });
    if (!known) {
      const std::string names =
          absl::StrJoin(tensors, ", ", [](std::string* out, const model::TensorSignature& signature) {
            absl::StrAppend(out, "'", signature.name, "'");
          });
      return Invalid(FieldName<Declared>(tensor.name()),
                     absl::StrCat("the model has no such ", kKind<Declared>, "; it has ", names));
    }
    if (std::find(seen.begin(), seen.end(), tensor.name()) != seen.end()) {
      return Invalid(FieldName<Declared>(tensor.name()), "declared twice");
    }
    seen.push_back(tensor.name());
  }
  return absl::OkStatus();
}

template <class Declared>
const Declared* FindDeclared(const google::protobuf::RepeatedPtrField<Declared>& declared, const std::string& name) {
  for (const Declared& tensor : declared) {
    if (tensor.name() == name) return &tensor;
  }
  return nullptr;
}

/// True when some tensor is declared with as many dimensions as the model gives it: then none of them is the batch's.
template <class Declared>
bool DeclaresFullRank(const google::protobuf::RepeatedPtrField<Declared>& declared,
                      const std::vector<model::TensorSignature>& tensors) {
  for (const model::TensorSignature& tensor : tensors) {
    const Declared* found = FindDeclared(declared, tensor.name);
    if (found != nullptr && found->dims_size() > 0 && static_cast<size_t>(found->dims_size()) == tensor.dims.size()) {
      return true;
    }
  }
  return false;
}

/// Null when every tensor begins with an open dimension.
const model::TensorSignature* FirstWithoutBatch(const model::Signature& signature) {
  for (const auto* tensors : {&signature.inputs, &signature.outputs}) {
    for (const model::TensorSignature& tensor : *tensors) {
      if (tensor.dims.empty() || tensor.dims[0] != -1) return &tensor;
    }
  }
  return nullptr;
}

absl::StatusOr<int64_t> FindMaxBatchSize(const ParsedConfig& parsed, const SluiceParameters& parameters,
                                         const model::Signature& signature, const SettingsOptions& options) {
  const inference::ModelConfig& config = parsed.config;
  const model::TensorSignature* unbatched = FirstWithoutBatch(signature);
  if (parsed.has_max_batch_size) {
    const int64_t size = config.max_batch_size();
    if (size < 0 || size > kMaxBatchSize) {
      return Invalid("max_batch_size", absl::StrCat("must be 0 to ", kMaxBatchSize, ", not ", size));
    }
    if (size > 0 && unbatched != nullptr) {
      return Invalid("max_batch_size", absl::StrCat(size, " needs an open first dimension in every input and output; '",
                                                    unbatched->name, "' has ", DimsText(unbatched->dims), ". Write 0"));
    }
    return size;
  }
  if (unbatched != nullptr || DeclaresFullRank(config.input(), signature.inputs) ||
      DeclaresFullRank(config.output(), signature.outputs)) {
    return 0;
  }
  return parameters.buckets.empty() ? options.default_max_batch_size : parameters.buckets.back();
}

absl::StatusOr<std::vector<int64_t>> FindBatchBuckets(const std::vector<int64_t>& given, int64_t max_batch_size) {
  if (!given.empty()) {
    if (max_batch_size == 0) {
      return Invalid("parameter 'sluice.buckets'", "the model has no batch dimension (max_batch_size is 0)");
    }
    if (given.back() > max_batch_size) {
      return Invalid("parameter 'sluice.buckets'", absl::StrCat("the largest must be at most max_batch_size (",
                                                                max_batch_size, "), not ", given.back()));
    }
    return given;
  }
  // Larger requests are cut into micro-batches, so the plans need not go all the way up.
  constexpr int64_t kLargestDefault = 8;
  std::vector<int64_t> buckets;
  const int64_t largest = std::min(max_batch_size, kLargestDefault);
  for (int64_t size = 1; size < largest; size *= 2) buckets.push_back(size);
  if (largest > 0) buckets.push_back(largest);
  return buckets;
}

absl::Status FillBatchRows(const std::optional<int64_t>& given, ModelSettings& settings) {
  if (!given) return absl::OkStatus();
  if (settings.max_batch_size == 0) {
    return Invalid("parameter 'sluice.batch_rows'", "the model has no batch dimension (max_batch_size is 0)");
  }
  const std::vector<int64_t>& buckets = settings.batch_buckets;
  if (std::find(buckets.begin(), buckets.end(), *given) == buckets.end()) {
    return Invalid("parameter 'sluice.batch_rows'",
                   absl::StrCat("expected one of the batch sizes ", absl::StrJoin(buckets, ","), ", got ", *given));
  }
  settings.batch_rows = given;
  return absl::OkStatus();
}

/// Completes one tensor's declaration from the model, or says where they differ. `first` is 1 when the model's first
/// dimension is the batch's, which declarations leave out.
template <class Declared>
absl::Status CompleteTensor(const model::TensorSignature& tensor, size_t first, Declared& declared) {
  const std::string field = FieldName<Declared>(tensor.name);
  const inference::DataType type = ConfigType(tensor.type);
  if (declared.data_type() != inference::TYPE_INVALID && declared.data_type() != type) {
    return Invalid(field, absl::StrCat("data_type: expected ", inference::DataType_Name(type), ", got ",
                                       inference::DataType_Name(declared.data_type())));
  }
  const model::Shape own(tensor.dims.begin() + static_cast<std::ptrdiff_t>(first), tensor.dims.end());
  bool fits = declared.dims_size() == 0 || static_cast<size_t>(declared.dims_size()) == own.size();
  for (int i = 0; fits && i < declared.dims_size(); ++i) {
    const int64_t dim = declared.dims(i);
    const int64_t expected = own[static_cast<size_t>(i)];
    fits = expected == -1 ? dim == -1 || dim >= 1 : dim == expected;
  }
  if (!fits) {
    return Invalid(field, absl::StrCat("dims: expected ", DimsText(own), first == 1 ? " (without the batch)" : "",
                                       ", got ", DimsText(declared.dims())));
  }
  declared.set_name(tensor.name);
  declared.set_data_type(type);
  if (declared.dims_size() == 0) declared.mutable_dims()->Add(own.begin(), own.end());
  return absl::OkStatus();
}

/// Rewrites `declared` as all of `tensors` in their order, and gives what clients see.
template <class Declared>
absl::StatusOr<std::vector<ServedTensor>> CompleteTensors(const std::vector<model::TensorSignature>& tensors,
                                                          bool batched,
                                                          google::protobuf::RepeatedPtrField<Declared>& declared) {
  SLUICE_RETURN_IF_ERROR(CheckNames(declared, tensors));
  google::protobuf::RepeatedPtrField<Declared> completed;
  std::vector<ServedTensor> served;
  for (const model::TensorSignature& tensor : tensors) {
    Declared& entry = *completed.Add();
    if (const Declared* found = FindDeclared(declared, tensor.name)) entry = *found;
    SLUICE_RETURN_IF_ERROR(CompleteTensor(tensor, batched ? 1 : 0, entry));
    ServedTensor& out = served.emplace_back(ServedTensor{tensor.name, tensor.type, {}});
    if (batched) out.dims.push_back(-1);
    out.dims.insert(out.dims.end(), entry.dims().begin(), entry.dims().end());
  }
  declared.Swap(&completed);
  return served;
}

/// One bucket of input shapes: everything but the batch must be fixed before a plan can be made.
absl::StatusOr<std::vector<model::Shape>> FixedShapes(const std::vector<ServedTensor>& inputs, bool batched) {
  std::vector<model::Shape> shapes;
  for (const ServedTensor& input : inputs) {
    model::Shape& shape = shapes.emplace_back(input.dims.begin() + (batched ? 1 : 0), input.dims.end());
    const auto open = std::find(shape.begin(), shape.end(), -1);
    if (open == shape.end()) continue;
    return Invalid(absl::StrCat("input '", input.name, "'"),
                   absl::StrCat("dims: dimension ", open - shape.begin(), " of ", DimsText(shape),
                                " is open; a plan needs its size, so write it in config.pbtxt"));
  }
  return shapes;
}

absl::Status FillPlacement(const SettingsOptions& options, ModelSettings& settings) {
  inference::ModelConfig& config = settings.config;
  if (config.instance_group_size() == 0) config.add_instance_group();
  inference::ModelInstanceGroup& group = *config.mutable_instance_group(0);
  if (group.count() < 0) return Invalid("instance_group.count", absl::StrCat("must not be ", group.count()));
  if (group.kind() == inference::ModelInstanceGroup::KIND_GPU) {
    if (!options.has_gpu) {
      return absl::FailedPreconditionError(
          "config.pbtxt: instance_group.kind: KIND_GPU, but this server uses no GPU; write KIND_CPU or KIND_AUTO");
    }
    settings.placement = Placement::kGpu;
  } else if (group.kind() == inference::ModelInstanceGroup::KIND_CPU) {
    if (group.gpus_size() > 0) return Invalid("instance_group.gpus", "cannot be given with KIND_CPU");
    settings.placement = Placement::kHost;
  } else {
    if (group.gpus_size() > 0 && !options.has_gpu) {
      return absl::FailedPreconditionError("config.pbtxt: instance_group.gpus: this server uses no GPU");
    }
    group.set_kind(options.has_gpu ? inference::ModelInstanceGroup::KIND_GPU : inference::ModelInstanceGroup::KIND_CPU);
  }
  for (const int gpu : group.gpus()) {
    if (gpu < 0) return Invalid("instance_group.gpus", absl::StrCat("must not be ", gpu));
    settings.gpus.push_back(gpu);
  }
  if (group.name().empty()) group.set_name(absl::StrCat(config.name(), "_0"));
  if (group.count() == 0) group.set_count(1);
  return absl::OkStatus();
}

/// Name, platform and backend. The names of the server most repositories were written for are accepted and kept.
absl::Status CompleteIdentity(absl::string_view name, inference::ModelConfig& config) {
  if (!config.name().empty() && config.name() != name) {
    return Invalid("name", absl::StrCat("expected '", name, "', as the folder is called, got '", config.name(), "'"));
  }
  config.set_name(std::string(name));
  const std::string platform = config.platform();
  if (!platform.empty() && platform != "sluice_onnx" && platform != "onnxruntime_onnx") {
    return Invalid("platform", absl::StrCat("'", platform, "': Sluice runs ONNX models; write 'sluice_onnx'"));
  }
  const std::string backend = config.backend();
  if (!backend.empty() && backend != "sluice" && backend != "onnxruntime") {
    return Invalid("backend", absl::StrCat("'", backend, "': Sluice runs ONNX models; write 'sluice'"));
  }
  if (platform.empty()) config.set_platform(backend == "onnxruntime" ? "onnxruntime_onnx" : "sluice_onnx");
  if (backend.empty()) config.set_backend(platform == "onnxruntime_onnx" ? "onnxruntime" : "sluice");
  if (config.version_policy().policy_choice_case() == inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET) {
    config.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  }
  if (config.default_model_filename().empty()) config.set_default_model_filename("model.onnx");
  return absl::OkStatus();
}

absl::Status Fill(absl::string_view name, const ParsedConfig& parsed, const model::Signature& signature,
                  const SettingsOptions& options, ModelSettings& settings) {
  settings.config = parsed.config;
  SLUICE_RETURN_IF_ERROR(CompleteIdentity(name, settings.config));
  SLUICE_RETURN_IF_ERROR(CheckRefusedSettings(settings.config, settings.warnings));
  SLUICE_ASSIGN_OR_RETURN(const SluiceParameters parameters, ParseSluiceParameters(settings.config));
  settings.warnings.insert(settings.warnings.end(), parameters.warnings.begin(), parameters.warnings.end());
  SLUICE_ASSIGN_OR_RETURN(settings.max_batch_size, FindMaxBatchSize(parsed, parameters, signature, options));
  settings.config.set_max_batch_size(static_cast<int32_t>(settings.max_batch_size));
  const bool batched = settings.max_batch_size > 0;
  SLUICE_ASSIGN_OR_RETURN(settings.batch_buckets, FindBatchBuckets(parameters.buckets, settings.max_batch_size));
  settings.precision = parameters.precision;
  SLUICE_RETURN_IF_ERROR(FillBatchRows(parameters.batch_rows, settings));
  SLUICE_ASSIGN_OR_RETURN(settings.inputs,
                          CompleteTensors(signature.inputs, batched, *settings.config.mutable_input()));
  SLUICE_ASSIGN_OR_RETURN(settings.outputs,
                          CompleteTensors(signature.outputs, batched, *settings.config.mutable_output()));
  SLUICE_ASSIGN_OR_RETURN(std::vector<model::Shape> shapes, FixedShapes(settings.inputs, batched));
  settings.shape_buckets.push_back(std::move(shapes));
  SLUICE_RETURN_IF_ERROR(FillPlacement(options, settings));
  settings.slots[static_cast<size_t>(RequestClass::kLatency)] = options.latency_slots;
  SLUICE_RETURN_IF_ERROR(FillClassSettings(parameters, settings));
  const std::array<int, kRequestClassCount>& slots = settings.slots;
  if (settings.batch_rows && slots[static_cast<size_t>(RequestClass::kStandard)] == 0 &&
      slots[static_cast<size_t>(RequestClass::kBatch)] == 0) {
    settings.warnings.push_back("parameter 'sluice.batch_rows' changes nothing: only class latency is allowed");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSettings> MakeModelSettings(absl::string_view name, const ParsedConfig* parsed,
                                                const model::Signature& signature, const SettingsOptions& options) {
  ModelSettings settings;
  const absl::Status status = Fill(name, parsed != nullptr ? *parsed : ParsedConfig(), signature, options, settings);
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat("model '", name, "': ", status.message()));
  return settings;
}

std::shared_ptr<const ServedModel> ModelSettings::MakeServedModel(ModelId id, int64_t version) const {
  auto served = std::make_shared<ServedModel>();
  served->id = id;
  served->name = config.name();
  served->version = version;
  served->inputs = inputs;
  served->outputs = outputs;
  served->max_batch_size = max_batch_size;
  served->shape_buckets = shape_buckets;
  served->config = config;
  served->class_rules = class_rules;
  served->queue_rules = queue_rules;
  served->class_queue_rules = class_queue_rules;
  return served;
}

}  // namespace sluice::server
