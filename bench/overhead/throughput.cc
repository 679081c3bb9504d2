// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/overhead/throughput.h"

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "bench/overhead/caller.h"
#include "bench/overhead/echo_process.h"
#include "client/async_client.h"
#include "client/histogram.h"

namespace sluice::bench {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(30);

/// Connections to one server that each call again as soon as they are answered, for a turn at a time. Threads: one
/// runs it; answers come on those of its client.
class Crowd {
 public:
  static absl::StatusOr<std::unique_ptr<Crowd>> Connect(const std::string& address, client::EncodedRequest request,
                                                        const ThroughputSettings& settings) {
    client::ClientOptions options;
    options.address = address;
    options.channel_count = settings.connections;
    SLUICE_ASSIGN_OR_RETURN(auto client, client::AsyncClient::Connect(options, settings.client_threads));
    return std::unique_ptr<Crowd>(new Crowd(std::move(client), std::move(request), settings));
  }

  /// Calls a second.
  double Turn() {
    const Time begin = clock_.Now();
    {
      MutexLock lock(mutex_);
      counted_from_ = begin + settings_.turn / 5;
      end_ = begin + settings_.turn;
      counted_ = 0;
      calling_ = settings_.connections;
    }
    for (int i = 0; i < settings_.connections; ++i) Call();
    MutexLock lock(mutex_);
    while (calling_ > 0) all_over_.Wait(mutex_);
    return static_cast<double>(counted_) / absl::ToDoubleSeconds(end_ - counted_from_);
  }

  client::Histogram latencies() {
    MutexLock lock(mutex_);
    return latencies_;
  }
  uint64_t failed() {
    MutexLock lock(mutex_);
    return failed_;
  }

 private:
  Crowd(std::unique_ptr<client::AsyncClient> client, client::EncodedRequest request, const ThroughputSettings& settings)
      : settings_(settings), request_(std::move(request)), client_(std::move(client)) {}

  void Call() {
    const Time begin = clock_.Now();
    client_->StartInfer(request_, kDeadline, settings_.request_class,
                        [this, begin](const client::AsyncAnswer& answer) { Answered(begin, answer); });
  }

  void Answered(Time begin, const client::AsyncAnswer& answer) {
    {
      MutexLock lock(mutex_);
      if (!answer.status.ok()) {
        ++failed_;
      } else if (answer.answered >= counted_from_ && answer.answered < end_) {
        ++counted_;
        latencies_.Record(answer.answered - begin);
      }
      // A server that refuses at once is not asked again and again within the turn.
      if (!answer.status.ok() || answer.answered >= end_) {
        if (--calling_ == 0) all_over_.NotifyAll();
        return;
      }
    }
    Call();
  }

  const ThroughputSettings settings_;
  const client::EncodedRequest request_;
  const MonotonicClock clock_;
  Mutex mutex_;
  CondVar all_over_;
  Time counted_from_ ABSL_GUARDED_BY(mutex_), end_ ABSL_GUARDED_BY(mutex_);
  uint64_t counted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;
  int calling_ ABSL_GUARDED_BY(mutex_) = 0;
  client::Histogram latencies_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<client::AsyncClient> client_;  // last: its threads use the rest
};

/// A server and its echo, and what their turns came to.
struct Sides {
  static absl::StatusOr<Sides> Make(const ThroughputSettings& settings, const Target& target,
                                    const std::string& model) {
    Sides sides;
    sides.result.server = target.name;
    sides.result.model = model;
    SLUICE_ASSIGN_OR_RETURN(const client::EncodedRequest request, MakeProbe(target.address, model));
    SLUICE_ASSIGN_OR_RETURN(const auto caller, Caller::Connect(target.address));
    SLUICE_ASSIGN_OR_RETURN(const Caller::Answer first, caller->Call(request.bytes(), settings.request_class));
    SLUICE_ASSIGN_OR_RETURN(sides.echo, EchoProcess::Start(first.body, settings.echo_threads));
    SLUICE_ASSIGN_OR_RETURN(sides.product_crowd, Crowd::Connect(target.address, request, settings));
    SLUICE_ASSIGN_OR_RETURN(sides.echo_crowd, Crowd::Connect(sides.echo->address(), request, settings));
    return sides;
  }

  void Round() {
    rates.push_back(product_crowd->Turn());
    echo_rates.push_back(echo_crowd->Turn());
    if (echo_rates.back() > 0) ratios.push_back(rates.back() / echo_rates.back());
  }

  Throughput Finish() {
    result.rate = Quantile(rates, 0.5);
    result.echo_rate = Quantile(echo_rates, 0.5);
    result.ratio = ratios.empty() ? 0 : Quantile(ratios, 0.5);
    result.p99_us = absl::ToDoubleMicroseconds(product_crowd->latencies().Quantile(0.99));
    result.echo_p99_us = absl::ToDoubleMicroseconds(echo_crowd->latencies().Quantile(0.99));
    result.failed = product_crowd->failed() + echo_crowd->failed();
    return result;
  }

  std::unique_ptr<EchoProcess> echo;
  std::unique_ptr<Crowd> product_crowd, echo_crowd;
  std::vector<double> rates, echo_rates, ratios;
  Throughput result;
};

}  // namespace

absl::StatusOr<std::vector<Throughput>> MeasureThroughput(const ThroughputSettings& settings,
                                                          const std::vector<Target>& targets,
                                                          const std::string& model) {
  std::vector<Sides> all;
  for (const Target& target : targets) {
    SLUICE_ASSIGN_OR_RETURN(Sides sides, Sides::Make(settings, target, model));
    all.push_back(std::move(sides));
  }
  for (int round = 0; round < settings.rounds; ++round) {
    for (Sides& sides : all) sides.Round();
  }
  std::vector<Throughput> results;
  for (Sides& sides : all) results.push_back(sides.Finish());
  return results;
}

}  // namespace sluice::bench
