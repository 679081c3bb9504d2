// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/request_class.h"
#include "server/infer_request.h"

namespace sluice::rpc {

/// Outputs of at least this size become slices of their own, whose memory is the result's; smaller ones are copied in
/// beside the names, where a slice of their own would cost more than the copy.
inline constexpr size_t kOwnSliceBytes = 4096;

struct ResponseFacts {
  const server::ServedModel& model;
  const std::string& id;  ///< Echoed as it came.
  RequestClass used_class = RequestClass::kStandard;
  bool timings = false;
  std::span<const server::SharedMemorySlice> output_regions = {};  ///< As server::InferRequest has them.
};

/// Encodes a ModelInferResponse: every output raw and in order. One that went to shared memory has parameters that say
/// where, and an empty entry among the raw ones, since clients find theirs by counting. Takes the outputs' storage; it
/// lives until gRPC has written the slices. INVALID_ARGUMENT when the message would be over 2 GiB - 1; INTERNAL when an
/// output does not belong to the model.
absl::StatusOr<std::vector<grpc::Slice>> EncodeResponse(const ResponseFacts& facts, server::InferResult result);

/// Parameter sluice_total_us as a piece to put behind an encoded response: from the complete message to `total` later,
/// when the response is built. Apart from the rest, because it is known last; protobuf reads fields in any order.
grpc::Slice EncodeTotalTime(absl::Duration total);

/// A ModelStreamInferResponse around an encoded ModelInferResponse, which is marked as its request's last one.
std::vector<grpc::Slice> EncodeStreamResponse(std::vector<grpc::Slice> response);

/// A ModelStreamInferResponse that says what was wrong with the request `id`. `message` must be UTF-8.
std::vector<grpc::Slice> EncodeStreamError(const std::string& message, const std::string& id);

}  // namespace sluice::rpc
