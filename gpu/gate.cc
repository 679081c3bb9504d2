// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gate.h"

#include <algorithm>
#include <bit>

// Memory order and races.
//
// Tokens against grants. EnterDevice raises on_device_ before it clears the place's ready_ns (release); TryGrant reads
// the places first and on_device_ after them (acquire). So a token is seen announced or seen on the device, never as
// neither. A grant decided before Announce or EnterDevice became visible is in flight like any other granted a moment
// earlier: at most one decision of each asking thread, each inside its window.
//
// Windows. Count and predicted time are one word, and room is decided in the compare-and-swap that takes it, so that
// any number of askers together never exceed it.
//
// Waiting. Arm and WakeWaiters are read-modify-writes of armed_ and so have an order: if the waker's comes first, the
// waiter's Arm acquires what was changed before it, and the second question sees it; otherwise the waker sees the bit.
//
// Floor. Debt, its clock and owed_since_ns are separate atomics. Batch is asked for by one launcher, so in practice one
// thread writes them (Complete adds from others). Racing askers may lose one step of accounting (at most the time
// between two questions) or keep an owed_since_ns a question too long; they cannot corrupt: every value is bounded
// when written, and the grant itself still goes through Reserve.
//
// Handover. When the newest unit was granted and when one was last seen to end are hints: a racing asker may see the
// time of another grant and judge a unit younger or older than it is, by at most the time between two questions; the
// place itself is taken in the compare-and-swap, which fails when anything came or went meanwhile.
//
// Relaxed: counters, use counts (owned by who claimed the place), and hints.

