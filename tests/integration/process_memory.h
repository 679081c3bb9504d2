// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <malloc.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_TEST_ASAN 1
#include <sanitizer/allocator_interface.h>
#endif
#endif

namespace sluice::testing {

inline constexpr size_t kMiB = size_t{1} << 20;

/// What the whole process has allocated and not freed, client's and server's side.
inline double AllocatedMiB() {
#ifdef SLUICE_TEST_ASAN
  return static_cast<double>(__sanitizer_get_current_allocated_bytes()) / static_cast<double>(kMiB);
#else
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / static_cast<double>(kMiB);
#endif
}

inline double ResidentMiB() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / static_cast<double>(kMiB);
}

}  // namespace sluice::testing
