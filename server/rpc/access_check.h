// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "server/listen_options.h"

namespace sluice::rpc {

/// Whether a call of `protocol` carries the header that `access` asks for. UNAVAILABLE otherwise, as Triton answers;
/// the message tells nothing of the header. Takes as long for a wrong value as for the right one. Any thread; never
/// blocks.
absl::Status CheckAccess(const server::ProtocolAccess& access, server::Protocol protocol,
                         const grpc::ServerContextBase& context);

}  // namespace sluice::rpc