namespace sluice::gpu {
namespace {

constexpr uint32_t kIndexBits = 9;
constexpr uint32_t kIndexMask = (1u << kIndexBits) - 1;
constexpr uint32_t kUseMask = (1u << 22) - 1;
constexpr uint32_t kEntered = 1u << 31;

constexpr int kCountShift = 48;
constexpr uint64_t kTimeMask = (uint64_t{1} << kCountShift) - 1;
constexpr uint64_t kMaxCount = 0xffff;

constexpr int64_t kOneSecondNs = 1'000'000'000;
// However short a unit is said to be, it takes a place.
constexpr int64_t kLeastCostNs = 1'000;
constexpr int64_t kMostCostNs = 100 * kOneSecondNs;
constexpr absl::Duration kUnregisteredPoll = absl::Microseconds(200);

int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

void RaiseTo(std::atomic<int64_t>& value, int64_t floor) {
  int64_t old = value.load(std::memory_order_relaxed);
  while (old < floor && !value.compare_exchange_weak(old, floor, std::memory_order_relaxed)) {
  }
}

}  // namespace

Gate::Gate(const GateOptions& options)
    : options_(options),
      window_ns_(std::clamp(absl::ToInt64Nanoseconds(options.compute_window), kLeastCostNs, kMostCostNs)),
      idle_window_ns_(absl::ToInt64Nanoseconds(options.idle_compute_window)),
      handover_ns_(std::clamp(absl::ToInt64Nanoseconds(options.handover), int64_t{0}, kMostCostNs)),
      owed_wait_ns_(absl::ToInt64Nanoseconds(options.max_owed_wait)),
      debt_bound_ns_(static_cast<int64_t>(std::clamp(options.batch_min_share, 0.0, 1.0) * kOneSecondNs)) {}

int64_t Gate::Cost(absl::Duration predicted) const {
  if (predicted <= absl::ZeroDuration()) return window_ns_;
  return std::clamp(absl::ToInt64Nanoseconds(predicted), kLeastCostNs, kMostCostNs);
}

GateToken Gate::Announce(Time now, Time ready_at) {
  // Starts at a place that depends on the time, so that threads announcing at once rarely want the same word.
  const auto start = static_cast<uint32_t>(now.nanoseconds() >> 10);
  for (uint32_t i = 0; i < kTokenWords; ++i) {
    const uint32_t word = (start + i) % kTokenWords;
    uint64_t bits = claimed_[word].load(std::memory_order_relaxed);
    while (bits != ~uint64_t{0}) {
      const int bit = std::countr_one(bits);
      // Acquires what Release left in the place.
      if (!claimed_[word].compare_exchange_weak(bits, bits | (uint64_t{1} << bit), std::memory_order_acq_rel)) continue;
      const uint32_t index = word * 64 + static_cast<uint32_t>(bit);
      TokenPlace& place = places_[index];
      const uint32_t use = (place.use_count.load(std::memory_order_relaxed) + 1) & kUseMask;
      place.use_count.store(use, std::memory_order_relaxed);
      const GateToken token{(use << kIndexBits) | (index + 1)};
      place.owner.store(token.value, std::memory_order_release);
      place.ready_ns.store(ready_at.nanoseconds(), std::memory_order_release);
      return token;
    }
  }
  untracked_tokens_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

void Gate::Reannounce(GateToken token, Time ready_at) {
  if (!token) return;
  TokenPlace& place = places_[(token.value & kIndexMask) - 1];
  // Called by the request's own thread, which is also the one that would enter or release it.
  if (place.owner.load(std::memory_order_acquire) != token.value) return;
  place.ready_ns.store(ready_at.nanoseconds(), std::memory_order_release);
  WakeWaiters();
}

void Gate::CountIn() {
  const bool first = on_device_.fetch_add(1, std::memory_order_acq_rel) == 0;
  if (!first || timeline_ == nullptr || !timeline_->recording()) return;
  closed_since_ns_.store(timeline_->Now().nanoseconds(), std::memory_order_release);
}

void Gate::CountOut() {
  if (timeline_ == nullptr || !timeline_->recording()) {
    on_device_.fetch_sub(1, std::memory_order_acq_rel);
    return;
  }
  // Read first: once the count is 0 the next one to enter may write it. It is missing here only when who wrote it did
  // so after this load and has left since.
  int64_t since = closed_since_ns_.load(std::memory_order_acquire);
  if (on_device_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (since == 0) since = closed_since_ns_.load(std::memory_order_acquire);
  TimelineRecord record;
  record.start = Time::FromNanoseconds(since);
  record.end = timeline_->Now();
  record.kind = SpanKind::kGateClosed;
  record.request_class = RequestClass::kLatency;
  closed_since_ns_.compare_exchange_strong(since, 0, std::memory_order_acq_rel);
  // Closed before the recording began: nobody knows since when.
  if (record.start >= timeline_->started() && record.start <= record.end) timeline_->Add(record);
}

void Gate::EnterDevice(GateToken token) {
  CountIn();
  if (token) {
    TokenPlace& place = places_[(token.value & kIndexMask) - 1];
    int64_t ready = place.ready_ns.load(std::memory_order_acquire);
    uint32_t expected = token.value;
    if (!place.owner.compare_exchange_strong(expected, token.value | kEntered, std::memory_order_acq_rel)) {
      CountOut();
      WakeWaiters();
      return;
    }
    // Only the time that was read: were the token released right here, the place may have a new one.
    place.ready_ns.compare_exchange_strong(ready, kNever, std::memory_order_acq_rel);
  }
  entries_.fetch_add(1, std::memory_order_acq_rel);
}

void Gate::Release(GateToken token, bool entered_device) {
  if (!token) {
    if (!entered_device) return;
    CountOut();
  } else {
    const uint32_t index = (token.value & kIndexMask) - 1;
    TokenPlace& place = places_[index];
    uint32_t owner = place.owner.load(std::memory_order_acquire);
    do {
      if ((owner & ~kEntered) != token.value) return;  // Released before.
    } while (!place.owner.compare_exchange_weak(owner, 0, std::memory_order_acq_rel));
    place.ready_ns.store(kNever, std::memory_order_release);
    if ((owner & kEntered) != 0) CountOut();
    claimed_[index / 64].fetch_and(~(uint64_t{1} << (index % 64)), std::memory_order_acq_rel);
  }
  WakeWaiters();
}

/// The earliest ready_at of announced tokens, after those whose time is long over have lapsed. Reads only places in
/// use: with none announced it is four loads of one cache line.
int64_t Gate::EarliestReady(int64_t now_ns) {
  int64_t earliest = kNever;
  for (uint32_t word = 0; word < kTokenWords; ++word) {
    for (uint64_t bits = claimed_[word].load(std::memory_order_acquire); bits != 0; bits &= bits - 1) {
      TokenPlace& place = places_[word * 64 + static_cast<uint32_t>(std::countr_zero(bits))];
      int64_t ready = place.ready_ns.load(std::memory_order_acquire);
      if (SaturatingAdd(ready, window_ns_) <= now_ns) {
        // Takes away the very time that was read: a new token in this place, or a renewal, has another and stays.
        if (place.ready_ns.compare_exchange_strong(ready, kNever, std::memory_order_acq_rel)) {
          lapsed_tokens_.fetch_add(1, std::memory_order_relaxed);
          continue;
        }
      }
      earliest = std::min(earliest, ready);
    }
  }
  return earliest;
}

/// Of what is in flight: it runs since the newest of it was granted, or since the one before it was seen to end.
bool Gate::AboutToEnd(const EngineState& engine, int64_t in_flight_ns, int64_t now_ns) const {
  if (handover_ns_ == 0) return false;
  const int64_t since = std::max(engine.newest_grant_ns.load(std::memory_order_relaxed),
                                 engine.last_completion_ns.load(std::memory_order_relaxed));
  return in_flight_ns - (now_ns - since) <= handover_ns_;
}

Gate::Room Gate::Reserve(Engine engine, int64_t cost_ns, int64_t time_left_ns, int64_t now_ns) {
  EngineState& engine_state = state(engine);
  std::atomic<uint64_t>& in_flight = engine_state.in_flight;
  const int64_t window = latency_capable_.load(std::memory_order_relaxed) ? window_ns_ : idle_window_ns_;
  uint64_t old = in_flight.load(std::memory_order_acquire);
  while (true) {
    const uint64_t count = old >> kCountShift;
    const auto before = static_cast<int64_t>(old & kTimeMask);
    const int64_t sum = before + cost_ns;
    if (sum > time_left_ns) return Room::kTooLate;
    if (count > 0) {
      const bool room = engine == Engine::kCompute
                            ? sum <= window || ((count == 1 || (count == 2 && cost_ns > window / 4 * 3)) &&
                                                AboutToEnd(engine_state, before, now_ns))
                            : count < static_cast<uint64_t>(std::max(options_.copy_window, 1));
      if (!room || count >= kMaxCount || sum > static_cast<int64_t>(kTimeMask)) return Room::kWindowFull;
    }
    const uint64_t wanted = ((count + 1) << kCountShift) | static_cast<uint64_t>(sum);
    if (in_flight.compare_exchange_weak(old, wanted, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return Room::kReserved;
    }
  }
}

void Gate::AddDebt(EngineState& engine, int64_t delta_ns) const {
  int64_t old = engine.debt_ns.load(std::memory_order_relaxed);
  while (!engine.debt_ns.compare_exchange_weak(old, std::clamp(old + delta_ns, int64_t{0}, debt_bound_ns_),
                                               std::memory_order_relaxed)) {
  }
}

/// Adds what batch is owed since the last look, and returns when that was.
int64_t Gate::AccountDebt(EngineState& engine, int64_t now_ns) const {
  int64_t until = engine.accounted_until_ns.load(std::memory_order_relaxed);
  if (now_ns > until && engine.accounted_until_ns.compare_exchange_strong(until, now_ns, std::memory_order_relaxed)) {
    const int64_t elapsed = now_ns - until;
    if (engine.held_back.load(std::memory_order_relaxed)) {
      AddDebt(engine, static_cast<int64_t>(static_cast<double>(std::min(elapsed, kOneSecondNs)) *
                                           static_cast<double>(debt_bound_ns_) / kOneSecondNs));
    } else if (elapsed > kOneSecondNs) {
      engine.debt_ns.store(0, std::memory_order_relaxed);  // The second the debt was about is over.
    }
  }
  return until;
}

Gate::Floor Gate::UpdateFloor(Engine engine, int64_t cost_ns, int64_t now_ns) {
  if (debt_bound_ns_ == 0 || !batch_pending_.load(std::memory_order_relaxed)) return {};
  EngineState& floor = state(engine);
  const bool held_back = floor.held_back.load(std::memory_order_relaxed);
  const int64_t until = AccountDebt(floor, now_ns);
  const int64_t debt = floor.debt_ns.load(std::memory_order_relaxed);
  const int64_t needed = std::min(cost_ns, debt_bound_ns_);
  const double ns_per_debt = static_cast<double>(kOneSecondNs) / static_cast<double>(debt_bound_ns_);
  if (debt < needed) {
    floor.owed_since_ns.store(kNever, std::memory_order_relaxed);
    // One more nanosecond than needed, so that a question asked exactly then finds the debt covered after rounding.
    const int64_t owed_at =
        SaturatingAdd(now_ns, static_cast<int64_t>(static_cast<double>(needed - debt + 1) * ns_per_debt));
    return {.owed = false, .owed_at_ns = owed_at, .overdue_at_ns = SaturatingAdd(owed_at, owed_wait_ns_)};
  }
  int64_t since = floor.owed_since_ns.load(std::memory_order_relaxed);
  if (since == kNever) {
    // The asker may have slept over the moment the debt came to cover the unit: it is owed since then.
    const auto ago = static_cast<int64_t>(static_cast<double>(debt - needed) * ns_per_debt);
    since = held_back ? std::max(now_ns - ago, std::min(until, now_ns)) : now_ns;
    floor.owed_since_ns.store(since, std::memory_order_relaxed);
  }
  return {.owed = true, .owed_at_ns = since, .overdue_at_ns = SaturatingAdd(since, owed_wait_ns_)};
}

void Gate::HoldBack(EngineState& engine) {
  engine.held_back.store(batch_pending_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

Grant Gate::Refuse(int64_t retry_ns) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  return {.granted = false, .owed = false, .retry_at = Time::FromNanoseconds(retry_ns)};
}

/// Rules 1 and 2, and standard's side of the floor.
Gate::Verdict Gate::Judge(Engine engine, RequestClass request_class, int64_t cost_ns, int64_t now_ns) {
  Verdict verdict;
  const EngineState& engine_state = state(engine);
  const bool batch = request_class == RequestClass::kBatch;
  if (batch) verdict.floor = UpdateFloor(engine, cost_ns, now_ns);
  const bool overdue = verdict.floor.overdue_at_ns <= now_ns;
  const int64_t ready = EarliestReady(now_ns);
  const bool on_device = on_device_.load(std::memory_order_acquire) > 0;
  const auto in_flight_ns = static_cast<int64_t>(engine_state.in_flight.load(std::memory_order_acquire) & kTimeMask);
  verdict.against_token = on_device || SaturatingAdd(now_ns, in_flight_ns + cost_ns) > ready;
  if (verdict.against_token && !overdue) {
    verdict.refused = true;
    // At worst the token lapses; the asker looks again then.
    verdict.retry_ns = std::min(on_device ? kNever : SaturatingAdd(ready, window_ns_), verdict.floor.overdue_at_ns);
    return verdict;
  }
  if (ready != kNever && !overdue) verdict.time_left_ns = ready - now_ns;
  if (batch) {
    verdict.against_standard = standard_waiting_.load(std::memory_order_acquire) > 0;
    verdict.refused = verdict.against_standard && !verdict.floor.owed;
    verdict.retry_ns = verdict.floor.owed_at_ns;
  } else {
    verdict.retry_ns = engine_state.turn_until_ns.load(std::memory_order_acquire);
    verdict.refused = now_ns < verdict.retry_ns;
  }
  return verdict;
}

Grant Gate::TryGrant(Engine engine, RequestClass request_class, absl::Duration predicted, Time now) {
  const bool batch = request_class == RequestClass::kBatch;
  const int64_t now_ns = now.nanoseconds();
  const int64_t cost_ns = Cost(predicted);
  EngineState& engine_state = state(engine);
  Verdict verdict;
  if (options_.enabled) verdict = Judge(engine, request_class, cost_ns, now_ns);
  if (verdict.refused) {
    if (batch) HoldBack(engine_state);
    return Refuse(verdict.retry_ns);
  }
  const Room room = Reserve(engine, cost_ns, verdict.time_left_ns, now_ns);
  if (room == Room::kTooLate) {  // Another asker was faster; what it took is over soon.
    if (batch) HoldBack(engine_state);
    return Refuse(SaturatingAdd(now_ns + verdict.time_left_ns, window_ns_));
  }
  if (room == Room::kWindowFull) {
    // Behind its own work batch is not held back any more than it was.
    if (!batch || engine_state.batch_in_flight.load(std::memory_order_relaxed) > 0) return Refuse(kNever);
    HoldBack(engine_state);
    if (!verdict.floor.owed) return Refuse(verdict.floor.owed_at_ns);
    // Standard threads ask the moment their own work completes and would win the room every time. The turn outlasts
    // what is in flight, which may be a unit longer than the wait.
    const auto in_flight_ns = static_cast<int64_t>(engine_state.in_flight.load(std::memory_order_acquire) & kTimeMask);
    engine_state.turn_until_ns.store(SaturatingAdd(now_ns + in_flight_ns, owed_wait_ns_), std::memory_order_release);
    return Refuse(kNever);
  }
  RaiseTo(engine_state.newest_grant_ns, now_ns);
  if (batch) {
    engine_state.batch_in_flight.fetch_add(1, std::memory_order_relaxed);
    // What only the floor allowed does not mean that the way is free.
    engine_state.held_back.store(verdict.against_token || verdict.against_standard, std::memory_order_relaxed);
    engine_state.turn_until_ns.store(0, std::memory_order_release);
    AddDebt(engine_state, -cost_ns);
  }
  granted_.fetch_add(1, std::memory_order_relaxed);
  if (verdict.against_token) owed_grants_.fetch_add(1, std::memory_order_relaxed);
  return {.granted = true, .owed = verdict.against_token, .retry_at = now};
}

void Gate::Complete(Engine engine, RequestClass request_class, absl::Duration predicted, absl::Duration measured,
                    Time now) {
  EngineState& engine_state = state(engine);
  const int64_t cost_ns = Cost(predicted);
  engine_state.in_flight.fetch_sub((uint64_t{1} << kCountShift) + static_cast<uint64_t>(cost_ns),
                                   std::memory_order_acq_rel);
  if (measured > absl::ZeroDuration()) RaiseTo(engine_state.last_completion_ns, now.nanoseconds());
  if (request_class == RequestClass::kBatch) {
    engine_state.batch_in_flight.fetch_sub(1, std::memory_order_relaxed);
    AddDebt(engine_state, cost_ns - std::min(absl::ToInt64Nanoseconds(measured), kMostCostNs));
  }
  WakeWaiters();
}

void Gate::SetBatchPending(bool pending, Time now) {
  batch_pending_.store(pending, std::memory_order_relaxed);
  if (pending) return;
  for (EngineState& engine : engines_) {
    // The debt stays for a second, so that work that comes in pieces keeps its share.
    AccountDebt(engine, now.nanoseconds());
    engine.held_back.store(false, std::memory_order_relaxed);
    engine.owed_since_ns.store(kNever, std::memory_order_relaxed);
    engine.turn_until_ns.store(0, std::memory_order_release);
  }
  WakeWaiters();
}

void Gate::SetLatencyCapable(bool any_latency_model) {
  latency_capable_.store(any_latency_model, std::memory_order_relaxed);
  WakeWaiters();
}

void Gate::SetStandardWaiting(int delta) {
  if (standard_waiting_.fetch_add(delta, std::memory_order_acq_rel) + delta == 0) WakeWaiters();
}

Time Gate::last_completion(Engine engine) const {
  return Time::FromNanoseconds(state(engine).last_completion_ns.load(std::memory_order_relaxed));
}

absl::Duration Gate::in_flight_time(Engine engine) const {
  return absl::Nanoseconds(static_cast<int64_t>(state(engine).in_flight.load(std::memory_order_acquire) & kTimeMask));
}

int Gate::in_flight_count(Engine engine) const {
  return static_cast<int>(state(engine).in_flight.load(std::memory_order_acquire) >> kCountShift);
}

GateCounters Gate::counters() const {
  return {.granted = granted_.load(std::memory_order_relaxed),
          .refused = refused_.load(std::memory_order_relaxed),
          .owed_grants = owed_grants_.load(std::memory_order_relaxed),
          .lapsed_tokens = lapsed_tokens_.load(std::memory_order_relaxed),
          .untracked_tokens = untracked_tokens_.load(std::memory_order_relaxed)};
}

void Gate::WakeWaiters() {
  for (uint64_t bits = armed_.exchange(0, std::memory_order_acq_rel); bits != 0; bits &= bits - 1) {
    wakeups_[static_cast<size_t>(std::countr_zero(bits))].Notify();
  }
}

GateWaiter::GateWaiter(Gate& gate) : gate_(gate) {
  uint64_t bits = gate_.registered_.load(std::memory_order_relaxed);
  while (bits != ~uint64_t{0}) {
    const int bit = std::countr_one(bits);
    if (!gate_.registered_.compare_exchange_weak(bits, bits | (uint64_t{1} << bit), std::memory_order_acq_rel)) {
      continue;
    }
    index_ = bit;
    wakeup_ = &gate_.wakeups_[static_cast<size_t>(bit)];
    return;
  }
}

GateWaiter::~GateWaiter() {
  if (index_ < 0) return;
  gate_.armed_.fetch_and(~(uint64_t{1} << index_), std::memory_order_acq_rel);
  gate_.registered_.fetch_and(~(uint64_t{1} << index_), std::memory_order_acq_rel);
}

void GateWaiter::Arm() {
  if (index_ >= 0) gate_.armed_.fetch_or(uint64_t{1} << index_, std::memory_order_acq_rel);
}

void GateWaiter::WaitUntil(Time now, Time deadline) {
  if (index_ < 0) deadline = std::min(deadline, now + kUnregisteredPoll);
  wakeup_->WaitUntil(deadline);
}

}  // namespace sluice::gpu
