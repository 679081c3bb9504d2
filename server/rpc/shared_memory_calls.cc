// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/shared_memory_calls.h"

#include <vector>

#include "base/status_macros.h"
#include "server/shared_memory.h"

namespace sluice::rpc {
namespace {

absl::Status NotServed() {
  return absl::UnimplementedError("system shared memory is not served (--shared-memory=system)");
}

}  // namespace

absl::Status AnswerSystemSharedMemoryStatus(const server::InferenceBackend& backend,
                                            const inference::SystemSharedMemoryStatusRequest& request,
                                            inference::SystemSharedMemoryStatusResponse& response) {
  const server::SharedMemoryRegions* const regions = backend.shared_memory();
  if (regions == nullptr) return NotServed();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<server::SharedMemoryRegionFacts> described,
                          regions->Describe(request.name()));
  for (const server::SharedMemoryRegionFacts& facts : described) {
    auto& status = (*response.mutable_regions())[facts.name];
    status.set_name(facts.name);
    status.set_key(facts.key);
    status.set_offset(facts.offset);
    status.set_byte_size(facts.byte_size);
  }
  return absl::OkStatus();
}

absl::Status AnswerSystemSharedMemoryRegister(const server::InferenceBackend& backend,
                                              const inference::SystemSharedMemoryRegisterRequest& request,
                                              inference::SystemSharedMemoryRegisterResponse& /*response*/) {
  server::SharedMemoryRegions* const regions = backend.shared_memory();
  if (regions == nullptr) return NotServed();
  return regions->Register({request.name(), request.key(), request.offset(), request.byte_size()});
}

absl::Status AnswerSystemSharedMemoryUnregister(const server::InferenceBackend& backend,
                                                const inference::SystemSharedMemoryUnregisterRequest& request,
                                                inference::SystemSharedMemoryUnregisterResponse& /*response*/) {
  server::SharedMemoryRegions* const regions = backend.shared_memory();
  if (regions == nullptr) return NotServed();
  request.name().empty() ? regions->UnregisterAll() : regions->Unregister(request.name());
  return absl::OkStatus();
}

}  // namespace sluice::rpc
