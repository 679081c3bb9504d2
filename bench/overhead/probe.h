// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/async_client.h"

namespace sluice::bench {

/// A server that is measured beside the bare echo.
struct Target {
  std::string name;
  std::string address;   ///< host:port
  bool timings = false;  ///< Its answers carry the stage times of `sluice_timings`.
};

/// One row of `model` with zeros in each input, as the server at `address` describes them; asks for stage times.
/// Errors: as the client library's Connect, ModelMetadata and Encode.
absl::StatusOr<client::EncodedRequest> MakeProbe(const std::string& address, const std::string& model);

/// The smallest sample that at least `quantile` of all do not exceed; `samples` is not empty.
double Quantile(std::vector<double> samples, double quantile);

/// Microseconds that a copy of `bytes` in memory takes, the median of many: from one buffer to another by one thread,
/// none of which was touched lately, as a message is that another thread has received.
double CopyMicroseconds(size_t bytes);

}  // namespace sluice::bench
