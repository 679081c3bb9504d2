// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gpu/gate.h"

namespace sluice::gpu {

/// Whom a load asks before its trials and profiles run on a device that serves already. Purpose: what they launch is
/// over before a latency request's work begins, as batch work is, and what they measure is the device alone. Threads:
/// one at a time. Load time only: blocks.
class LoadTurns {
 public:
  virtual ~LoadTurns() = default;
  /// How long what is launched in one turn should take; infinite while no latency requests come.
  virtual absl::Duration LongestTurn() = 0;
  /// Runs `work`, which is predicted to take so long on the device (zero: nobody knows), and has waited for it when it
  /// returns. Waits a bounded time for the device to be free of latency work, then runs it all the same: loads end.
  /// True when no latency request came near it, so that what was measured is the work alone.
  virtual absl::StatusOr<bool> Run(absl::Duration predicted, absl::FunctionRef<absl::Status()> work) = 0;
};

/// At a gate, as standard work that goes before batch: a load is short, and batch would keep the window full.
class GateTurns final : public LoadTurns {
 public:
  /// Latency requests this far apart count as traffic.
  static constexpr absl::Duration kTrafficGap = absl::Seconds(1);

  /// Both must outlive it. `clock` is on MonotonicClock's scale.
  GateTurns(Gate& gate, const Clock& clock);

  absl::Duration LongestTurn() override;
  absl::StatusOr<bool> Run(absl::Duration predicted, absl::FunctionRef<absl::Status()> work) override;

 private:
  bool Ask(absl::Duration predicted, Time now, Time& retry_at);
  bool AwaitGrant(absl::Duration predicted);

  Gate& gate_;
  const Clock& clock_;
  GateWaiter waiter_;
  uint64_t entries_before_ = 0;  ///< The latest question.
  uint64_t seen_entries_ = 0;    ///< When traffic was last looked for.
  Time traffic_until_ = Time::Zero();
};

/// The same without anybody to ask.
absl::StatusOr<bool> RunInTurn(LoadTurns* turns, absl::Duration predicted, absl::FunctionRef<absl::Status()> work);
absl::Duration LongestTurn(LoadTurns* turns);

}  // namespace sluice::gpu
