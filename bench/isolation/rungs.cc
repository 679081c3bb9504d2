// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/isolation/rungs.h"

#include <algorithm>
#include <iterator>

#include "absl/time/time.h"

namespace sluice::bench {
namespace {

constexpr bool kYes = true;
constexpr bool kNo = false;

//    name, what, one_class, uncut, window, gate, transfers
constexpr Rung kRungs[] = {
    {"one-class", "everything in the standard class, in units: streams of one priority", kYes, kNo, kYes, kYes, kYes},
    {"priority", "priority streams only: whole batch plans, launched as they come", kNo, kYes, kNo, kNo, kNo},
    {"window", "and a window: so much predicted batch work in flight", kNo, kYes, kYes, kNo, kNo},
    {"units", "and units: batch plans cut by layer and rows", kNo, kNo, kYes, kNo, kNo},
    {"gate", "and the gate: no unit while a latency request is in the house", kNo, kNo, kYes, kYes, kNo},
    {"product", "and transfers that cannot queue behind batch copies: the server", kNo, kNo, kYes, kYes, kYes},
    {"no-units", "the product with whole batch plans", kNo, kYes, kYes, kYes, kYes},
    {"no-window", "the product with batch work launched as it comes", kNo, kNo, kNo, kYes, kYes},
    {"no-gate", "the product with the gate off", kNo, kNo, kYes, kNo, kYes},
};

/// As far ahead as the flag allows, which is more than the slots hold.
constexpr absl::Duration kNoWindow = absl::Seconds(10);
/// What somebody gets who copies as the API suggests: by copy engine, in pieces as large as the flags allow.
constexpr int64_t kLargestChunk = 16 << 20;
constexpr int kDeepestWindow = 4;
constexpr int64_t kLeastKernelBytes = 4096;

}  // namespace

std::span<const Rung> AllRungs() { return kRungs; }

const Rung* FindRung(absl::string_view name) {
  const Rung* const found =
      std::find_if(std::begin(kRungs), std::end(kRungs), [&](const Rung& rung) { return rung.name == name; });
  return found == std::end(kRungs) ? nullptr : found;
}

server::ServerConfig ConfigOf(const Rung& rung, server::ServerConfig config) {
  config.gate = rung.gate;
  if (!rung.window) config.compute_window = kNoWindow;
  if (!rung.transfers) {
    config.transfer_kernel_bytes = kLeastKernelBytes;
    config.copy_chunk_bytes = kLargestChunk;
    config.copy_window = kDeepestWindow;
  }
  return config;
}

}  // namespace sluice::bench
