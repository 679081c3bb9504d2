// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/types.h"
#include "grpc/support/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/slice.h"
#include "inference.pb.h"

namespace sluice::client {

/// Metadata key that carries the class of a request.
inline constexpr char kClassMetadata[] = "sluice-class";

/// A view of `tensor`, which `owner` keeps.
TensorView ViewOf(const Tensor& tensor, std::shared_ptr<const void> owner = nullptr);

/// Elements of a shape; INVALID_ARGUMENT for negative dimensions and overflow.
absl::StatusOr<int64_t> ElementCount(const std::vector<int64_t>& shape);

/// Checks that a tensor's bytes are what its type and shape say. BYTES: the length prefixes must fill it exactly.
absl::Status CheckTensor(const TensorView& tensor);

/// Builds the request message; the tensors' bytes are moved, not copied. INVALID_ARGUMENT when a tensor is not
/// consistent or the whole does not fit the 2 GiB that gRPC can carry.
absl::StatusOr<inference::ModelInferRequest> BuildInferRequest(const std::string& model, std::vector<Tensor> inputs,
                                                               const InferOptions& options);

/// The same as an encoded message in pieces: head and lengths, and each tensor's bytes where they are, with its owner.
absl::StatusOr<std::vector<grpc::Slice>> EncodeInferRequest(const std::string& model,
                                                            const std::vector<TensorView>& inputs,
                                                            const InferOptions& options);

/// Takes a response apart. INTERNAL when it is not consistent: outputs and raw contents differ in number, or an
/// output's bytes do not fit its shape.
absl::StatusOr<InferReply> ReadInferResponse(inference::ModelInferResponse response);

/// The stage times a response carries; none when it carries none.
std::optional<StageTimings> ReadStageTimings(const inference::ModelInferResponse& response);

/// The class the server says it used; none when it says nothing or something unknown.
std::optional<RequestClass> EffectiveClass(const inference::ModelInferResponse& response);

/// So long from now, on gRPC's monotonic clock, so that a step of the wall clock does not matter.
gpr_timespec MonotonicDeadline(absl::Duration wait);

/// Sets the deadline and the class.
void PrepareContext(grpc::ClientContext& context, absl::Duration deadline, std::optional<RequestClass> request_class);

}  // namespace sluice::client
