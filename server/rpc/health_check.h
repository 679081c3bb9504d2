// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/listen_options.h"

namespace sluice::rpc {

/// Asks the server on this machine for a health status over grpc.health.v1, with a deadline of 2 s; true: SERVING. For
/// HEALTHCHECK and exec probes: of images that have no other program, and of ports with TLS, which kubelets cannot ask.
/// Prints one line.
bool CheckHealth(const server::HealthProbe& probe);

}  // namespace sluice::rpc
