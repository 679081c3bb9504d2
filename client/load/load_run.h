// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/request_class.h"
#include "client/async_client.h"
#include "client/load/load_stream.h"
#include "client/load/stream_spec.h"

namespace sluice::client {

/// What runs during a phase: the latency streams, everything, the other streams, or everything sent as standard.
enum class Phase { kAlone, kMixed, kBatchAlone, kMixedStandard };

absl::string_view PhaseName(Phase phase);
/// "alone,mixed,alone". INVALID_ARGUMENT names the word that is none of alone, mixed, batch-alone, mixed-standard.
absl::StatusOr<std::vector<Phase>> ParsePhases(absl::string_view text);
/// alone, mixed, alone when there are both latency and other streams; else one mixed phase.
std::vector<Phase> DefaultPhases(const std::vector<StreamSpec>& streams);
/// Whether a stream sends during a phase.
bool TakesPart(const StreamSpec& stream, Phase phase);

struct LoadOptions {
  std::vector<StreamSpec> streams;  ///< Names unique.
  std::vector<Phase> phases;
  absl::Duration warmup = absl::Seconds(2);     ///< At the start of each phase, under the same load, in no result.
  absl::Duration measured = absl::Seconds(10);  ///< Of each phase, after its warm-up.
  absl::Duration drain = absl::Seconds(10);     ///< The longest wait for answers after each phase.
  int max_outstanding = 256;                    ///< Per open-loop stream.
  uint64_t seed = 1;
  absl::Duration default_deadline = absl::Seconds(30);
  std::optional<RequestClass> forced_class;  ///< Sent instead of each stream's own class.
  bool timings = false;                      ///< The requests ask for the server's stage times.
  absl::Duration interval;                   ///< Progress tells what happened in each; zero: it only counts.

  /// The class a stream's requests carry in a phase; none lets the server decide.
  std::optional<RequestClass> SentClass(const StreamSpec& stream, Phase phase) const;
};

struct PhaseResult {
  Phase phase = Phase::kMixed;
  struct Stream {
    size_t index = 0;  ///< Into LoadOptions::streams.
    StreamResult result;
  };
  std::vector<Stream> streams;
};

/// Called about once a second while a phase runs, or once an interval and at its end.
struct Progress {
  size_t phase_index = 0;
  Phase phase = Phase::kMixed;
  absl::Duration elapsed;
  uint64_t answered = 0;
  bool warmup = false;  ///< It began in the warm-up.
  std::vector<IntervalResult> intervals;
};
using OnProgress = absl::AnyInvocable<void(const Progress&)>;

/// Runs all phases, one after the other, on the calling thread; `requests[i]` is what stream i sends. Every phase has
/// the same schedules. Request errors are results, not errors of the run; INVALID_ARGUMENT when a phase has no stream,
/// RESOURCE_EXHAUSTED when a schedule would be too long.
absl::StatusOr<std::vector<PhaseResult>> RunLoad(const LoadOptions& options,
                                                 const std::vector<EncodedRequest>& requests, AsyncClient& client,
                                                 OnProgress on_progress);

}  // namespace sluice::client
