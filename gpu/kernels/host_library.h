// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/clock.h"
#include "gpu/kernels/library.h"

namespace sluice::gpu {

struct HostLibraryOptions {
  /// Convolution, matrix products and pooling by oneDNN when it was built in; off, by the plain loops it is checked
  /// against.
  bool use_onednn = true;
  /// Team size kernels are prepared for. Must be the number of OpenMP threads they are run with: oneDNN divides the
  /// work when it prepares, not when it runs.
  int threads = 1;
};

/// True when oneDNN was built in.
bool HostLibraryHasOneDnn();

/// Kernels of the host device (gpu/host/host_kernel.h). `clock` is what stamps and delays read; it must outlive the
/// library's kernels.
std::unique_ptr<KernelLibrary> MakeHostKernelLibrary(const Clock& clock, const HostLibraryOptions& options = {});

}  // namespace sluice::gpu
