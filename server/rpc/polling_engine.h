// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace sluice::rpc {

/// Settles how gRPC waits for its connections, by the environment variable it reads once: GRPC_POLL_STRATEGY.
/// gRPC 1.51's default, epoll1, has one set of descriptors for the whole process, so that any of its threads may be the
/// one that takes in any connection's bytes, those of another port too; `poll` asks each port's descriptors by that
/// port's threads. So with `ports_apart` it is poll, unless the variable says otherwise, which is logged. To be called
/// before anything of gRPC, by one thread. INVALID_ARGUMENT for a value that gRPC would abort the process for.
absl::Status ChoosePollingEngine(bool ports_apart);

}  // namespace sluice::rpc
