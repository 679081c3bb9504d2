// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/convert.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "server/rpc/quote.h"
#include "server/rpc/request_parameters.h"
#include "server/rpc/tensor_checks.h"

namespace sluice::rpc {
namespace {

using server::RequestInput;
using server::ServedModel;
using server::ServedTensor;

/// A message lists no more names than this.
constexpr size_t kListedNames = 16;

template <class List>
std::string Names(const List& list) {
  std::vector<std::string> names;
  for (const auto& entry : list) {
    if (names.size() == kListedNames) {
      names.push_back(absl::StrCat("and ", list.size() - kListedNames, " more"));
      break;
    }
    names.push_back(Quote(entry.name));
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

std::optional<size_t> IndexOf(const std::vector<ServedTensor>& tensors, absl::string_view name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [name](const ServedTensor& tensor) { return tensor.name == name; });
  if (found == tensors.end()) return std::nullopt;
  return static_cast<size_t>(found - tensors.begin());
}

std::string InputText(absl::string_view name) { return absl::StrCat("input ", Quote(name)); }

/// For each input of the model, where it is in the request.
absl::StatusOr<std::vector<size_t>> MatchInputs(const ParsedRequest& parsed, const ServedModel& model) {
  constexpr size_t kAbsent = static_cast<size_t>(-1);
  std::vector<size_t> order(model.inputs.size(), kAbsent);
  for (size_t i = 0; i < parsed.inputs.size(); ++i) {
    const std::string& name = parsed.inputs[i].name;
    const std::optional<size_t> index = IndexOf(model.inputs, name);
    if (!index.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown ", InputText(name), " for model ", Quote(model.name),
                                                     "; expected ", Names(model.inputs), "; got ",
                                                     Names(parsed.inputs)));
    }
    if (order[*index] != kAbsent) {
      return absl::InvalidArgumentError(absl::StrCat(InputText(name), " is given more than once"));
    }
    order[*index] = i;
  }
  std::vector<ServedTensor> missing;
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] == kAbsent) missing.push_back(model.inputs[i]);
  }
  if (missing.empty()) return order;
  return absl::InvalidArgumentError(absl::StrCat("expected ", model.inputs.size(), " inputs for model ",
                                                 Quote(model.name), ", got ", Names(parsed.inputs), "; missing ",
                                                 Names(missing)));
}

absl::Status CheckDataType(const ParsedInput& input, const ServedTensor& tensor) {
  const std::optional<DataType> type = ParseWireName(input.datatype);
  if (type == tensor.type) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(InputText(input.name), ": expected datatype ", WireName(tensor.type),
                                                 ", got ", type.has_value() ? input.datatype : Quote(input.datatype)));
}

/// Batch dimension of all inputs together; they must agree.
absl::StatusOr<int64_t> CheckRows(const ParsedRequest& parsed, const ServedModel& model,
                                  const std::vector<size_t>& order) {
  if (model.max_batch_size == 0) return 1;
  if (order.empty()) return 1;
  const ParsedInput& first = parsed.inputs[order[0]];
  const int64_t rows = first.shape[0];
  for (const size_t index : order) {
    const ParsedInput& input = parsed.inputs[index];
    if (input.shape[0] != rows) {
      return absl::InvalidArgumentError(absl::StrCat(InputText(input.name), ": expected batch size ", rows, " as ",
                                                     InputText(first.name), " has, got ", input.shape[0]));
    }
  }
  if (rows >= 1 && rows <= model.max_batch_size) return rows;
  return absl::InvalidArgumentError(absl::StrCat(InputText(first.name), ": expected a batch size of 1 to ",
                                                 model.max_batch_size, " for model ", Quote(model.name), ", got ",
                                                 rows));
}

absl::Status CheckShapes(const ParsedRequest& parsed, const ServedModel& model, const std::vector<size_t>& order,
                         server::InferRequest& request) {
  const bool has_batch = model.max_batch_size > 0;
  std::vector<std::span<const int64_t>> shapes;
  for (size_t i = 0; i < order.size(); ++i) {
    const ParsedInput& input = parsed.inputs[order[i]];
    SLUICE_RETURN_IF_ERROR(CheckDataType(input, model.inputs[i]));
    SLUICE_RETURN_IF_ERROR(CheckShape(input.shape, model.inputs[i], has_batch, InputText(input.name)));
    std::span<const int64_t> shape = input.shape;
    if (has_batch && shape.empty()) {
      return absl::InternalError(
          absl::StrCat("model ", Quote(model.name), " declares no batch dimension for ", InputText(input.name)));
    }
    shapes.push_back(has_batch ? shape.subspan(1) : shape);
  }
  SLUICE_ASSIGN_OR_RETURN(request.rows, CheckRows(parsed, model, order));
  SLUICE_ASSIGN_OR_RETURN(request.shape_bucket, FindBucket(model, shapes));
  return absl::OkStatus();
}

