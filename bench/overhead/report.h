// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bench/overhead/one_at_a_time.h"
#include "bench/overhead/throughput.h"
#include "nlohmann/json.hpp"

namespace sluice::bench {

struct Results {
  std::vector<Measured> rows;
  std::vector<Throughput> throughput;  ///< Empty when it was not asked for.
};

/// Tables for people.
std::string ToText(const Results& results);
nlohmann::json ToJson(const Results& results);

/// What the product may cost at most; 0: anything.
struct Limits {
  double p50_us = 0, p99_us = 0;  ///< Front end of the smallest payload.
  double copies = 0;              ///< Front end p50 of the largest payload, in copies of it.
  double throughput_ratio = 0;    ///< The least of the echo's throughput, smallest payload.
};

/// What is beyond the limits, one line each; empty when nothing is. `results` has the product's rows first of each
/// model, the smallest payload first.
std::vector<std::string> Beyond(const Limits& limits, const Results& results);

}  // namespace sluice::bench
