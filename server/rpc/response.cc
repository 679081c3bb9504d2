// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/response.h"

#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/request_parameters.h"
#include "server/rpc/wire_reader.h"

namespace sluice::rpc {
namespace {

// Field numbers of ModelInferResponse and its parts.
constexpr uint32_t kModelName = 1;
constexpr uint32_t kModelVersion = 2;
constexpr uint32_t kId = 3;
constexpr uint32_t kParameters = 4;
constexpr uint32_t kOutputs = 5;
constexpr uint32_t kRawOutputContents = 6;
constexpr uint32_t kOutputName = 1;
constexpr uint32_t kOutputDatatype = 2;
constexpr uint32_t kOutputShape = 3;
static_assert(kParameters == 4);  // of an output too
constexpr uint32_t kEntryKey = 1;
constexpr uint32_t kEntryValue = 2;
constexpr uint32_t kBoolParam = 1;
constexpr uint32_t kInt64Param = 2;
constexpr uint32_t kStringParam = 3;
// Of ModelStreamInferResponse.
constexpr uint32_t kErrorMessage = 1;
constexpr uint32_t kInferResponse = 2;

void AppendVarint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void AppendTag(uint32_t field, WireType type, std::string& out) { AppendVarint(MakeTag(field, type), out); }

/// A string, bytes or message field. Written even when empty: entries of a list count.
void AppendField(uint32_t field, absl::string_view bytes, std::string& out) {
  AppendTag(field, WireType::kLengthDelimited, out);
  AppendVarint(bytes.size(), out);
  out.append(bytes.data(), bytes.size());
}

void AppendParameter(absl::string_view key, absl::string_view value, std::string& out) {
  std::string entry;
  AppendField(kEntryKey, key, entry);
  AppendField(kEntryValue, value, entry);
  AppendField(kParameters, entry, out);
}

void AppendStringParameter(absl::string_view key, absl::string_view text, std::string& out) {
  std::string value;
  AppendField(kStringParam, text, value);
  AppendParameter(key, value, out);
}

void AppendInt64Parameter(absl::string_view key, int64_t number, std::string& out) {
  std::string value;
  AppendTag(kInt64Param, WireType::kVarint, value);
  AppendVarint(static_cast<uint64_t>(number), value);
  AppendParameter(key, value, out);
}

void AppendDurationParameter(absl::string_view key, absl::Duration duration, std::string& out) {
  AppendInt64Parameter(key, absl::ToInt64Microseconds(duration), out);
}

void AppendTimings(const server::RequestTimings& timings, std::string& out) {
  AppendDurationParameter("sluice_queue_us", timings.queue, out);
  AppendDurationParameter("sluice_copy_in_us", timings.copy_in, out);
  AppendDurationParameter("sluice_h2d_us", timings.h2d, out);
  AppendDurationParameter("sluice_gpu_wait_us", timings.gpu_wait, out);
  AppendDurationParameter("sluice_compute_us", timings.compute, out);
  AppendDurationParameter("sluice_d2h_us", timings.d2h, out);
}

/// Where the output went, as the request said it.
void AppendRegion(const server::SharedMemorySlice& region, std::string& out) {
  AppendStringParameter(kSharedMemoryRegion, region.region->facts().name, out);
  AppendInt64Parameter(kSharedMemoryByteSize, static_cast<int64_t>(region.byte_size), out);
  AppendInt64Parameter(kSharedMemoryOffset, static_cast<int64_t>(region.offset), out);
}

void AppendOutput(const server::ServedTensor& tensor, const std::vector<int64_t>& shape,
                  const server::SharedMemorySlice* region, std::string& out) {
  std::string output;
  AppendField(kOutputName, tensor.name, output);
  AppendField(kOutputDatatype, WireName(tensor.type), output);
  std::string packed;
  for (const int64_t dimension : shape) AppendVarint(static_cast<uint64_t>(dimension), packed);
  AppendField(kOutputShape, packed, output);
  if (region != nullptr) AppendRegion(*region, output);
  AppendField(kOutputs, output, out);
}

/// A slice that owns `bytes` without copying them.
grpc::Slice OwnSlice(std::string bytes) {
  auto* storage = new std::string(std::move(bytes));
  return grpc::Slice(
      storage->data(), storage->size(), [](void* owned) { delete static_cast<std::string*>(owned); }, storage);
}

/// The same for memory of the response pool, which goes back when gRPC has written the slice, or given it up.
grpc::Slice OwnSlice(server::ResponseBuffer buffer) {
  auto* const owned = new server::ResponseBuffer(std::move(buffer));
  const std::span<std::byte> bytes = owned->bytes();
  return grpc::Slice(
      bytes.data(), bytes.size(), [](void* gone) { delete static_cast<server::ResponseBuffer*>(gone); }, owned);
}

size_t SizeOf(const server::ResponseOutput& output) {
  return output.pooled ? output.pooled.bytes().size() : output.bytes.size();
}

void FlushInto(std::vector<grpc::Slice>& slices, std::string& inline_bytes) {
  if (inline_bytes.empty()) return;
  slices.emplace_back(inline_bytes.data(), inline_bytes.size());
  inline_bytes.clear();
}

}  // namespace

grpc::Slice EncodeTotalTime(absl::Duration total) {
  std::string parameter;
  AppendDurationParameter("sluice_total_us", total, parameter);
  return grpc::Slice(parameter);
}

std::vector<grpc::Slice> EncodeStreamResponse(std::vector<grpc::Slice> response) {
  std::string yes;
  AppendTag(kBoolParam, WireType::kVarint, yes);
  AppendVarint(1, yes);
  std::string final_mark;
  AppendParameter("triton_final_response", yes, final_mark);
  response.emplace_back(final_mark);
  size_t size = 0;
  for (const grpc::Slice& slice : response) size += slice.size();
  std::string head;
  AppendTag(kInferResponse, WireType::kLengthDelimited, head);
  AppendVarint(size, head);
  response.insert(response.begin(), grpc::Slice(head));
  return response;
}

std::vector<grpc::Slice> EncodeStreamError(const std::string& message, const std::string& id) {
  std::string response;
  if (!id.empty()) AppendField(kId, id, response);
  std::string encoded;
  AppendField(kErrorMessage, message, encoded);
  AppendField(kInferResponse, response, encoded);
  return {grpc::Slice(encoded)};
}

absl::StatusOr<std::vector<grpc::Slice>> EncodeResponse(const ResponseFacts& facts, server::InferResult result) {
  std::string head;
  AppendField(kModelName, facts.model.name, head);
  AppendField(kModelVersion, absl::StrCat(facts.model.version), head);
  if (!facts.id.empty()) AppendField(kId, facts.id, head);
  AppendStringParameter("sluice_class", RequestClassName(facts.used_class), head);
  if (facts.timings) AppendTimings(result.timings, head);

  size_t total_bytes = 0;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const server::ResponseOutput& output = result.outputs[i];
    if (output.output_index >= facts.model.outputs.size()) {
      return absl::InternalError(absl::StrCat("the model has no output ", output.output_index));
    }
    const bool in_region = i < facts.output_regions.size() && facts.output_regions[i];
    AppendOutput(facts.model.outputs[output.output_index], output.shape, in_region ? &facts.output_regions[i] : nullptr,
                 head);
    total_bytes += SizeOf(output) + 16;  // with its tag and length
  }
  total_bytes += head.size();
  if (total_bytes > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat("the response would have ", total_bytes,
                                                   " bytes, more than a message can hold (2147483647); ask for a "
                                                   "smaller batch or fewer outputs"));
  }

  std::vector<grpc::Slice> slices;
  for (server::ResponseOutput& output : result.outputs) {
    if (SizeOf(output) < kOwnSliceBytes) {
      AppendField(kRawOutputContents, output.bytes, head);
      continue;
    }
    AppendTag(kRawOutputContents, WireType::kLengthDelimited, head);
    AppendVarint(SizeOf(output), head);
    FlushInto(slices, head);
    slices.push_back(output.pooled ? OwnSlice(std::move(output.pooled)) : OwnSlice(std::move(output.bytes)));
  }
  FlushInto(slices, head);
  return slices;
}

}  // namespace sluice::rpc
