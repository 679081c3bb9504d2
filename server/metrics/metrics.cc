// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace sluice::metrics {

// Held while the source runs, so that a registration's destructor waits for it: what the source reads may be destroyed
// right after.
struct SourceRegistration::Entry {
  Mutex mutex;
  ReadingSource source ABSL_GUARDED_BY(mutex);
  bool removed ABSL_GUARDED_BY(mutex) = false;
};

SourceRegistration& SourceRegistration::operator=(SourceRegistration&& other) {
  std::swap(entry_, other.entry_);
  return *this;
}

SourceRegistration::~SourceRegistration() {
  if (entry_ == nullptr) return;
  MutexLock lock(entry_->mutex);
  entry_->removed = true;
}

Metrics::Metrics(MetricsOptions options)
    : options_(std::move(options)),
      cells_(options_.edges, options_.devices),
      unknown_name_("_unknown", options_.devices.size()),
      unknown_(cells_, unknown_name_, "") {}

Metrics::~Metrics() = default;

ModelMetrics* Metrics::AddModel(absl::string_view name, int64_t version) {
  const std::string label = SanitizeLabel(name);
  MutexLock lock(mutex_);
  const auto found = models_.find({label, version});
  if (found != models_.end()) return found->second.get();
  if (models_.size() >= kMaxModels) {
    Log(Severity::kWarning, "too many models for metrics; counted as _unknown", {{"model", label}});
    return &unknown_;
  }
  std::unique_ptr<NameCells>& cells = names_[label];
  if (cells == nullptr) cells = std::make_unique<NameCells>(label, options_.devices.size());
  std::unique_ptr<ModelMetrics>& model = models_[{label, version}];
  model = std::make_unique<ModelMetrics>(cells_, *cells, absl::StrCat(version));
  return model.get();
}

SourceRegistration Metrics::AddSource(ReadingSource source) {
  auto entry = std::make_shared<SourceRegistration::Entry>();
  {
    MutexLock entry_lock(entry->mutex);
    entry->source = std::move(source);
  }
  MutexLock lock(mutex_);
  std::erase_if(sources_, [](const auto& existing) { return existing.expired(); });
  sources_.push_back(entry);
  return SourceRegistration(std::move(entry));
}

std::vector<const ModelMetrics*> Metrics::Models() const {
  MutexLock lock(mutex_);
  std::vector<const ModelMetrics*> models;
  for (const auto& [key, model] : models_) models.push_back(model.get());
  return models;
}

std::vector<const NameCells*> Metrics::Names() const {
  MutexLock lock(mutex_);
  std::vector<const NameCells*> names;
  for (const auto& [name, cells] : names_) names.push_back(cells.get());
  return names;
}

std::vector<ModelStatistics> Metrics::Statistics(Time now, absl::Time wall_now) const {
  std::vector<ModelStatistics> statistics;
  for (const ModelMetrics* model : Models()) statistics.push_back(model->Snapshot(now, wall_now));
  return statistics;
}

void Metrics::CollectReadings(std::vector<Family>& families) const {
  std::vector<std::shared_ptr<SourceRegistration::Entry>> sources;
  {
    MutexLock lock(mutex_);
    for (const auto& source : sources_) {
      if (auto entry = source.lock()) sources.push_back(std::move(entry));
    }
  }
  std::array<std::map<std::vector<std::string>, double>, kReadingCount> values;
  for (const auto& entry : sources) {
    MutexLock lock(entry->mutex);
    if (entry->removed) continue;
    for (ReadingSample& sample : entry->source()) {
      const ReadingFacts& facts = FactsOf(sample.reading);
      const auto label_count = std::count_if(std::begin(facts.labels), std::end(facts.labels),
                                             [](absl::string_view label) { return !label.empty(); });
      if (sample.labels.size() != static_cast<size_t>(label_count)) continue;
      for (std::string& label : sample.labels) label = SanitizeLabel(label);
      values[static_cast<size_t>(sample.reading)][std::move(sample.labels)] = sample.value;
    }
  }
  for (size_t i = 0; i < kReadingCount; ++i) {
    if (values[i].empty()) continue;
    const ReadingFacts& facts = FactsOf(static_cast<Reading>(i));
    Family family{std::string(facts.name), std::string(facts.help), facts.type, {}, {}};
    for (const auto& [labels, value] : values[i]) {
      Series series;
      for (size_t k = 0; k < labels.size(); ++k) series.labels.emplace_back(std::string(facts.labels[k]), labels[k]);
      series.value = value;
      family.series.push_back(std::move(series));
    }
    families.push_back(std::move(family));
  }
}

}  // namespace sluice::metrics