/// The places in shared memory that the inputs' parameters name.
absl::Status TakeInputRegions(const ParsedRequest& parsed, const std::vector<size_t>& order,
                              const server::SharedMemoryRegions* regions, server::InferRequest& request) {
  request.inputs.clear();
  request.inputs.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const ParsedInput& input = parsed.inputs[order[i]];
    SLUICE_ASSIGN_OR_RETURN(request.inputs[i].region,
                            ReadTensorParameters(input.parameters, regions, InputText(input.name)));
  }
  return absl::OkStatus();
}

/// Of an input whose parameters have been read.
bool InRegion(const ParsedInput& input) {
  return !input.parameters.empty() && input.parameters.contains(std::string(kSharedMemoryRegion));
}

/// Exactly one source for all inputs outside shared memory together: raw entries, one per input, or typed contents.
absl::Status CheckSources(const ParsedRequest& parsed) {
  const bool has_raw_inputs = !parsed.raw_inputs.empty();
  size_t in_message = 0;
  for (const ParsedInput& input : parsed.inputs) {
    const bool in_region = InRegion(input);
    if (!in_region) ++in_message;
    const char* problem = nullptr;
    if (in_region && input.contents.present) {
      problem = ": has contents beside parameter 'shared_memory_region'; use one of the two";
    } else if (input.contents.present && has_raw_inputs) {
      problem = ": has contents while raw_input_contents is not empty; use one of the two";
    } else if (!in_region && !input.contents.present && !has_raw_inputs) {
      problem = ": has no data in raw_input_contents or contents";
    }
    if (problem != nullptr) return absl::InvalidArgumentError(absl::StrCat(InputText(input.name), problem));
  }
  if (!has_raw_inputs || parsed.raw_inputs.size() == in_message) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "expected ", in_message, " entries in raw_input_contents, one per input",
      in_message < parsed.inputs.size() ? " outside shared memory" : "", ", got ", parsed.raw_inputs.size()));
}

/// Raw entries belong to the inputs outside shared memory, in order. Afterwards each input of the request has one, if
/// an empty one, in its own place.
void SpreadRawInputs(ParsedRequest& parsed) {
  if (parsed.raw_inputs.empty() || parsed.raw_inputs.size() == parsed.inputs.size()) return;
  std::vector<std::vector<Bytes>> spread(parsed.inputs.size());
  size_t next = 0;
  for (size_t i = 0; i < spread.size(); ++i) {
    if (!InRegion(parsed.inputs[i])) spread[i] = std::move(parsed.raw_inputs[next++]);
  }
  parsed.raw_inputs = std::move(spread);
}

absl::Status CheckRawBytes(const ServedTensor& tensor, const RequestInput& input, size_t bytes) {
  // The shape has passed CheckShape and FindBucket: the product fits and is the size of a served tensor.
  const int64_t elements = ElementCount(input.shape).value_or(0);
  if (tensor.type == DataType::kBytes && input.region) {
    // Its elements could change after they were checked, and no model that is served takes any.
    return absl::UnimplementedError(absl::StrCat(InputText(tensor.name), ": BYTES are not read from shared memory"));
  }
  if (tensor.type == DataType::kBytes) {
    const absl::Status status = CheckBytesElements(input.pieces, elements);
    if (status.ok()) return status;
    return absl::InvalidArgumentError(
        absl::StrCat(InputText(tensor.name), ": shape ", ShapeText(input.shape), ": ", status.message()));
  }
  size_t expected = 0;
  const bool fits = !__builtin_mul_overflow(static_cast<size_t>(elements), ElementBytes(tensor.type), &expected);
  if (fits && bytes == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(InputText(tensor.name), ": expected ", expected, " bytes for shape ",
                                                 ShapeText(input.shape), " of ", WireName(tensor.type), ", got ", bytes,
                                                 input.region ? " in shared_memory_byte_size" : ""));
}

/// Moves shape and data of one input into its place.
absl::Status TakeInput(ParsedRequest& parsed, size_t index, const ServedTensor& tensor, RequestInput& input,
                       Conversion& conversion) {
  ParsedInput& from = parsed.inputs[index];
  input.shape = std::move(from.shape);
  if (input.region) return absl::OkStatus();
  if (!parsed.raw_inputs.empty()) {
    input.pieces = std::move(parsed.raw_inputs[index]);
    return absl::OkStatus();
  }
  const int64_t elements = ElementCount(input.shape).value_or(0);
  std::string& bytes = conversion.decoded.emplace_back();
  const absl::Status status = DecodeContents(from.contents, tensor.type, elements, bytes);
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(InputText(tensor.name), ": ", status.message()));
  if (!bytes.empty()) input.pieces = {Bytes(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size())};
  return absl::OkStatus();
}

