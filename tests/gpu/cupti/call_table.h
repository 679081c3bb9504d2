// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::cupti {

/// How a call says which stream its work goes into.
enum class Issue : uint8_t {
  kNone,           ///< It issues nothing.
  kStream,         ///< A stream handle at `offset` of its parameters.
  kDriverConfig,   ///< A CUlaunchConfig* at `offset`.
  kRuntimeConfig,  ///< A cudaLaunchConfig_t* at `offset`.
  kImplicit,       ///< No stream among its parameters: the legacy default stream.
};

/// A call that is watched.
struct WatchedCall {
  CUpti_CallbackDomain domain;
  CUpti_CallbackId id;
  const char* name;
  Issue issue;
  size_t offset;
  bool per_thread;  ///< Stream 0 means the calling thread's own default stream.
  bool allocates;   ///< Allocates, frees, maps or registers memory.
};

/// Every watched call, made from CUPTI's headers by generate_call_table.py.
std::span<const WatchedCall> WatchedCalls();

/// Whether `call` with the parameters at `params` puts work into the legacy default stream.
bool GoesToLegacyStream(const WatchedCall& call, const void* params);

}  // namespace sluice::cupti
