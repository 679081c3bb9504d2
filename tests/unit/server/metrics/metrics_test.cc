// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "server/metrics/neighbour_activity.h"

namespace sluice::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

MetricsOptions TwoDevices() { return {.devices = {"host:0", "host:1"}, .version = "0.1.0"}; }

const Family* FindFamily(const std::vector<Family>& families, absl::string_view name) {
  for (const Family& family : families) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

/// The series of `family` whose labels contain all of `wanted`.
std::vector<Series> Select(const std::vector<Family>& families, absl::string_view family, const LabelList& wanted) {
  std::vector<Series> found;
  const Family* source = FindFamily(families, family);
  if (source == nullptr) return found;
  for (const Series& series : source->series) {
    const bool match = std::all_of(wanted.begin(), wanted.end(), [&series](const auto& label) {
      return std::find(series.labels.begin(), series.labels.end(), label) != series.labels.end();
    });
    if (match) found.push_back(series);
  }
  return found;
}

double Value(const std::vector<Family>& families, absl::string_view family, const LabelList& wanted) {
  const std::vector<Series> found = Select(families, family, wanted);
  EXPECT_THAT(found, SizeIs(1)) << family;
  return found.size() == 1 ? found[0].value : std::nan("");
}

RequestRecord Record(RequestClass request_class, absl::Duration duration) {
  RequestRecord record;
  record.request_class = request_class;
  record.device = 0;
  record.duration = duration;
  record.stages.fill(absl::Microseconds(10));
  return record;
}

TEST(MetricsTest, CountsFromManyThreadsAreExact) {
  // Goal: nothing is lost and nothing is counted twice when threads share cells. Method: 8 threads, 2,000 requests
  // each, over two classes; compare every count and the nanosecond-exact sums.
  Metrics metrics(TwoDevices());
  ModelMetrics* model = metrics.AddModel("m", 1);
  constexpr int kThreads = 8;
  constexpr int kRequests = 2000;
  {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back("counter", [&metrics, model, t] {
        for (int i = 0; i < kRequests; ++i) {
          RequestRecord record =
              Record(t % 2 == 0 ? RequestClass::kLatency : RequestClass::kBatch, absl::Nanoseconds(3'000'000 + i));
          record.contended = i % 4 == 0;
          if (i % 10 == 9) record.code = absl::StatusCode::kDeadlineExceeded;
          model->OnRequest(record);
          model->OnExecution({.rows = 1 + i % 8,
                              .input = absl::Nanoseconds(1),
                              .infer = absl::Nanoseconds(2),
                              .output = absl::Nanoseconds(3),
                              .finished = Time::FromNanoseconds(i)});
          metrics.OnRejected(RequestClass::kBatch, RejectReason::kQueueFull);
        }
      });
    }
  }
  const std::vector<Family> families = metrics.Collect();
  EXPECT_EQ(Value(families, "sluice_requests_total", {{"class", "latency"}, {"code", "OK"}}), 4 * 1800);
  EXPECT_EQ(Value(families, "sluice_requests_total", {{"class", "batch"}, {"code", "DEADLINE_EXCEEDED"}}), 4 * 200);
  EXPECT_EQ(Value(families, "sluice_rejected_total", {{"class", "batch"}, {"reason", "queue_full"}}), 16000);
  int64_t durations = 0;
  for (const Series& series : Select(families, "sluice_request_duration_seconds", {})) {
    durations += series.histogram.count();
  }
  EXPECT_EQ(durations, kThreads * 1800);

  const ModelStatistics statistics = model->Snapshot(Time::FromNanoseconds(2000), absl::FromUnixMillis(5000));
  EXPECT_EQ(statistics.success.count, kThreads * 1800);
  EXPECT_EQ(statistics.fail.count, kThreads * 200);
  int64_t expected_ns = 0;
  for (int i = 0; i < kRequests; ++i) expected_ns += i % 10 == 9 ? 0 : 3'000'000 + i;
  EXPECT_EQ(statistics.success.nanoseconds, kThreads * expected_ns);
  EXPECT_EQ(statistics.compute_input.nanoseconds, int64_t{kThreads} * 1800 * 20'000);
  EXPECT_EQ(statistics.execution_count, kThreads * kRequests);
  ASSERT_THAT(statistics.batch_stats, SizeIs(8));
  EXPECT_EQ(statistics.batch_stats[7].rows, 8);
  EXPECT_EQ(statistics.batch_stats[7].compute_output.count, kThreads * kRequests / 8);
  EXPECT_EQ(statistics.batch_stats[7].compute_output.nanoseconds, kThreads * kRequests / 8 * 3);
}

TEST(MetricsTest, AnObservationOnAnEdgeFallsBelowIt) {
  // Goal: le means "at most", so a share at a target is exact. Method: observe an edge, one nanosecond more, zero, and
  // beyond the last.
  const Edges edges(DefaultEdges());
  DurationHistogram histogram(edges);
  histogram.Observe(5'000'000);
  histogram.Observe(5'000'001);
  histogram.Observe(0);
  histogram.Observe(10'000'000'001);
  const HistogramReading reading = histogram.Read();
  ASSERT_THAT(reading.counts, SizeIs(25));
  EXPECT_EQ(reading.counts[8], 1);
  EXPECT_EQ(edges.seconds()[8], 0.005);
  EXPECT_EQ(reading.counts[9], 1);
  EXPECT_EQ(reading.counts[0], 1);
  EXPECT_EQ(reading.counts[24], 1);
  EXPECT_DOUBLE_EQ(reading.sum_seconds, 10.010000002);
}

TEST(MetricsTest, BadDurationsAreClampedAndCounted) {
  // Goal: no negative or infinite duration reaches a sum. Method: record such ones; read sums and the error counter.
  Metrics metrics(TwoDevices());
  ModelMetrics* model = metrics.AddModel("m", 1);
  RequestRecord record = Record(RequestClass::kLatency, absl::Milliseconds(-5));
  record.stages[0] = absl::InfiniteDuration();
  model->OnRequest(record);
  record = Record(RequestClass::kLatency, absl::Seconds(std::numeric_limits<double>::quiet_NaN()));
  model->OnRequest(record);
  const std::vector<Family> families = metrics.Collect();
  EXPECT_EQ(Value(families, "sluice_clock_errors_total", {}), 3);
  const std::vector<Series> durations = Select(families, "sluice_request_duration_seconds", {});
  ASSERT_THAT(durations, SizeIs(1));
  EXPECT_EQ(durations[0].histogram.count(), 2);
  EXPECT_GE(durations[0].histogram.sum_seconds, 0);
  EXPECT_LE(durations[0].histogram.sum_seconds, 2 * 86400);
  EXPECT_THAT(Select(families, "sluice_stage_duration_seconds", {{"stage", "queue"}}), SizeIs(1));
}

TEST(MetricsTest, InterferenceBelowZeroIsZero) {
  // Goal: a run faster than the profile does not lower the sum and is no clock error. Method: one faster, one slower.
  Metrics metrics(TwoDevices());
  ModelMetrics* model = metrics.AddModel("m", 1);
  model->ObserveInterference(1, absl::Milliseconds(3), absl::Milliseconds(4));
  model->ObserveInterference(1, absl::Milliseconds(6), absl::Milliseconds(4));
  model->ObserveInterference(7, absl::Milliseconds(6), absl::Milliseconds(4));
  const std::vector<Family> families = metrics.Collect();
  const std::vector<Series> series = Select(families, "sluice_interference_seconds", {{"device", "host:1"}});
  ASSERT_THAT(series, SizeIs(1));
  EXPECT_EQ(series[0].histogram.count(), 2);
  EXPECT_DOUBLE_EQ(series[0].histogram.sum_seconds, 0.002);
  EXPECT_EQ(Value(families, "sluice_clock_errors_total", {}), 0);
}

TEST(MetricsTest, EachFailureIsCountedOnceUnderItsReason) {
  // Goal: a failed reply is never also a success, and Triton's reasons follow from the code. Method: one of each.
  Metrics metrics(TwoDevices());
  ModelMetrics* model = metrics.AddModel("m", 3);
  for (const absl::StatusCode code : {absl::StatusCode::kCancelled, absl::StatusCode::kUnavailable,
                                      absl::StatusCode::kInternal, absl::StatusCode::kInvalidArgument}) {
    RequestRecord record = Record(RequestClass::kStandard, absl::Milliseconds(1));
    record.code = code;
    model->OnRequest(record);
  }
  const std::vector<Family> families = metrics.Collect();
  EXPECT_EQ(Value(families, "nv_inference_request_success", {{"model", "m"}, {"version", "3"}}), 0);
  for (const char* reason : {"REJECTED", "CANCELED", "BACKEND", "OTHER"}) {
    EXPECT_EQ(Value(families, "nv_inference_request_failure", {{"reason", reason}}), 1) << reason;
  }
  EXPECT_EQ(FindFamily(families, "sluice_request_duration_seconds"), nullptr);
  EXPECT_THAT(Select(families, "sluice_requests_total", {}), SizeIs(4));
}

TEST(MetricsTest, TritonNamesAddUp) {
  // Goal: the cumulative microseconds are those of the stages they stand for. Method: one request with distinct stages.
  Metrics metrics(TwoDevices());
  ModelMetrics* model = metrics.AddModel("m", 1);
  RequestRecord record = Record(RequestClass::kBatch, absl::Microseconds(1000));
  record.rows = 4;
  for (size_t i = 0; i < kStageCount; ++i) record.stages[i] = absl::Microseconds(1 << i);
  model->OnRequest(record);
  model->AddPending(2);
  model->AddPending(-1);
  const std::vector<Family> families = metrics.Collect();
  const LabelList labels = {{"model", "m"}, {"version", "1"}};
  EXPECT_EQ(Value(families, "nv_inference_count", labels), 4);
  EXPECT_EQ(Value(families, "nv_inference_request_duration_us", labels), 1000);
  EXPECT_EQ(Value(families, "nv_inference_queue_duration_us", labels), 1);
  EXPECT_EQ(Value(families, "nv_inference_compute_input_duration_us", labels), 2 + 4);
  EXPECT_EQ(Value(families, "nv_inference_compute_infer_duration_us", labels), 8 + 16);
  EXPECT_EQ(Value(families, "nv_inference_compute_output_duration_us", labels), 32 + 64);
  EXPECT_EQ(Value(families, "nv_inference_pending_request_count", labels), 1);
}

TEST(MetricsTest, StatisticsGiveTheLastInferenceOnTheWallClock) {
  // Goal: last_inference is milliseconds since 1970, 0 before the first. Method: a snapshot 500 ms after the execution.
  Metrics metrics(TwoDevices());
  ModelMetrics* model = metrics.AddModel("m", 1);
  EXPECT_EQ(model->Snapshot(Time::FromNanoseconds(1), absl::FromUnixMillis(9000)).last_inference_ms, 0);
  model->OnExecution({.rows = 2, .finished = Time::FromNanoseconds(2'000'000'000)});
  model->OnExecution({.rows = 2, .finished = Time::FromNanoseconds(1'000'000'000)});
  const ModelStatistics statistics =
      model->Snapshot(Time::FromNanoseconds(2'500'000'000), absl::FromUnixMillis(100'000));
  EXPECT_EQ(statistics.last_inference_ms, 99'500);
  ASSERT_THAT(statistics.batch_stats, SizeIs(1));
  EXPECT_EQ(statistics.batch_stats[0].rows, 2);
}

TEST(MetricsTest, StatisticsListBatchSizesAlsoAfterALoadWithLargerOnes) {
  // Goal: every size that ran is listed, ascending, also one that no earlier load of the version could run. Method: the
  // ends of blocks, before and after the version is added again; sizes that there cannot be.
  Metrics metrics(TwoDevices());
  for (const int64_t rows : {4, 1, 3, 4}) metrics.AddModel("m", 1)->OnExecution({.rows = rows});
  ModelMetrics* model = metrics.AddModel("m", 1);
  for (const int64_t rows : {7, 8, 4096, 8191, 8192, 0, -1}) model->OnExecution({.rows = rows});
  const ModelStatistics statistics = model->Snapshot(Time::FromNanoseconds(1), absl::FromUnixMillis(0));
  std::vector<std::pair<int64_t, int64_t>> listed;
  for (const BatchStatistics& batch : statistics.batch_stats)
    listed.emplace_back(batch.rows, batch.compute_infer.count);
  EXPECT_THAT(listed,
              ElementsAre(Pair(1, 1), Pair(3, 1), Pair(4, 2), Pair(7, 1), Pair(8, 1), Pair(4096, 1), Pair(8191, 1)));
  EXPECT_EQ(statistics.execution_count, 11);
}

TEST(MetricsTest, ModelNamesAreBoundedAndShared) {
  // Goal: a client cannot create a label, versions share sluice_ series, and adding again gives the same counters.
  // Method: two versions, an unknown model, and more models than the bound.
  Metrics metrics(TwoDevices());
  ModelMetrics* first = metrics.AddModel("m", 1);
  EXPECT_EQ(metrics.AddModel("m", 1), first);
  ModelMetrics* second = metrics.AddModel("m", 2);
  EXPECT_NE(second, first);
  first->OnRequest(Record(RequestClass::kLatency, absl::Milliseconds(1)));
  second->OnRequest(Record(RequestClass::kLatency, absl::Milliseconds(1)));
  RequestRecord unknown;
  unknown.code = absl::StatusCode::kNotFound;
  metrics.unknown_model()->OnRequest(unknown);
  const std::vector<Family> families = metrics.Collect();
  EXPECT_EQ(Value(families, "sluice_requests_total", {{"model", "m"}, {"code", "OK"}}), 2);
  EXPECT_EQ(Value(families, "sluice_requests_total",
                  {{"model", "_unknown"}, {"class", "_unknown"}, {"device", "_none"}, {"code", "NOT_FOUND"}}),
            1);
  EXPECT_THAT(Select(families, "nv_inference_request_success", {}), SizeIs(2));

  for (size_t i = 0; i < Metrics::kMaxModels; ++i) metrics.AddModel(absl::StrCat("model", i), 1);
  EXPECT_EQ(metrics.AddModel("one_too_many", 1), metrics.unknown_model());
}

TEST(MetricsTest, SourcesAreReadUntilTheirRegistrationGoes) {
  // Goal: readings come from live sources only, malformed ones are dropped, later ones replace equal labels. Method:
  // two sources; one is removed, after which what it read is destroyed.
  Metrics metrics(TwoDevices());
  auto depth = std::make_unique<double>(3);
  std::optional<SourceRegistration> queue = metrics.AddSource([&depth] {
    return std::vector<ReadingSample>{{Reading::kQueueDepth, {"latency", "host:0"}, *depth},
                                      {Reading::kQueueDepth, {"latency"}, 99}};
  });
  SourceRegistration device = metrics.AddSource([] {
    return std::vector<ReadingSample>{{Reading::kDeviceHealthy, {"host:0"}, 0},
                                      {Reading::kDeviceHealthy, {"host:0"}, 1}};
  });
  std::vector<Family> families = metrics.Collect();
  EXPECT_EQ(Value(families, "sluice_queue_depth", {{"class", "latency"}, {"device", "host:0"}}), 3);
  EXPECT_EQ(Value(families, "sluice_device_healthy", {{"device", "host:0"}}), 1);
  queue.reset();
  depth.reset();
  families = metrics.Collect();
  EXPECT_EQ(FindFamily(families, "sluice_queue_depth"), nullptr);
  EXPECT_NE(FindFamily(families, "sluice_device_healthy"), nullptr);
}

TEST(MetricsTest, ASourceRemovedDuringAScrapeDoesNotRunInIt) {
  // Goal: a registration's end counts at once, also for a scrape that has begun. Method: the first source has another
  // thread remove the second while the scrape waits.
  Metrics metrics(TwoDevices());
  std::optional<SourceRegistration> second;
  SourceRegistration first = metrics.AddSource([&second] {
    Thread remover("remover", [&second] { second.reset(); });
    remover.Join();
    return std::vector<ReadingSample>();
  });
  int runs = 0;
  second = metrics.AddSource([&runs] {
    ++runs;
    return std::vector<ReadingSample>();
  });
  metrics.Collect();
  EXPECT_EQ(runs, 0);
}

TEST(MetricsTest, RemovingASourceDuringScrapesIsSafe) {
  // Goal: after a registration is destroyed its source never runs. Method: one thread scrapes while sources come and
  // go, each reading memory that is freed right after its registration.
  Metrics metrics(TwoDevices());
  std::atomic<bool> stop = false;
  std::atomic<int> scrapes = 0;
  Thread scraper("scraper", [&] {
    while (!stop.load()) {
      metrics.Collect();
      scrapes.fetch_add(1);
    }
  });
  int rounds = 0;
  while (rounds < 200 || scrapes.load() < 20) {
    auto value = std::make_unique<int>(rounds);
    const int* read = value.get();
    {
      SourceRegistration registration = metrics.AddSource([read] {
        return std::vector<ReadingSample>{{Reading::kDeviceHealthy, {"host:0"}, static_cast<double>(*read)}};
      });
    }
    *value = -1;
    ++rounds;
  }
  stop.store(true);
  scraper.Join();
  EXPECT_EQ(FindFamily(metrics.Collect(), "sluice_device_healthy"), nullptr);
}

TEST(MetricsTest, TenModelsStayUnderThreeThousandSeries) {
  // Goal: the scrape stays small. Method: ten models, all classes, both values of contended where they can occur, five
  // codes each; count exposed lines' series.
  Metrics metrics({.devices = {"cuda:0"}});
  for (int m = 0; m < 10; ++m) {
    ModelMetrics* model = metrics.AddModel(absl::StrCat("model", m), 1);
    for (const RequestClass request_class : kRequestClasses) {
      // A standard or batch request is in a lane itself, so it is always contended.
      for (const bool contended : {true, false}) {
        if (!contended && request_class != RequestClass::kLatency) continue;
        RequestRecord record = Record(request_class, absl::Milliseconds(1));
        record.contended = contended;
        model->OnRequest(record);
      }
      for (const absl::StatusCode code : {absl::StatusCode::kCancelled, absl::StatusCode::kUnavailable,
                                          absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kInternal}) {
        RequestRecord record = Record(request_class, absl::Milliseconds(1));
        record.code = code;
        model->OnRequest(record);
      }
    }
    model->ObserveInterference(0, absl::Milliseconds(2), absl::Milliseconds(1));
  }
  size_t series = 0;
  for (const Family& family : metrics.Collect()) {
    const size_t lines = family.type == FamilyType::kHistogram ? family.edges.size() + 3 : 1;
    series += family.series.size() * lines;
  }
  EXPECT_LT(series, 3000u);
  EXPECT_GT(series, 1000u);
}

/// Prometheus' histogram_quantile over series that were summed first.
double HistogramQuantile(double quantile, const std::vector<double>& edges, const HistogramReading& reading) {
  const double rank = quantile * static_cast<double>(reading.count());
  double seen = 0;
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto in_bucket = static_cast<double>(reading.counts[i]);
    if (seen + in_bucket >= rank) {
      const double lower = i == 0 ? 0 : edges[i - 1];
      return lower + (edges[i] - lower) * (in_bucket == 0 ? 1 : (rank - seen) / in_bucket);
    }
    seen += in_bucket;
  }
  return edges.back();
}

TEST(MetricsTest, TheContendedRatioComesFromTheSumOfTwoInstances) {
  // Goal: percentiles can be taken over instances, which averages of percentiles cannot. Method: two servers, 100
  // requests each, together 2 ms uncontended and 4 to 5 ms contended; sum buckets, take both p99s.
  Metrics one(TwoDevices());
  Metrics two(TwoDevices());
  for (Metrics* metrics : {&one, &two}) {
    ModelMetrics* model = metrics->AddModel("m", 1);
    for (int i = 0; i < 100; ++i) {
      RequestRecord record = Record(RequestClass::kLatency, absl::Microseconds(1900));
      model->OnRequest(record);
      record.contended = true;
      record.duration = absl::Microseconds(metrics == &one ? 1900 : 4900);
      model->OnRequest(record);
    }
  }
  const auto p99 = [&](const char* contended) {
    HistogramReading sum;
    std::vector<double> edges;
    for (Metrics* metrics : {&one, &two}) {
      const std::vector<Family> families = metrics->Collect();
      edges = FindFamily(families, "sluice_request_duration_seconds")->edges;
      for (const Series& series :
           Select(families, "sluice_request_duration_seconds", {{"class", "latency"}, {"contended", contended}})) {
        AddReading(series.histogram, sum);
      }
    }
    EXPECT_EQ(sum.count(), 200);
    return HistogramQuantile(0.99, edges, sum);
  };
  EXPECT_GT(p99("false"), 0.0015);
  EXPECT_LE(p99("false"), 0.002);
  EXPECT_GT(p99("true"), 0.003);
  EXPECT_LE(p99("true"), 0.005);
  EXPECT_NEAR(p99("true") / p99("false"), 2.5, 0.3);
}

TEST(NeighbourActivityTest, ContendedIsARegimeOfAHundredMilliseconds) {
  // Goal: the label follows the lanes' use from 100 ms before arrival to completion. Method: enter and leave at known
  // times; ask for arrivals around the border.
  NeighbourActivity activity;
  const Time start = Time::FromNanoseconds(1'000'000'000);
  EXPECT_FALSE(activity.Contended(start));
  activity.Enter();
  EXPECT_TRUE(activity.Contended(start));
  activity.Enter();
  activity.Leave(start);
  EXPECT_TRUE(activity.Contended(start + absl::Seconds(5)));
  activity.Leave(start + absl::Seconds(1));
  EXPECT_TRUE(activity.Contended(start + absl::Milliseconds(1100)));
  EXPECT_FALSE(activity.Contended(start + absl::Milliseconds(1101)));
}

}  // namespace
}  // namespace sluice::metrics
