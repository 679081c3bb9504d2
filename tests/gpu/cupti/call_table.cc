// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/cupti/call_table.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

namespace sluice::cupti {
namespace {

constexpr WatchedCall kCalls[] = {
#include "call_table.inc"
};

template <typename T>
T ReadAt(const void* params, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(params) + offset, sizeof(value));
  return value;
}

}  // namespace

std::span<const WatchedCall> WatchedCalls() { return kCalls; }

bool GoesToLegacyStream(const WatchedCall& call, const void* params) {
  uintptr_t stream = 0;
  switch (call.issue) {
    case Issue::kNone:
      return false;
    case Issue::kImplicit:
      return true;
    case Issue::kStream:
      stream = ReadAt<uintptr_t>(params, call.offset);
      break;
    case Issue::kDriverConfig:
      stream = reinterpret_cast<uintptr_t>(ReadAt<const CUlaunchConfig*>(params, call.offset)->hStream);
      break;
    case Issue::kRuntimeConfig:
      stream = reinterpret_cast<uintptr_t>(ReadAt<const cudaLaunchConfig_t*>(params, call.offset)->stream);
      break;
  }
  constexpr uintptr_t kLegacyHandle = 1;  // CU_STREAM_LEGACY and cudaStreamLegacy, which both are casts
  return stream == kLegacyHandle || (stream == 0 && !call.per_thread);
}

}  // namespace sluice::cupti
