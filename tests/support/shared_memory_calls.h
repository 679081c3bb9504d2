// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "inference.grpc.pb.h"

namespace sluice {

/// Registers `byte_size` bytes of the object `key`, from `offset` on, under `name`.
inline grpc::Status RegisterRegion(inference::GRPCInferenceService::Stub& stub, const std::string& name,
                                   const std::string& key, uint64_t offset, uint64_t byte_size) {
  inference::SystemSharedMemoryRegisterRequest request;
  request.set_name(name);
  request.set_key(key);
  request.set_offset(offset);
  request.set_byte_size(byte_size);
  grpc::ClientContext context;
  inference::SystemSharedMemoryRegisterResponse response;
  return stub.SystemSharedMemoryRegister(&context, request, &response);
}

/// Without a name all of them.
inline grpc::Status UnregisterRegion(inference::GRPCInferenceService::Stub& stub, const std::string& name) {
  inference::SystemSharedMemoryUnregisterRequest request;
  request.set_name(name);
  grpc::ClientContext context;
  inference::SystemSharedMemoryUnregisterResponse response;
  return stub.SystemSharedMemoryUnregister(&context, request, &response);
}

}  // namespace sluice
