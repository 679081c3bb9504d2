// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/request_class.h"
#include "client/async_client.h"
#include "client/histogram.h"
#include "client/load/stream_spec.h"

namespace sluice::client {

/// The stage times that the server reported with its answers, beside what the client saw.
struct ServerTimes {
  Histogram total;  ///< From the complete message to the built response: what the server answers for.
  Histogram gpu;    ///< h2d + compute + d2h: what the request takes of the device when nothing is in its way.
  Histogram queue, copy_in, h2d, gpu_wait, compute, d2h;

  void Record(const StageTimings& timings);
};

/// What one stream did in the measured part of one phase. Requests count where they were meant to be sent; those of the
/// warm-up are in none of these numbers but `answered_in_window`.
struct StreamResult {
  Histogram latency;  ///< From the intended send time to the answer; successes only.
  Histogram service;  ///< From the actual send to the answer; successes only.
  Histogram lag;      ///< From the intended to the actual send: how late this generator was.
  uint64_t requests = 0;
  std::map<std::string, uint64_t> errors;  ///< By code. "UNFINISHED" had no answer when the phase's wait ended.
  uint64_t answered_in_window = 0;         ///< Successes that came back inside the measured time.
  uint64_t cap_hits = 0;                   ///< Requests that were due while the outstanding cap was reached.
  uint64_t other_class = 0;                ///< Answered under another class than the one asked for.
  absl::Duration window;                   ///< Length of the measured part.
  std::optional<ServerTimes> server;       ///< Of the successes, when the requests asked for them.

  uint64_t error_count() const;
};

/// What one stream's answers of one interval were, warm-up included.
struct IntervalResult {
  size_t stream_index = 0;  ///< Into LoadOptions::streams; RunLoad fills it in.
  Histogram latency;        ///< From the intended send time, of the successes.
  uint64_t errors = 0;
};

/// The times of one phase, on MonotonicClock's scale.
struct PhaseTimes {
  Time start;
  Time measured_from;
  Time end;
};

/// One stream while one phase runs.
/// Purpose: sends what is due, keeps the outstanding cap, records what comes back. A request that is due while the cap
/// is reached is sent as soon as an answer makes room; its latency still counts from when it was due. Bounds: at most
/// `max_outstanding` (open loop) or `concurrency` (closed loop) in flight; histograms of fixed size. Ownership: borrows
/// client, request and schedule; must outlive its answers (WaitIdle). Threads: Advance, EndSending, Abandon, WaitIdle,
/// TakeResult by one driver thread; answers arrive on the client's.
class LoadStream {
 public:
  /// `schedule` is for an open loop; null for a closed one. `timings`: the request asks for the server's stage times.
  LoadStream(const StreamSpec& spec, std::optional<RequestClass> sent_class, const EncodedRequest& request,
             const std::vector<absl::Duration>* schedule, int max_outstanding, absl::Duration default_deadline,
             bool timings, bool keep_intervals, const PhaseTimes& times, AsyncClient& client);

  /// Sends what is due at `now`; a closed loop refills slots that failed, which is what bounds the rate of failures.
  void Advance(Time now);
  /// When Advance has something to do next; infinite when only answers or the tick can move it.
  Time next_due() const;
  /// A closed loop with a request limit that has sent and received everything.
  bool finished() const;
  /// No new requests from a closed loop; an open loop still sends what was due.
  void EndSending();
  /// Counts what is unanswered or unsent as UNFINISHED from here on, and sends no more.
  void Abandon();
  /// Waits until nothing is in flight or until `deadline`; false when the deadline came first.
  bool WaitIdle(Time deadline);
  StreamResult TakeResult();

  uint64_t answered() const;

  /// The answers since the last call. Only for a stream made with `keep_intervals`.
  IntervalResult TakeInterval();

 private:
  /// Takes the next request that may be sent now, with a slot for it; its intended time.
  std::optional<Time> Claim(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump();
  void Send(Time intended);
  void OnAnswer(Time intended, Time sent, const AsyncAnswer& answer);
  bool Measured(Time time) const { return time >= times_.measured_from && time < times_.end; }
  /// What else the answer says: another class than the one asked for, and the stage times.
  struct Details {
    bool other_class = false;
    std::optional<StageTimings> timings;
  };
  Details ReadDetails(const AsyncAnswer& answer) const;

  const StreamSpec& spec_;
  const std::optional<RequestClass> sent_class_;
  const EncodedRequest& request_;
  const std::vector<absl::Duration>* const schedule_;
  const size_t most_outstanding_;
  const absl::Duration deadline_;
  const PhaseTimes times_;
  AsyncClient& client_;
  const MonotonicClock clock_;

  mutable Mutex mutex_;
  CondVar became_idle_;
  size_t due_ ABSL_GUARDED_BY(mutex_) = 0;   // Open loop: schedule entries whose time has come.
  size_t sent_ ABSL_GUARDED_BY(mutex_) = 0;  // Requests sent, so the next schedule entry to send.
  size_t outstanding_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t answered_ ABSL_GUARDED_BY(mutex_) = 0;
  bool sending_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  Time last_answer_ ABSL_GUARDED_BY(mutex_);
  StreamResult result_ ABSL_GUARDED_BY(mutex_);
  std::optional<IntervalResult> interval_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::client
