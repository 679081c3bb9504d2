// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/exposition.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <utility>

namespace sluice::metrics {
namespace {

prometheus::ClientMetric ToClientMetric(const Family& family, const Series& series) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : series.labels) metric.label.push_back({name, value});
  switch (family.type) {
    case FamilyType::kCounter:
      metric.counter.value = series.value;
      break;
    case FamilyType::kGauge:
      metric.gauge.value = series.value;
      break;
    case FamilyType::kHistogram: {
      uint64_t cumulative = 0;
      for (size_t i = 0; i < series.histogram.counts.size(); ++i) {
        cumulative += static_cast<uint64_t>(series.histogram.counts[i]);
        const double edge = i < family.edges.size() ? family.edges[i] : std::numeric_limits<double>::infinity();
        metric.histogram.bucket.push_back({cumulative, edge});
      }
      metric.histogram.sample_count = cumulative;
      metric.histogram.sample_sum = series.histogram.sum_seconds;
      break;
    }
  }
  return metric;
}

prometheus::MetricType ToMetricType(FamilyType type) {
  switch (type) {
    case FamilyType::kCounter:
      return prometheus::MetricType::Counter;
    case FamilyType::kGauge:
      return prometheus::MetricType::Gauge;
    case FamilyType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

}  // namespace

std::string ToText(const std::vector<Family>& families) {
  std::vector<prometheus::MetricFamily> converted;
  for (const Family& family : families) {
    prometheus::MetricFamily metrics;
    metrics.name = family.name;
    metrics.help = family.help;
    metrics.type = ToMetricType(family.type);
    for (const Series& series : family.series) metrics.metric.push_back(ToClientMetric(family, series));
    converted.push_back(std::move(metrics));
  }
  return prometheus::TextSerializer().Serialize(converted);
}

}  // namespace sluice::metrics
