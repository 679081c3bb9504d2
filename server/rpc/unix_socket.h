// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice::rpc {

/// Whether `path` can become a listening socket: nothing is there, or a socket that a dead process left, which is
/// removed; a living server's is left alone. FAILED_PRECONDITION naming the path otherwise. Does not wait for whoever
/// listens there.
absl::Status PrepareUnixSocket(const std::string& path);

}  // namespace sluice::rpc
