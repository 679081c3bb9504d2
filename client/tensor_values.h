// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/data_type.h"
#include "client/types.h"
#include "nlohmann/json_fwd.hpp"

namespace sluice::client {

/// Half precision and bfloat16, rounded to nearest even; NaN stays NaN, too large becomes infinite.
uint16_t FloatToHalf(float value);
float HalfToFloat(uint16_t bits);
uint16_t FloatToBfloat(float value);
float BfloatToFloat(uint16_t bits);

/// Appends one JSON value to `bytes` as an element of `type`. INVALID_ARGUMENT when it is of another kind, is not
/// integral or does not fit.
absl::Status AppendElement(const nlohmann::json& value, DataType type, std::string& bytes);

/// The elements of a tensor as JSON values, at most `limit` from the start. The tensor must pass CheckTensor.
nlohmann::json Elements(const Tensor& tensor, size_t limit);

/// One element as a number for ranking. Zero for BYTES. `index` must be inside.
double ElementAsDouble(const Tensor& tensor, size_t index);

/// A tensor with seeded random content: floats in [0, 1), integers in 0 to 255 as far as the type reaches, booleans,
/// strings of eight letters. INVALID_ARGUMENT when the shape has a free dimension or is above 2 GiB.
absl::StatusOr<Tensor> RandomTensor(const std::string& name, DataType type, std::vector<int64_t> shape, uint64_t seed);

}  // namespace sluice::client
