// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define SLUICE_HAVE_NVTX 1
#endif

namespace sluice::gpu::cuda {

/// Shows what the calling thread issues as a range in Nsight Systems, until it is destroyed. `name` is read at once.
/// Without a profiler attached it costs one comparison; nothing in builds without NVTX's headers.
class NvtxRange {
 public:
#ifdef SLUICE_HAVE_NVTX
  explicit NvtxRange(const char* name) { nvtxRangePushA(name); }
  ~NvtxRange() { nvtxRangePop(); }
#else
  explicit NvtxRange(const char*) {}
#endif
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace sluice::gpu::cuda
