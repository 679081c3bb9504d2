// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "inference.pb.h"
#include "server/infer_request.h"

namespace sluice::rpc {

/// The answers of the extension system_shared_memory; UNIMPLEMENTED where the backend does not serve it, else what
/// server::SharedMemoryRegions says. Any thread; a short lock, and for Register the opening of a file in memory.
absl::Status AnswerSystemSharedMemoryStatus(const server::InferenceBackend& backend,
                                            const inference::SystemSharedMemoryStatusRequest& request,
                                            inference::SystemSharedMemoryStatusResponse& response);
absl::Status AnswerSystemSharedMemoryRegister(const server::InferenceBackend& backend,
                                              const inference::SystemSharedMemoryRegisterRequest& request,
                                              inference::SystemSharedMemoryRegisterResponse& response);
/// Without a name: every region.
absl::Status AnswerSystemSharedMemoryUnregister(const server::InferenceBackend& backend,
                                                const inference::SystemSharedMemoryUnregisterRequest& request,
                                                inference::SystemSharedMemoryUnregisterResponse& response);

}  // namespace sluice::rpc
