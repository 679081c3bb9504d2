// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/request_class.h"
#include "server/metrics/family.h"
#include "server/metrics/histogram.h"
#include "server/metrics/model_metrics.h"
#include "server/metrics/server_cells.h"
#include "server/metrics/words.h"

namespace sluice::metrics {

struct MetricsOptions {
  std::vector<std::string> devices;  ///< Names, as in DeviceInfo; records refer to them by index.
  std::vector<absl::Duration> edges = DefaultEdges();
  std::string version = {};  ///< Of this build.
};

/// Called at every scrape, on the scraping thread.
using ReadingSource = absl::AnyInvocable<std::vector<ReadingSample>()>;

class Metrics;

/// Keeps a source registered; its destructor returns when the source is not running and will not run again.
class SourceRegistration {
 public:
  SourceRegistration() = default;
  SourceRegistration(SourceRegistration&&) = default;
  SourceRegistration& operator=(SourceRegistration&& other);
  ~SourceRegistration();

 private:
  friend class Metrics;
  struct Entry;
  explicit SourceRegistration(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}
  std::shared_ptr<Entry> entry_;
};

/// Everything the server counts. Purpose: count on the request's path without a lock, and sum at a scrape. Bounds:
/// label values are closed lists and the names of loaded models (at most kMaxModels, after that "_unknown"). Ownership:
/// owns all cells and ModelMetrics; they live as long as it. Threads: every method from any thread; the counting ones
/// take no lock and do not block; AddModel, AddSource and Collect take one and are not for a request's path.
class Metrics {
 public:
  static constexpr size_t kMaxModels = 1024;

  explicit Metrics(MetricsOptions options);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  ~Metrics();

  /// The counters of one version of a model; made at the first call, the same afterwards. Never null; the pointer is
  /// valid as long as this object.
  ModelMetrics* AddModel(absl::string_view name, int64_t version);
  /// For requests that name a model which is not loaded: shown as model="_unknown" in sluice_requests_total only.
  ModelMetrics* unknown_model() { return &unknown_; }

  /// `request_class` is empty when the class was not known yet.
  void OnRejected(std::optional<RequestClass> request_class, RejectReason reason) {
    cells_.rejected.Add(ClassIndex(request_class) * kRejectReasonCount + static_cast<size_t>(reason), 1);
  }
  /// Counted by the class it asked for.
  void OnDemoted(RequestClass wished, DemotionReason reason) {
    cells_.demoted.Add(ClassIndex(wished) * kDemotionReasonCount + static_cast<size_t>(reason), 1);
  }
  void OnExpired(std::optional<RequestClass> request_class, Phase at) {
    cells_.expired.Add(ClassIndex(request_class) * kPhaseCount + static_cast<size_t>(at), 1);
  }
  void OnCancelled(std::optional<RequestClass> request_class, Phase at) {
    cells_.cancelled.Add(ClassIndex(request_class) * kPhaseCount + static_cast<size_t>(at), 1);
  }

  /// Registers a source of readings. It may take its own locks, but must not destroy its own registration, nor wait for
  /// a thread that does. Samples with a wrong number of labels are dropped; of two with equal labels the later counts.
  [[nodiscard]] SourceRegistration AddSource(ReadingSource source);

  /// Statistics of every model version, by name and version.
  std::vector<ModelStatistics> Statistics(Time now, absl::Time wall_now) const;

  /// All families, each with at least one series, in a fixed order.
  std::vector<Family> Collect() const;

 private:
  std::vector<const ModelMetrics*> Models() const;
  std::vector<const NameCells*> Names() const;
  void CollectReadings(std::vector<Family>& families) const;

  const MetricsOptions options_;
  ServerCells cells_;
  NameCells unknown_name_;
  ModelMetrics unknown_;

  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<NameCells>> names_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, int64_t>, std::unique_ptr<ModelMetrics>> models_ ABSL_GUARDED_BY(mutex_);
  mutable std::vector<std::weak_ptr<SourceRegistration::Entry>> sources_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::metrics
