// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/rpc/call_environment.h"

namespace sluice::rpc {

/// Arms `count` calls each of RepositoryIndex, RepositoryModelLoad and RepositoryModelUnload, which the backend answers
/// when it is done. What is wrong with a call itself is answered at once: INVALID_ARGUMENT naming the parameter, what
/// was expected and what came; UNIMPLEMENTED for a repository's name.
void ArmRepositoryCalls(CallEnvironment& environment, int count);

}  // namespace sluice::rpc
