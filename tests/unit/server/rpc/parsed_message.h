// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inference.pb.h"
#include "server/rpc/infer_parser.h"

namespace sluice::rpc {

// Two requests say the same when these are equal, byte for byte: NaN survives, the order of a map does not matter, and
// unknown fields are left out. Typed contents that fill more than one field are refused later, so only their counts
// are compared.

/// What our parser read. Pieces and ranges that are not as their headers promise end the process.
std::string Canonical(const ParsedRequest& request);
/// What protobuf read.
std::string Canonical(inference::ModelInferRequest request);

}  // namespace sluice::rpc
