// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/checked_gate.h"

#include <algorithm>
#include <vector>

namespace sluice::sim {
namespace {

// The gate counts a unit as at least this.
constexpr absl::Duration kLeastCost = absl::Microseconds(1);

}  // namespace

void SlidingSecond::Forget(Time now) {
  const int64_t oldest = (now - absl::Seconds(1)).nanoseconds() / absl::ToInt64Nanoseconds(kStep);
  while (!steps_.empty() && steps_.front().first <= oldest) {
    sum_ -= steps_.front().second;
    steps_.pop_front();
  }
}

void SlidingSecond::Add(Time at, absl::Duration amount) {
  const int64_t step = at.nanoseconds() / absl::ToInt64Nanoseconds(kStep);
  if (steps_.empty() || steps_.back().first < step) steps_.push_back({step, absl::ZeroDuration()});
  steps_.back().second += amount;
  sum_ += amount;
}

absl::Duration SlidingSecond::Sum(Time now) {
  Forget(now);
  return sum_;
}

CheckedGate::CheckedGate(const gpu::GateOptions& options, bool latency_capable, Plant plant, const EventLoop& loop,
                         Failure& failure)
    : options_(options), latency_capable_(latency_capable), loop_(loop), failure_(failure), gate_(options, plant) {
  gate_.SetLatencyCapable(latency_capable);
}

absl::Duration CheckedGate::window() const {
  return latency_capable_ ? options_.compute_window : options_.idle_compute_window;
}

gpu::GateToken CheckedGate::Announce(Time ready_at) {
  const gpu::GateToken token = gate_.Announce(loop_.now(), ready_at);
  if (!token) {
    if (tokens_.size() < gpu::Gate::kMaxTokens) failure_.Report(loop_.now(), "no token while there is room");
    ++counted_.untracked_tokens;
  } else if (!tokens_.try_emplace(token.value, Token{ready_at}).second) {
    failure_.Report(loop_.now(), "a token was given twice");
  }
  return token;
}

void CheckedGate::Reannounce(gpu::GateToken token, Time ready_at) {
  gate_.Reannounce(token, ready_at);
  if (token) tokens_.at(token.value) = Token{ready_at};
}

void CheckedGate::EnterDevice(gpu::GateToken token) {
  gate_.EnterDevice(token);
  if (token) tokens_.at(token.value).entered = true;
  ++on_device_;
  if (gate_.latency_on_device() != on_device_) failure_.Report(loop_.now(), "wrong count of requests on the device");
}

void CheckedGate::Release(gpu::GateToken token, bool entered_device) {
  gate_.Release(token, entered_device, loop_.now());
  if (entered_device) --on_device_;
  if (token) tokens_.erase(token.value);
  if (gate_.latency_on_device() != on_device_) failure_.Report(loop_.now(), "wrong count of requests on the device");
}

Time CheckedGate::EarliestReady() const {
  Time earliest = Time::Infinite();
  for (const auto& [value, token] : tokens_) {
    const bool lapsed = token.ready_at + options_.compute_window <= loop_.now();
    if (!token.entered && !lapsed) earliest = std::min(earliest, token.ready_at);
  }
  return earliest;
}

/// The gate notices that a token has lapsed when it is next asked for a grant.
void CheckedGate::CountLapsed() {
  for (auto& [value, token] : tokens_) {
    if (token.entered || token.counted_as_lapsed || token.ready_at + options_.compute_window > loop_.now()) continue;
    token.counted_as_lapsed = true;
    ++counted_.lapsed_tokens;
  }
}

bool CheckedGate::HasRoom(gpu::Engine engine, absl::Duration cost) const {
  const EngineBooks& engine_books = books_[static_cast<size_t>(engine)];
  if (engine_books.in_flight_count == 0) return true;
  if (engine != gpu::Engine::kCompute) return engine_books.in_flight_count < options_.copy_window;
  if (engine_books.in_flight + cost <= window()) return true;
  if (options_.handover == absl::ZeroDuration()) return false;
  if (engine_books.in_flight_count > (cost > window() / 4 * 3 ? 2 : 1)) return false;
  const Time since = std::max(engine_books.newest_grant, engine_books.last_completion);
  return engine_books.in_flight - (loop_.now() - since) <= options_.handover;
}

gpu::Grant CheckedGate::TryGrant(gpu::Engine engine, RequestClass request_class, absl::Duration predicted) {
  const Time now = loop_.now();
  const absl::Duration cost = std::max(predicted, kLeastCost);
  CountLapsed();
  NoteLongUnit();
  const bool blocked = on_device_ > 0 || now + books(engine).in_flight + cost > EarliestReady();
  const gpu::Grant grant = gate_.TryGrant(engine, request_class, predicted, now);
  const bool batch = request_class == RequestClass::kBatch;
  // With a unit of its own in flight batch is not held back by the gate, though the device may let it starve.
  const bool held_back = (blocked || standard_waiting_ > 0 || !HasRoom(engine, cost)) && !books(engine).batch_in_flight;
  if (grant.granted) {
    ++counted_.granted;
    if (grant.owed) ++counted_.owed_grants;
    CheckGranted(engine, request_class, cost, blocked, grant.owed);
  } else {
    ++counted_.refused;
    CheckRefused(engine, request_class, cost, blocked, grant.retry_at);
  }
  if (batch) NoteBatchAnswer(engine, cost, grant.granted, held_back);
  if (grant.granted) {
    EngineBooks& engine_books = books(engine);
    engine_books.in_flight += cost;
    ++engine_books.in_flight_count;
    engine_books.newest_grant = now;
    if (batch) ++engine_books.batch_in_flight;
  }
  return grant;
}

void CheckedGate::CheckGranted(gpu::Engine engine, RequestClass request_class, absl::Duration cost, bool blocked,
                               bool owed) {
  const Time now = loop_.now();
  const bool batch = request_class == RequestClass::kBatch;
  if (blocked && !owed) failure_.Report(now, "granted against a token: ", on_device_, " on the device");
  if (owed && !blocked) failure_.Report(now, "counted as owed although no token was in the way");
  if (owed && (!batch || options_.batch_min_share == 0)) failure_.Report(now, "owed to what has no floor");
  if (!HasRoom(engine, cost)) failure_.Report(now, "granted past the window of engine ", static_cast<int>(engine));
  if (!batch || engine != gpu::Engine::kCompute) return;
  longest_batch_unit_ = std::max(longest_batch_unit_, cost);
  if (!blocked && standard_waiting_ == 0) return;
  // What batch takes from others is its floor: at most what a second owes, a second's debt from before, and a unit or
  // two. The debt is paid in measured time, which may be 2.5 times shorter than the predicted time counted here.
  batch_got_against_others_.Add(now, cost);
  const absl::Duration limit = absl::Seconds(1) * options_.batch_min_share * 2 * 2.5 + longest_batch_unit_ * 2 +
                               window() + SlidingSecond::kStep * 0.1;
  if (batch_got_against_others_.Sum(now) > limit) {
    failure_.Report(now, "batch took ", absl::FormatDuration(batch_got_against_others_.Sum(now)),
                    " of one second from others, more than its floor");
  }
}

void CheckedGate::CheckRefused(gpu::Engine engine, RequestClass request_class, absl::Duration cost, bool blocked,
                               Time retry_at) {
  const Time now = loop_.now();
  if (retry_at <= now) failure_.Report(now, "refused, and told to ask again at once");
  // Nothing notifies when a token lapses: only the time that was told does. (A full window does notify.)
  if (blocked && on_device_ == 0 && HasRoom(engine, cost) && retry_at > EarliestReady() + options_.compute_window) {
    failure_.Report(now, "told to ask again only after the token has lapsed");
  }
  // Standard also waits for the turn of an owed batch unit, which only the gate knows.
  const bool behind_others =
      request_class == RequestClass::kBatch ? standard_waiting_ > 0 : batch_pending_ && options_.batch_min_share > 0;
  if (!blocked && !behind_others && HasRoom(engine, cost)) failure_.Report(now, "refused without a cause");
}

void CheckedGate::NoteBatchAnswer(gpu::Engine engine, absl::Duration cost, bool granted, bool held_back) {
  if (engine != gpu::Engine::kCompute) return;
  longest_asked_batch_unit_ = std::max(longest_asked_batch_unit_, cost);
  const Time now = loop_.now();
  EngineBooks& engine_books = books(engine);
  if (!engine_books.held_since.is_infinite()) {
    held_.Add(now, now - engine_books.held_since);
    engine_books.held_since = Time::Infinite();
  }
  if (granted) {
    batch_got_.Add(now, cost);
  } else if (held_back) {
    engine_books.held_since = now;
  }
  CheckFloor();
}

void CheckedGate::NoteLongUnit() {
  const EngineBooks& compute = books(gpu::Engine::kCompute);
  if (compute.in_flight_count == 0 || !batch_pending_) return;
  if (loop_.now() - std::max(compute.newest_grant, compute.last_completion) > kLongUnit) pending_since_ = loop_.now();
}

void CheckedGate::CheckFloor() {
  const Time now = loop_.now();
  if (now < next_floor_check_ || now - pending_since_ < absl::Milliseconds(1'020)) return;
  next_floor_check_ = now + SlidingSecond::kStep;
  // A unit may wait max_owed_wait for a quiet moment and as long again for room; the unit being saved up for is not
  // paid yet; what is in flight is charged as predicted.
  const absl::Duration tolerance = options_.batch_min_share * (options_.max_owed_wait * 2 + SlidingSecond::kStep * 2) +
                                   longest_asked_batch_unit_ * 2 + window();
  const absl::Duration owed = held_.Sum(now) * options_.batch_min_share;
  if (batch_got_.Sum(now) + tolerance < owed) {
    failure_.Report(now, "batch got ", absl::FormatDuration(batch_got_.Sum(now)),
                    " of one second, but was held back for ", absl::FormatDuration(held_.Sum(now)));
  }
}

void CheckedGate::Complete(gpu::Engine engine, RequestClass request_class, absl::Duration predicted,
                           absl::Duration measured) {
  gate_.Complete(engine, request_class, predicted, measured, loop_.now());
  NoteLongUnit();
  EngineBooks& engine_books = books(engine);
  const absl::Duration cost = std::max(predicted, kLeastCost);
  engine_books.in_flight -= cost;
  --engine_books.in_flight_count;
  if (measured > absl::ZeroDuration()) engine_books.last_completion = loop_.now();
  if (request_class != RequestClass::kBatch) return;
  --engine_books.batch_in_flight;
  if (engine == gpu::Engine::kCompute) batch_got_.Add(loop_.now(), measured - cost);
}

void CheckedGate::SetBatchPending(bool pending) {
  gate_.SetBatchPending(pending, loop_.now());
  batch_pending_ = pending;
  pending_since_ = pending ? loop_.now() : Time::Infinite();
  EngineBooks& compute = books(gpu::Engine::kCompute);
  if (!pending && !compute.held_since.is_infinite()) {
    held_.Add(loop_.now(), loop_.now() - compute.held_since);
    compute.held_since = Time::Infinite();
  }
}

void CheckedGate::SetStandardWaiting(int delta) {
  gate_.SetStandardWaiting(delta);
  standard_waiting_ += delta;
}

void CheckedGate::CheckAtEnd() {
  const Time now = loop_.now();
  if (!tokens_.empty() || on_device_ != 0) failure_.Report(now, "tokens are left: a simulation error");
  if (gate_.latency_on_device() != 0) failure_.Report(now, "requests are left on the device");
  for (const gpu::Engine engine : {gpu::Engine::kCompute, gpu::Engine::kHostToDevice, gpu::Engine::kDeviceToHost}) {
    if (gate_.in_flight_count(engine) != 0 || gate_.in_flight_time(engine) != absl::ZeroDuration()) {
      failure_.Report(now, "something is left in the window of engine ", static_cast<int>(engine));
    }
  }
  const gpu::GateCounters counters = gate_.counters();
  if (counters.granted != counted_.granted || counters.refused != counted_.refused ||
      counters.owed_grants != counted_.owed_grants || counters.untracked_tokens != counted_.untracked_tokens ||
      counters.lapsed_tokens != counted_.lapsed_tokens) {
    failure_.Report(now, "the gate's counters differ from what was seen: granted ", counters.granted, " ",
                    counted_.granted, ", refused ", counters.refused, " ", counted_.refused, ", owed ",
                    counters.owed_grants, " ", counted_.owed_grants, ", lapsed ", counters.lapsed_tokens, " ",
                    counted_.lapsed_tokens);
  }
  CheckPlaces();
}

/// A place that was not given back shows when all are taken.
void CheckedGate::CheckPlaces() {
  std::vector<gpu::GateToken> tokens;
  while (tokens.size() < gpu::Gate::kMaxTokens) {
    const gpu::GateToken token = gate_.Announce(loop_.now(), Time::Infinite());
    if (!token) break;
    tokens.push_back(token);
  }
  if (tokens.size() < gpu::Gate::kMaxTokens) {
    failure_.Report(loop_.now(), gpu::Gate::kMaxTokens - tokens.size(), " places for tokens were never given back");
  }
  for (const gpu::GateToken token : tokens) gate_.Release(token, false, loop_.now());
}

}  // namespace sluice::sim
