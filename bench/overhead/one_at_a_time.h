// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/request_class.h"
#include "bench/overhead/probe.h"

namespace sluice::bench {

/// What was measured of one server with one model, one entry per request, in microseconds.
struct Measured {
  std::string server, model;
  size_t request_bytes = 0;
  size_t answer_bytes = 0;
  double copy_us = 0;             ///< A copy of the request in memory.
  std::vector<double> client;     ///< As the client sees it.
  std::vector<double> echo;       ///< The same message to a bare echo that gives the same answer, right after.
  std::vector<double> device;     ///< h2d + gpu_wait + compute + d2h, as the server says; 0 where it says nothing.
  std::vector<double> total;      ///< From the complete message to the built response, as the server says; or 0.
  std::vector<double> front;      ///< client - device of the same request.
  std::vector<double> in_server;  ///< total - device of the same request.

  double Overhead(double quantile) const { return Quantile(front, quantile) - Quantile(echo, quantile); }
};

struct OneAtATime {
  int requests = 2000;  ///< Of each server and its echo.
  int warmup = 200;     ///< Before them, not counted.
  int pause_us = 0;     ///< Between them.
  int echo_threads = 2;
  RequestClass request_class = RequestClass::kLatency;
};

/// One request in flight at a time, each server and its echo in turn, so that all see the same machine. One entry per
/// target. Errors: as the calls'; FAILED_PRECONDITION when a target that should send stage times sends none.
absl::StatusOr<std::vector<Measured>> MeasureOneAtATime(const OneAtATime& settings, const std::vector<Target>& targets,
                                                        const std::string& model);

}  // namespace sluice::bench
