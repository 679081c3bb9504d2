// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/metrics/metrics.h"

namespace sluice::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RequestRecord LatencyRecord() {
  RequestRecord record;
  record.request_class = RequestClass::kLatency;
  record.device = 0;
  record.duration = absl::Microseconds(1700);
  record.stages.fill(absl::Microseconds(120));
  return record;
}

TEST(ExpositionTest, EveryEdgePrintsShort) {
  // Goal: le="0.0075" can be selected as written. Method: expose one histogram and check that each le has at most six
  // characters, which 0.007500000000000001 would not.
  Metrics metrics({.devices = {"host:0"}});
  metrics.AddModel("m", 1)->OnRequest(LatencyRecord());
  const std::string text = ToText(metrics.Collect());
  int edges = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StrContains(line, "sluice_request_duration_seconds_bucket")) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::string_view("le=\""));
    ASSERT_EQ(parts.size(), 2u) << line;
    const absl::string_view edge = parts[1].substr(0, parts[1].find('"'));
    EXPECT_LE(edge.size(), 7u) << edge;
    ++edges;
  }
  EXPECT_EQ(edges, 25);
  EXPECT_THAT(text, HasSubstr("le=\"0.00025\""));
  EXPECT_THAT(text, HasSubstr("le=\"0.0075\""));
  EXPECT_THAT(text, HasSubstr("le=\"+Inf\""));
}

TEST(ExpositionTest, BucketsAreCumulative) {
  // Goal: the text is what Prometheus expects. Method: one observation of 1.7 ms; look at the buckets around it.
  Metrics metrics({.devices = {"host:0"}});
  metrics.AddModel("m", 1)->OnRequest(LatencyRecord());
  const std::string text = ToText(metrics.Collect());
  const std::string labels = R"({model="m",class="latency",device="host:0",contended="false")";
  EXPECT_THAT(text, HasSubstr(absl::StrCat("sluice_request_duration_seconds_bucket", labels, ",le=\"0.0015\"} 0")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("sluice_request_duration_seconds_bucket", labels, ",le=\"0.002\"} 1")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("sluice_request_duration_seconds_bucket", labels, ",le=\"+Inf\"} 1")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("sluice_request_duration_seconds_count", labels, "} 1")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("sluice_request_duration_seconds_sum", labels, "} 0.0017")));
}

TEST(ExpositionTest, LabelsAreSanitised) {
  // Goal: no name can break a scrape or forge a line. Method: a table of bad names, and one through the whole way.
  EXPECT_EQ(SanitizeLabel("plain-1.2_x"), "plain-1.2_x");
  EXPECT_EQ(SanitizeLabel("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(SanitizeLabel("a\xFFz"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(SanitizeLabel("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(SanitizeLabel("\xED\xA0\x80").size(), 9u);
  EXPECT_EQ(SanitizeLabel("a\nb"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(SanitizeLabel("\xE2\x82"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(SanitizeLabel(std::string(500, 'x')).size(), 128u);
  Metrics metrics({.devices = {"host:0"}});
  metrics.AddModel("bad\xFF\"\n} 1", 1)->OnRequest(LatencyRecord());
  const std::string text = ToText(metrics.Collect());
  EXPECT_THAT(text, Not(HasSubstr("\xFF")));
  EXPECT_THAT(text, HasSubstr("model=\"bad\xEF\xBF\xBD\\\"\xEF\xBF\xBD} 1\""));
}

TEST(ExpositionTest, TheProcessAndBuildAreDescribed) {
  // Goal: leak and restart alarms have their series. Method: the names, with plausible values.
  Metrics metrics({.devices = {"host:0"}, .version = "1.2.3"});
  const std::string text = ToText(metrics.Collect());
  EXPECT_THAT(text, HasSubstr("sluice_build_info{version=\"1.2.3\"} 1"));
  for (const char* name :
       {"process_start_time_seconds", "process_open_fds", "process_max_fds", "process_resident_memory_bytes"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", name, " "))) << name;
  }
  EXPECT_THAT(text, HasSubstr("sluice_rejected_total{class=\"latency\",reason=\"queue_full\"} 0"));
  EXPECT_THAT(text, Not(HasSubstr("class=\"_unknown\"")));
}

#ifdef SLUICE_PROMTOOL
int CheckWithPromtool(const std::string& text) {
  FILE* pipe = popen(SLUICE_PROMTOOL " check metrics", "w");
  if (pipe == nullptr) return -1;
  std::fwrite(text.data(), 1, text.size(), pipe);
  const int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ExpositionTest, PromtoolAcceptsEverything) {
  // Goal: Prometheus itself can read every family. Method: all families, with a source; promtool parses the whole and
  // finds nothing to say about our own (Triton's counters lack _total, which it dislikes: exit status 3, not 1).
  Metrics metrics({.devices = {"host:0"}, .version = "1.2.3"});
  ModelMetrics* model = metrics.AddModel("bad\xFF\"\n} 1", 1);
  model->OnRequest(LatencyRecord());
  model->ObserveInterference(0, absl::Milliseconds(2), absl::Milliseconds(1));
  SourceRegistration source = metrics.AddSource([] {
    std::vector<ReadingSample> samples;
    for (size_t i = 0; i < kReadingCount; ++i) {
      const auto reading = static_cast<Reading>(i);
      samples.push_back({reading, {}, 1});
      for (const absl::string_view label : FactsOf(reading).labels) {
        if (!label.empty()) samples.back().labels.push_back("x");
      }
    }
    return samples;
  });
  const std::vector<Family> families = metrics.Collect();
  EXPECT_EQ(CheckWithPromtool(ToText(families)), 3);
  std::vector<Family> ours;
  for (const Family& family : families) {
    if (!absl::StartsWith(family.name, "nv_")) ours.push_back(family);
  }
  EXPECT_EQ(CheckWithPromtool(ToText(ours)), 0);
  EXPECT_EQ(CheckWithPromtool("sluice_x{a=\"\xFF\"} 1\n"), 1);
}
#endif

}  // namespace
}  // namespace sluice::metrics
