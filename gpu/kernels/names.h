// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/kernels/elementwise.h"
#include "gpu/kernels/reduce.h"

namespace sluice::gpu {

// Kinds in words, for kernels' names and messages.
const char* NameOf(UnaryKind kind);
const char* NameOf(BinaryKind kind);
const char* NameOf(ReduceKind kind);

}  // namespace sluice::gpu
