// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/convert.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "grpc/support/time.h"

namespace sluice::client {
namespace {

absl::Status CheckBytesElements(const Tensor& tensor, int64_t count) {
  size_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t length = 0;
    if (tensor.bytes.size() - at < sizeof(length)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name, "': element ", i, " of ", count, " has no complete length prefix"));
    }
    std::memcpy(&length, tensor.bytes.data() + at, sizeof(length));
    at += sizeof(length);
    if (tensor.bytes.size() - at < length) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "': element ", i, " is ", length,
                                                     " bytes long, but ", tensor.bytes.size() - at, " are left"));
    }
    at += length;
  }
  if (at != tensor.bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "': ", tensor.bytes.size() - at,
                                                   " bytes follow the last of its ", count, " elements"));
  }
  return absl::OkStatus();
}

absl::Duration TimingOf(const inference::ModelInferResponse& response, absl::string_view stage, bool& found) {
  const auto it = response.parameters().find(absl::StrCat("sluice_", stage, "_us"));
  if (it == response.parameters().end() || !it->second.has_int64_param()) return absl::ZeroDuration();
  found = true;
  return absl::Microseconds(it->second.int64_param());
}

}  // namespace

absl::StatusOr<int64_t> ElementCount(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(count, dimension, &count)) {
      return absl::InvalidArgumentError(absl::StrCat("shape [", absl::StrJoin(shape, ","), "] has no element count"));
    }
  }
  return count;
}

absl::Status CheckTensor(const Tensor& tensor) {
  const absl::StatusOr<int64_t> count = ElementCount(tensor.shape);
  if (!count.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "': ", count.status().message()));
  }
  if (tensor.type == DataType::kInvalid) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "' has no data type"));
  }
  if (tensor.type == DataType::kBytes) return CheckBytesElements(tensor, *count);
  int64_t expected = 0;
  if (__builtin_mul_overflow(*count, static_cast<int64_t>(ElementBytes(tensor.type)), &expected) ||
      static_cast<size_t>(expected) != tensor.bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "': ", WireName(tensor.type), " [",
                                                   absl::StrJoin(tensor.shape, ","), "] needs ", expected,
                                                   " bytes, but has ", tensor.bytes.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<inference::ModelInferRequest> BuildInferRequest(const std::string& model, std::vector<Tensor> inputs,
                                                               const InferOptions& options) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  request.set_model_version(options.model_version);
  request.set_id(options.id);
  if (options.priority != 0) (*request.mutable_parameters())["priority"].set_uint64_param(options.priority);
  if (options.timeout.has_value()) {
    (*request.mutable_parameters())["timeout"].set_int64_param(absl::ToInt64Microseconds(*options.timeout));
  }
  if (options.timings) (*request.mutable_parameters())["sluice_timings"].set_bool_param(true);
  for (Tensor& tensor : inputs) {
    if (absl::Status status = CheckTensor(tensor); !status.ok()) return status;
    auto* input = request.add_inputs();
    input->set_name(tensor.name);
    input->set_datatype(std::string(WireName(tensor.type)));
    input->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    *request.add_raw_input_contents() = std::move(tensor.bytes);
  }
  for (const std::string& name : options.outputs) request.add_outputs()->set_name(name);
  if (request.ByteSizeLong() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request is ", request.ByteSizeLong(), " bytes; a message carries at most 2147483647"));
  }
  return request;
}

std::optional<StageTimings> ReadStageTimings(const inference::ModelInferResponse& response) {
  bool found = false;
  StageTimings timings;
  timings.queue = TimingOf(response, "queue", found);
  timings.copy_in = TimingOf(response, "copy_in", found);
  timings.h2d = TimingOf(response, "h2d", found);
  timings.gpu_wait = TimingOf(response, "gpu_wait", found);
  timings.compute = TimingOf(response, "compute", found);
  timings.d2h = TimingOf(response, "d2h", found);
  timings.total = TimingOf(response, "total", found);
  if (!found) return std::nullopt;
  return timings;
}

std::optional<RequestClass> EffectiveClass(const inference::ModelInferResponse& response) {
  const auto it = response.parameters().find("sluice_class");
  if (it == response.parameters().end()) return std::nullopt;
  return ParseRequestClass(it->second.string_param());
}

absl::StatusOr<InferReply> ReadInferResponse(inference::ModelInferResponse response) {
  if (response.outputs_size() != response.raw_output_contents_size()) {
    return absl::InternalError(absl::StrCat("the response names ", response.outputs_size(), " outputs but carries ",
                                            response.raw_output_contents_size(), " raw contents"));
  }
  InferReply reply;
  reply.effective_class = EffectiveClass(response);
  reply.timings = ReadStageTimings(response);
  for (int i = 0; i < response.outputs_size(); ++i) {
    auto& output = *response.mutable_outputs(i);
    Tensor tensor;
    tensor.name = std::move(*output.mutable_name());
    tensor.type = ParseWireName(output.datatype()).value_or(DataType::kInvalid);
    tensor.shape.assign(output.shape().begin(), output.shape().end());
    tensor.bytes = std::move(*response.mutable_raw_output_contents(i));
    if (absl::Status status = CheckTensor(tensor); !status.ok()) {
      return absl::InternalError(absl::StrCat("the response is not consistent: ", status.message()));
    }
    reply.outputs.push_back(std::move(tensor));
  }
  reply.model_name = std::move(*response.mutable_model_name());
  reply.model_version = std::move(*response.mutable_model_version());
  reply.id = std::move(*response.mutable_id());
  return reply;
}

void PrepareContext(grpc::ClientContext& context, absl::Duration deadline, std::optional<RequestClass> request_class) {
  const absl::Duration bounded = std::clamp(deadline, absl::ZeroDuration(), absl::Hours(24 * 365));
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(absl::ToInt64Nanoseconds(bounded), GPR_TIMESPAN)));
  if (request_class.has_value()) {
    context.AddMetadata(kClassMetadata, std::string(RequestClassName(*request_class)));
  }
}

}  // namespace sluice::client
