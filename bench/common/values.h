// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "server/served_model.h"

namespace sluice::bench {

/// Integers are below this, which is the smallest table that scripts/export_models.py writes.
inline constexpr uint64_t kIntegerBound = 50;

/// Fills an input of a model, the same way each time: about normal where its type has fractions, whole numbers from 0
/// up to kIntegerBound, except that an input with "mask" in its name is all ones, which leaves nothing out, and one
/// with "type" in its name all zeros, of which there are seldom more than two.
void FillInput(const server::ServedTensor& input, std::span<std::byte> bytes);

}  // namespace sluice::bench