absl::Status TakeInputs(ParsedRequest& parsed, const ServedModel& model, const std::vector<size_t>& order,
                        server::InferRequest& request, Conversion& conversion) {
  SpreadRawInputs(parsed);
  request.bytes = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    RequestInput& input = request.inputs[i];
    SLUICE_RETURN_IF_ERROR(TakeInput(parsed, order[i], model.inputs[i], input, conversion));
    size_t bytes = input.region.byte_size;
    for (const Bytes& piece : input.pieces) bytes += piece.size();
    SLUICE_RETURN_IF_ERROR(CheckRawBytes(model.inputs[i], input, bytes));
    request.bytes += bytes;
  }
  return absl::OkStatus();
}

absl::Status TakeOutputs(const ParsedRequest& parsed, const ServedModel& model,
                         const server::SharedMemoryRegions* regions, server::InferRequest& request) {
  std::vector<size_t>& requested = request.requested_outputs;
  requested.clear();
  request.output_regions.clear();
  for (const ParsedOutput& output : parsed.outputs) {
    const std::string where = absl::StrCat("output ", Quote(output.name));
    const std::optional<size_t> index = IndexOf(model.outputs, output.name);
    if (!index.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown ", where, " for model ", Quote(model.name),
                                                     "; expected some of ", Names(model.outputs), "; got ",
                                                     Names(parsed.outputs)));
    }
    if (std::find(requested.begin(), requested.end(), *index) != requested.end()) {
      return absl::InvalidArgumentError(absl::StrCat(where, " is asked for more than once"));
    }
    SLUICE_ASSIGN_OR_RETURN(server::SharedMemorySlice region, ReadTensorParameters(output.parameters, regions, where));
    requested.push_back(*index);
    if (region) {
      request.output_regions.resize(parsed.outputs.size());
      request.output_regions[requested.size() - 1] = std::move(region);
    }
  }
  if (!parsed.outputs.empty()) return absl::OkStatus();
  for (size_t i = 0; i < model.outputs.size(); ++i) requested.push_back(i);
  return absl::OkStatus();
}

absl::Status TakeClass(const ServedModel& model, const ClassWishes& wishes, const RequestPolicy& policy,
                       server::InferRequest& request, Conversion& conversion) {
  conversion.decision = DecideClass(model.class_rules, wishes);
  request.request_class = conversion.decision.used;
  if (!conversion.decision.demoted() || !policy.strict_class) return absl::OkStatus();
  std::vector<absl::string_view> allowed;
  for (const RequestClass request_class : model.class_rules.allowed) allowed.push_back(RequestClassName(request_class));
  return absl::InvalidArgumentError(absl::StrCat("model ", Quote(model.name), " does not allow class ",
                                                 RequestClassName(conversion.decision.wished), "; it allows ",
                                                 absl::StrJoin(allowed, ", ")));
}

/// A request may shorten the model's queue limit, never lengthen it.
Time QueueDeadline(const server::QueueRules& rules, const std::optional<absl::Duration>& timeout, Time arrival) {
  absl::Duration limit = rules.default_timeout;
  if (rules.allow_timeout_override && timeout.has_value() && *timeout > absl::ZeroDuration()) {
    limit = std::min(limit, *timeout);
  }
  return arrival + limit;
}

}  // namespace

absl::Status ConvertRequest(ParsedRequest& parsed, std::optional<absl::string_view> class_word,
                            const RequestPolicy& policy, const server::InferenceBackend& backend,
                            server::InferRequest& request, Conversion& conversion) {
  SLUICE_ASSIGN_OR_RETURN(request.model, backend.FindModel(parsed.model_name, parsed.model_version));
  const ServedModel& model = *request.model;
  ClassWishes wishes;
  wishes.of_the_port = policy.class_of_the_port;
  if (class_word.has_value()) {
    SLUICE_ASSIGN_OR_RETURN(wishes.metadata, ParseClassMetadata(*class_word));
  }
  SLUICE_ASSIGN_OR_RETURN(const RequestParameters parameters, ReadRequestParameters(parsed.parameters));
  wishes.priority = parameters.priority;
  conversion.timings = parameters.timings;
  SLUICE_RETURN_IF_ERROR(TakeClass(model, wishes, policy, request, conversion));
  request.queue_deadline = QueueDeadline(model.queue_rules, parameters.timeout, request.arrival);

  SLUICE_ASSIGN_OR_RETURN(const std::vector<size_t> order, MatchInputs(parsed, model));
  const server::SharedMemoryRegions* const regions = backend.shared_memory();
  SLUICE_RETURN_IF_ERROR(TakeInputRegions(parsed, order, regions, request));
  SLUICE_RETURN_IF_ERROR(TakeOutputs(parsed, model, regions, request));
  SLUICE_RETURN_IF_ERROR(CheckShapes(parsed, model, order, request));
  SLUICE_RETURN_IF_ERROR(CheckSources(parsed));
  return TakeInputs(parsed, model, order, request, conversion);
}

}  // namespace sluice::rpc
