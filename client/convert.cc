// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/convert.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace sluice::client {
namespace {

absl::Status CheckBytesElements(const TensorView& tensor, int64_t count) {
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

TensorView ViewOf(const Tensor& tensor, std::shared_ptr<const void> owner) {
  return {tensor.name, tensor.type, tensor.shape, tensor.bytes, std::move(owner)};
}

absl::StatusOr<int64_t> ElementCount(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(count, dimension, &count)) {
      return absl::InvalidArgumentError(absl::StrCat("shape [", absl::StrJoin(shape, ","), "] has no element count"));
    }
  }
  return count;
}

absl::Status CheckTensor(const TensorView& tensor) {
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

namespace {

/// Field number and wire type (length-delimited).
constexpr uint32_t kRawInputContentsTag = (inference::ModelInferRequest::kRawInputContentsFieldNumber << 3) | 2;
constexpr int64_t kLargestMessage = std::numeric_limits<int32_t>::max();

absl::Status CheckSize(size_t bytes) {
  if (bytes <= static_cast<size_t>(kLargestMessage)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the request is ", bytes, " bytes; a message carries at most ", kLargestMessage));
}

/// Everything but the tensors' bytes.
absl::StatusOr<inference::ModelInferRequest> BuildHead(const std::string& model, const std::vector<TensorView>& inputs,
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
  for (const TensorView& tensor : inputs) {
    if (absl::Status status = CheckTensor(tensor); !status.ok()) return status;
    auto* input = request.add_inputs();
    input->set_name(tensor.name);
    input->set_datatype(std::string(WireName(tensor.type)));
    input->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  for (const std::string& name : options.outputs) request.add_outputs()->set_name(name);
  return request;
}

/// The tensor's bytes as a slice that keeps their owner.
grpc::Slice SliceOf(const TensorView& tensor) {
  // gRPC does not write to it.
  return grpc::Slice(
      const_cast<char*>(tensor.bytes.data()), tensor.bytes.size(),
      [](void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); },
      new std::shared_ptr<const void>(tensor.owner));
}

}  // namespace

absl::StatusOr<inference::ModelInferRequest> BuildInferRequest(const std::string& model, std::vector<Tensor> inputs,
                                                               const InferOptions& options) {
  std::vector<TensorView> views;
  for (const Tensor& tensor : inputs) views.push_back(ViewOf(tensor));
  SLUICE_ASSIGN_OR_RETURN(inference::ModelInferRequest request, BuildHead(model, views, options));
  for (Tensor& tensor : inputs) *request.add_raw_input_contents() = std::move(tensor.bytes);
  SLUICE_RETURN_IF_ERROR(CheckSize(request.ByteSizeLong()));
  return request;
}

absl::StatusOr<std::vector<grpc::Slice>> EncodeInferRequest(const std::string& model,
                                                            const std::vector<TensorView>& inputs,
                                                            const InferOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const inference::ModelInferRequest request, BuildHead(model, inputs, options));
  std::vector<grpc::Slice> slices;
  std::string head = request.SerializeAsString();  // the raw contents have the highest number, so they come last
  size_t bytes = 0;
  for (const TensorView& tensor : inputs) {
    {
      google::protobuf::io::StringOutputStream stream(&head);
      google::protobuf::io::CodedOutputStream out(&stream);
      out.WriteTag(kRawInputContentsTag);
      out.WriteVarint64(tensor.bytes.size());
    }
    bytes += head.size() + tensor.bytes.size();
    slices.emplace_back(head);
    head.clear();
    if (!tensor.bytes.empty()) slices.push_back(SliceOf(tensor));
  }
  if (!head.empty()) slices.emplace_back(head);
  SLUICE_RETURN_IF_ERROR(CheckSize(bytes + head.size()));
  return slices;
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
    if (absl::Status status = CheckTensor(ViewOf(tensor)); !status.ok()) {
      return absl::InternalError(absl::StrCat("the response is not consistent: ", status.message()));
    }
    reply.outputs.push_back(std::move(tensor));
  }
  reply.model_name = std::move(*response.mutable_model_name());
  reply.model_version = std::move(*response.mutable_model_version());
  reply.id = std::move(*response.mutable_id());
  return reply;
}

gpr_timespec MonotonicDeadline(absl::Duration wait) {
  const absl::Duration bounded = std::clamp(wait, absl::ZeroDuration(), absl::Hours(24 * 365));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(bounded), GPR_TIMESPAN));
}

void PrepareContext(grpc::ClientContext& context, absl::Duration deadline, std::optional<RequestClass> request_class) {
  context.set_deadline(MonotonicDeadline(deadline));
  if (request_class.has_value()) {
    context.AddMetadata(kClassMetadata, std::string(RequestClassName(*request_class)));
  }
}

}  // namespace sluice::client
