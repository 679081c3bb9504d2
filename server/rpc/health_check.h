// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sluice::rpc {

/// Asks the server on this machine's `grpc_port` for its readiness over grpc.health.v1, with a deadline of 2 s. For
/// HEALTHCHECK and exec probes of images that have no other program. Prints one line.
bool CheckHealth(int grpc_port);

}  // namespace sluice::rpc
