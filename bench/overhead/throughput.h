// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/request_class.h"
#include "bench/overhead/probe.h"

namespace sluice::bench {

struct ThroughputSettings {
  int connections = 64;    ///< Each with one call in flight; at most 64.
  int client_threads = 2;  ///< Of each side's client, at most 16.
  int echo_threads = 2;
  int rounds = 5;                          ///< Turns of each side.
  absl::Duration turn = absl::Seconds(1);  ///< Of which the first fifth is not counted.
  RequestClass request_class = RequestClass::kLatency;
};

/// One server with one model. Rates are calls a second, the median over the turns.
struct Throughput {
  std::string server, model;
  double rate = 0, echo_rate = 0;
  double p99_us = 0, echo_p99_us = 0;  ///< Of the calls that were counted, as the client saw them.
  double ratio = 0;                    ///< The median over the rounds of rate over echo_rate.
  uint64_t failed = 0;                 ///< Calls that did not end well; they are not counted.
};

/// Many connections at once, each server and its echo in turn. One entry per target. Errors: as the connections'.
absl::StatusOr<std::vector<Throughput>> MeasureThroughput(const ThroughputSettings& settings,
                                                          const std::vector<Target>& targets, const std::string& model);

}  // namespace sluice::bench
