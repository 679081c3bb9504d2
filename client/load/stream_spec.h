// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/request_class.h"
#include "client/load/schedule.h"

namespace sluice::client {

/// One stream of requests of a load run: what is sent, as which class, and how fast. Open loop has a rate, closed loop
/// a number of requests in flight; never both.
struct StreamSpec {
  std::string name;  ///< Unique in a run; "class/model" unless given.
  std::optional<RequestClass> request_class;
  std::string model;
  std::string version;
  double rate = 0;  ///< Requests per second; above 0 is open loop.
  Arrivals arrivals = Arrivals::kPoisson;
  int concurrency = 0;        ///< Requests in flight; above 0 is closed loop.
  int64_t request_limit = 0;  ///< Closed loop: stop after so many in each phase; 0 is no limit.
  int64_t batch = 1;
  std::optional<absl::Duration> deadline;  ///< Of each request; none takes LoadOptions::default_deadline.
  std::string data = "random";             ///< "random", or a file for the model's only input.
  std::map<std::string, std::vector<int64_t>> shapes;

  bool open_loop() const { return rate > 0; }
};

/// "3x224x224" or "3,224,224". INVALID_ARGUMENT for anything but whole numbers.
absl::StatusOr<std::vector<int64_t>> ParseShape(absl::string_view text);

/// Parses "key=value,key=value". Keys: class, model, version, name, rate, distribution (poisson, constant, bursty),
/// concurrency, requests, batch, deadline-ms, data, shape (NAME:AxBxC, repeatable). INVALID_ARGUMENT names the field
/// and says what it takes.
absl::StatusOr<StreamSpec> ParseStreamSpec(absl::string_view text);

/// Makes the names unique by numbering repeated ones.
void NameStreams(std::vector<StreamSpec>& streams);

}  // namespace sluice::client
