// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "absl/strings/string_view.h"
#include "server/config.h"

namespace sluice::bench {

/// One way to run both classes on a device: a step of the ladder from streams alone to the product, or the product with
/// one mechanism taken out.
struct Rung {
  absl::string_view name;
  absl::string_view what;
  bool one_class = false;  ///< Everything is sent as the standard class: streams of one priority.
  bool uncut = false;      ///< Batch plans are one unit each.
  bool window = true;      ///< Else batch work is launched as far ahead as it comes.
  bool gate = true;
  bool transfers = true;  ///< Copies of latency requests by kernel, copies of others in measured chunks.
};

/// In the order of the ladder; "product" is the last of it, ablations follow.
std::span<const Rung> AllRungs();
/// Null when there is none of that name.
const Rung* FindRung(absl::string_view name);

/// What of the server's flags makes the rung. Rungs with equal switches share a house.
server::ServerConfig ConfigOf(const Rung& rung, server::ServerConfig config);

}  // namespace sluice::bench
