// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/data_type.h"

namespace sluice::client {

/// What the header of a NumPy array file says. `data_offset` is where the elements begin.
struct NpyHeader {
  DataType type = DataType::kInvalid;
  std::vector<int64_t> shape;
  size_t data_offset = 0;
};

/// Reads the header of a .npy file of format version 1, 2 or 3. INVALID_ARGUMENT for anything else, for big-endian,
/// Fortran order, and element types that have no counterpart here. Bounded by the size of `file`.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view file);

}  // namespace sluice::client
