// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/load_turns.h"

#include <algorithm>

#include "base/request_class.h"
#include "base/status_macros.h"

namespace sluice::gpu {

GateTurns::GateTurns(Gate& gate, const Clock& clock) : gate_(gate), clock_(clock), waiter_(gate) {}

absl::Duration GateTurns::LongestTurn() {
  const Time now = clock_.Now();
  if (const uint64_t entries = gate_.latency_entries(); entries != seen_entries_) {
    seen_entries_ = entries;
    traffic_until_ = now + kTrafficGap;
  }
  return now < traffic_until_ ? gate_.options().compute_window : absl::InfiniteDuration();
}

bool GateTurns::Ask(absl::Duration predicted, Time now, Time& retry_at) {
  // Before the question: whoever enters after it is seen, and at worst a measurement is made once more.
  entries_before_ = gate_.latency_entries();
  const Grant grant = gate_.TryGrant(Engine::kCompute, RequestClass::kStandard, predicted, now);
  retry_at = grant.retry_at;
  return grant.granted;
}

bool GateTurns::AwaitGrant(absl::Duration predicted) {
  Time now = clock_.Now();
  const Time deadline = now + gate_.options().max_owed_wait;
  Time retry_at;
  if (Ask(predicted, now, retry_at)) return true;
  gate_.SetStandardWaiting(+1);
  bool granted = false;
  while (now < deadline) {
    waiter_.Arm();
    now = clock_.Now();
    granted = Ask(predicted, now, retry_at);
    if (granted) break;
    waiter_.WaitUntil(now, std::min(deadline, retry_at));
    now = clock_.Now();
  }
  gate_.SetStandardWaiting(-1);
  return granted;
}

absl::StatusOr<bool> GateTurns::Run(absl::Duration predicted, absl::FunctionRef<absl::Status()> work) {
  const bool granted = AwaitGrant(predicted);
  const Time start = clock_.Now();
  const absl::Status status = work();
  if (granted) {
    const Time end = clock_.Now();
    gate_.Complete(Engine::kCompute, RequestClass::kStandard, predicted, end - start, end);
  }
  SLUICE_RETURN_IF_ERROR(status);
  return granted && gate_.latency_entries() == entries_before_;
}

absl::StatusOr<bool> RunInTurn(LoadTurns* turns, absl::Duration predicted, absl::FunctionRef<absl::Status()> work) {
  if (turns != nullptr) return turns->Run(predicted, work);
  SLUICE_RETURN_IF_ERROR(work());
  return true;
}

absl::Duration LongestTurn(LoadTurns* turns) {
  return turns == nullptr ? absl::InfiniteDuration() : turns->LongestTurn();
}

}  // namespace sluice::gpu
