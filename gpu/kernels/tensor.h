// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/data_type.h"

namespace sluice::gpu {

/// Dimensions of a row-major, contiguous tensor; empty for a scalar. A dimension may be 0 (no elements) where a family
/// does not say otherwise.
using Dims = std::vector<int64_t>;

/// A tensor known when kernels are prepared. `name` is stable and unique in its model: packed forms are shared by it
/// (packed_weights.h). `data` is readable by the calling thread and need only live during the Prepare call.
struct Constant {
  std::string name = {};
  DataType type = DataType::kInvalid;
  Dims dims = {};
  std::span<const std::byte> data = {};
};

/// What a kernel does to its result before it writes it. All that take one know kRelu; who knows the others says so.
enum class Activation : uint8_t {
  kNone,
  kRelu,
  kClip,   ///< min(max(x, low), high), the bounds beside it
  kSwish,  ///< x / (1 + exp(-x))
  kGelu,   ///< 0.5 x (1 + erf(x / sqrt(2)))
};

/// Product of `dims`. INVALID_ARGUMENT when one is negative or the tensor's bytes would not fit 2^48, a bound no real
/// tensor reaches and under which no index arithmetic here overflows.
absl::StatusOr<int64_t> ElementCount(const Dims& dims);
/// "[1,256,512,1]".
std::string DimsToString(const Dims& dims);
/// `axis` with negative values counted from the back. INVALID_ARGUMENT when outside [-rank, rank).
absl::StatusOr<int64_t> NormalizeAxis(int64_t axis, size_t rank);
/// Shape of two tensors broadcast against each other by numpy's rule. INVALID_ARGUMENT when they do not fit.
absl::StatusOr<Dims> BroadcastDims(const Dims& a, const Dims& b);
/// INVALID_ARGUMENT unless type and byte count of `constant` agree with its dimensions; `what` begins the message.
absl::Status CheckConstant(const Constant& constant, DataType type, absl::string_view what);

}  // namespace sluice::gpu
