// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/infer_request.h"
#include "server/served_model.h"

namespace sluice::rpc {

/// "[1,3,-1]"
std::string ShapeText(std::span<const int64_t> shape);

/// Product of the dimensions; nothing when one is negative or the product does not fit. The one place where a client's
/// dimensions are multiplied.
std::optional<int64_t> ElementCount(std::span<const int64_t> shape);

/// Rank and dimensions of a client's shape against what the model declares; the first dimension is free when
/// `has_batch`. INVALID_ARGUMENT with both shapes; `where` names the tensor.
absl::Status CheckShape(std::span<const int64_t> shape, const server::ServedTensor& tensor, bool has_batch,
                        absl::string_view where);

/// The bucket with exactly these shapes (batch dimension already left out). INVALID_ARGUMENT listing those served.
absl::StatusOr<size_t> FindBucket(const server::ServedModel& model, std::span<const std::span<const int64_t>> shapes);

/// BYTES in raw form: each element a 32-bit length and as many bytes, `count` of them, nothing behind. No piece may be
/// empty. Reads in place and allocates nothing.
absl::Status CheckBytesElements(std::span<const server::Bytes> pieces, int64_t count);

}  // namespace sluice::rpc
