// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_builder.h>

namespace sluice::rpc {

/// Reflection (v1alpha) for this server, or not: only linking gRPC's library turns it on for every server of a process.
/// It is a synchronous service: gRPC serves it on a few threads of its own, a thread for each stream, eight at most;
/// more streams get RESOURCE_EXHAUSTED. The other methods stay on our queue.
void SetReflection(bool on, grpc::ServerBuilder& builder);

}  // namespace sluice::rpc
