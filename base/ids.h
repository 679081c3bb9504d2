// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/strong_id.h"

namespace sluice {

/// One version of one model in this process. Never reused.
using ModelId = StrongId<struct ModelIdTag>;
/// One RPC in this process. Never reused; 0 is none.
using RequestId = StrongId<struct RequestIdTag>;

}  // namespace sluice
