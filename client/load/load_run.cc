// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/load_run.h"

#include <sys/prctl.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/load/schedule.h"
#include "client/pause.h"

namespace sluice::client {
namespace {

using Schedules = std::vector<std::vector<absl::Duration>>;

// How often a phase looks at what no due time announces: failed slots of closed loops, finished streams, progress.
constexpr absl::Duration kTick = absl::Milliseconds(10);

// One phase from its first request to its last answer.
class PhaseRun {
 public:
  PhaseRun(const LoadOptions& options, size_t phase_index, const Schedules& schedules,
           const std::vector<EncodedRequest>& requests, AsyncClient& client)
      : options_(options), phase_index_(phase_index), client_(client) {
    times_.start = last_report_ = clock_.Now();
    times_.measured_from = times_.start + options.warmup;
    times_.end = times_.measured_from + options.measured;
    const Phase phase = options.phases[phase_index];
    for (size_t i = 0; i < options.streams.size(); ++i) {
      const StreamSpec& spec = options.streams[i];
      if (!TakesPart(spec, phase)) continue;
      streams_.emplace_back(
          i, std::make_unique<LoadStream>(spec, options.SentClass(spec, phase), requests[i],
                                          spec.open_loop() ? &schedules[i] : nullptr, options.max_outstanding,
                                          options.default_deadline, options.timings,
                                          options.interval > absl::ZeroDuration(), times_, client));
    }
  }

  PhaseResult Run(OnProgress& on_progress) {
    const bool intervals = options_.interval > absl::ZeroDuration();
    const absl::Duration period = intervals ? options_.interval : absl::Seconds(1);
    Time next_progress = times_.start + period;
    for (Time now = clock_.Now(); now < times_.end && !AllFinished(); now = clock_.Now()) {
      Time wake = std::min(times_.end, now + kTick);
      for (auto& [index, stream] : streams_) {
        stream->Advance(now);
        wake = std::min(wake, stream->next_due());
      }
      if (now >= next_progress) {
        Report(on_progress, now);
        while (next_progress <= now) next_progress = next_progress + period;
      }
      PauseUntil(wake);
    }
    Drain();
    if (intervals) Report(on_progress, clock_.Now());
    PhaseResult result;
    result.phase = options_.phases[phase_index_];
    for (auto& [index, stream] : streams_) result.streams.push_back({index, stream->TakeResult()});
    return result;
  }

 private:
  bool AllFinished() const {
    return std::all_of(streams_.begin(), streams_.end(), [](const auto& entry) { return entry.second->finished(); });
  }

  void Report(OnProgress& on_progress, Time now) {
    if (!on_progress) return;
    Progress progress{phase_index_, options_.phases[phase_index_], now - times_.start, 0, false, {}};
    progress.warmup = last_report_ < times_.measured_from;
    last_report_ = now;
    for (const auto& [index, stream] : streams_) {
      progress.answered += stream->answered();
      if (options_.interval <= absl::ZeroDuration()) continue;
      progress.intervals.push_back(stream->TakeInterval());
      progress.intervals.back().stream_index = index;
    }
    on_progress(progress);
  }

  void Drain() {
    for (auto& [index, stream] : streams_) {
      stream->EndSending();
      stream->Advance(times_.end);
    }
    const Time deadline = clock_.Now() + options_.drain;
    bool idle = true;
    for (auto& [index, stream] : streams_) idle = stream->WaitIdle(deadline) && idle;
    if (idle) return;
    for (auto& [index, stream] : streams_) stream->Abandon();
    for (auto& [index, stream] : streams_) {
      // Repeated, since a call may be between being claimed and being started.
      do {
        client_.CancelAll();
      } while (!stream->WaitIdle(clock_.Now() + absl::Milliseconds(100)));
    }
  }

  const LoadOptions& options_;
  const size_t phase_index_;
  AsyncClient& client_;
  const MonotonicClock clock_;
  PhaseTimes times_;
  Time last_report_;
  std::vector<std::pair<size_t, std::unique_ptr<LoadStream>>> streams_;
};

}  // namespace

std::optional<RequestClass> LoadOptions::SentClass(const StreamSpec& stream, Phase phase) const {
  if (phase == Phase::kMixedStandard) return RequestClass::kStandard;
  return forced_class.has_value() ? forced_class : stream.request_class;
}

absl::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kAlone:
      return "alone";
    case Phase::kMixed:
      return "mixed";
    case Phase::kBatchAlone:
      return "batch-alone";
    case Phase::kMixedStandard:
      return "mixed-standard";
  }
  return "mixed";
}

absl::StatusOr<std::vector<Phase>> ParsePhases(absl::string_view text) {
  std::vector<Phase> phases;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    bool known = false;
    for (const Phase phase : {Phase::kAlone, Phase::kMixed, Phase::kBatchAlone, Phase::kMixedStandard}) {
      if (word != PhaseName(phase)) continue;
      phases.push_back(phase);
      known = true;
    }
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat("phases: '", word, "' is none of alone, mixed, batch-alone, mixed-standard"));
    }
  }
  return phases;
}

bool TakesPart(const StreamSpec& stream, Phase phase) {
  const bool latency = stream.request_class == RequestClass::kLatency;
  if (phase == Phase::kAlone) return latency;
  if (phase == Phase::kBatchAlone) return !latency;
  return true;
}

std::vector<Phase> DefaultPhases(const std::vector<StreamSpec>& streams) {
  const auto latency_count = std::count_if(streams.begin(), streams.end(),
                                           [](const StreamSpec& stream) { return TakesPart(stream, Phase::kAlone); });
  if (latency_count == 0 || static_cast<size_t>(latency_count) == streams.size()) return {Phase::kMixed};
  return {Phase::kAlone, Phase::kMixed, Phase::kAlone};
}

absl::StatusOr<std::vector<PhaseResult>> RunLoad(const LoadOptions& options,
                                                 const std::vector<EncodedRequest>& requests, AsyncClient& client,
                                                 OnProgress on_progress) {
  for (const Phase phase : options.phases) {
    const bool any = std::any_of(options.streams.begin(), options.streams.end(),
                                 [phase](const StreamSpec& stream) { return TakesPart(stream, phase); });
    if (!any) return absl::InvalidArgumentError(absl::StrCat("phase '", PhaseName(phase), "' has no stream to run"));
  }
  Schedules schedules(options.streams.size());
  for (size_t i = 0; i < options.streams.size(); ++i) {
    const StreamSpec& spec = options.streams[i];
    if (!spec.open_loop()) continue;
    SLUICE_ASSIGN_OR_RETURN(
        schedules[i], MakeSchedule(spec.rate, spec.arrivals, options.warmup + options.measured, options.seed + i));
  }
  // Timers of this thread may otherwise be 50 us late; refused only where nothing can be done about it.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  std::vector<PhaseResult> results;
  for (size_t i = 0; i < options.phases.size(); ++i) {
    results.push_back(PhaseRun(options, i, schedules, requests, client).Run(on_progress));
  }
  return results;
}

}  // namespace sluice::client
