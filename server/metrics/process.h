// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

namespace sluice::metrics {

/// What the kernel says about this process; a value that cannot be read is empty, never zero.
struct ProcessReading {
  std::optional<double> start_time_seconds;  ///< Since 1970.
  std::optional<double> open_fds;
  std::optional<double> max_fds;
  std::optional<double> resident_bytes;
};

/// Reads /proc. Some tens of microseconds; for a scrape, not for a request.
ProcessReading ReadProcess();

}  // namespace sluice::metrics
