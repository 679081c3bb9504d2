// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/exposer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/wakeup.h"
#include "tests/support/http_get.h"

namespace sluice::metrics {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Ask(int port, const std::string& method, const std::string& path) {
  return sluice::testing::HttpGet(port, path, method);
}

class ExposerTest : public ::testing::Test {
 protected:
  std::unique_ptr<MetricsServer> StartOn(int port, absl::Status* status = nullptr) {
    HealthProbes probes{[this] { return live_.load(); }, [this] { return ready_.load(); }};
    auto server = MetricsServer::Start({.address = "127.0.0.1", .port = port}, metrics_, std::move(probes));
    if (status != nullptr) *status = server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }

  Metrics metrics_{{.devices = {"host:0"}, .version = "9.9"}};
  std::atomic<bool> live_ = true;
  std::atomic<bool> ready_ = false;
};

TEST_F(ExposerTest, ServesMetricsAsText) {
  // Goal: a scraper gets the families over HTTP with the right type. Method: port 0, GET and HEAD on loopback.
  const auto server = StartOn(0);
  ASSERT_NE(server, nullptr);
  ASSERT_GT(server->port(), 0);
  const std::string answer = Ask(server->port(), "GET", "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\nsluice_build_info{version=\"9.9\"} 1\n"));
  const std::string head = Ask(server->port(), "HEAD", "/metrics");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("sluice_")));
}

TEST_F(ExposerTest, ProbesFollowTheServer) {
  // Goal: 200 or 503 by state, at the moment of asking. Method: flip the flags between requests.
  const auto server = StartOn(0);
  ASSERT_NE(server, nullptr);
  EXPECT_THAT(Ask(server->port(), "GET", "/healthz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(server->port(), "GET", "/readyz"), StartsWith("HTTP/1.1 503 "));
  ready_ = true;
  live_ = false;
  EXPECT_THAT(Ask(server->port(), "GET", "/readyz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(server->port(), "GET", "/healthz"), StartsWith("HTTP/1.1 503 "));
}

TEST_F(ExposerTest, AnythingElseIsNotFound) {
  // Goal: only the three paths exist, and no /trace or /inspect without a source; no files of the machine are served.
  // Method: other paths and a method.
  const auto server = StartOn(0);
  ASSERT_NE(server, nullptr);
  for (const char* path :
       {"/", "/metrics/x", "/etc/passwd", "/../etc/passwd", "/x/metrics", "/trace?seconds=1", "/inspect?model=m"}) {
    EXPECT_THAT(Ask(server->port(), "GET", path), HasSubstr(" 404 ")) << path;
  }
  EXPECT_THAT(Ask(server->port(), "POST", "/metrics"), Not(HasSubstr(" 200 ")));
}

TEST_F(ExposerTest, TracesForAWhileAndSaysWhyNot) {
  // Goal: GET /trace?seconds=S hands S to the source and its answer back; each error has its code; the other paths are
  // answered meanwhile. Method: a source that answers by S, and one that is held while the test scrapes.
  Wakeup held, release;
  TraceSource source = [&](absl::Duration duration) -> absl::StatusOr<std::string> {
    if (duration == absl::Seconds(7)) {
      held.Notify();
      release.WaitUntil(Time::Infinite());
    }
    if (duration == absl::Seconds(9)) return absl::AbortedError("busy");
    if (duration == absl::Seconds(61)) return absl::InvalidArgumentError("too long");
    if (duration == absl::Seconds(8)) return absl::FailedPreconditionError("off");
    if (duration == absl::Seconds(6)) return absl::UnavailableError("stopping");
    return absl::StrCat("{\"took\":", absl::ToDoubleSeconds(duration), "}");
  };
  HealthProbes probes{[] { return true; }, [] { return true; }};
  auto server =
      MetricsServer::Start({.address = "127.0.0.1", .port = 0}, metrics_, std::move(probes), std::move(source));
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  const std::string answer = Ask(port, "GET", "/trace?seconds=1.5");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n{\"took\":1.5}"));
  const std::pair<const char*, const char*> table[] = {{"/trace", " 400 "},
                                                       {"/trace?seconds=", " 400 "},
                                                       {"/trace?seconds=soon", " 400 "},
                                                       {"/trace?seconds=-1", " 400 "},
                                                       {"/trace?seconds=nan", " 400 "},
                                                       {"/trace?seconds=61", " 400 "},
                                                       {"/trace?seconds=9", " 409 "},
                                                       {"/trace?seconds=8", " 404 "},
                                                       {"/trace?seconds=6", " 503 "}};
  for (const auto& [path, code] : table) EXPECT_THAT(Ask(port, "GET", path), HasSubstr(code)) << path;
  EXPECT_THAT(Ask(port, "GET", "/trace?seconds=61"), EndsWith("too long\n"));
  EXPECT_THAT(Ask(port, "POST", "/trace?seconds=1"), Not(HasSubstr(" 200 ")));
  EXPECT_THAT(Ask(port, "HEAD", "/trace?seconds=1"), Not(HasSubstr(" 200 ")));

  std::string traced;
  Thread tracer("tracer", [&] { traced = Ask(port, "GET", "/trace?seconds=7"); });
  ASSERT_TRUE(held.WaitUntil(Time::Infinite()));
  EXPECT_THAT(Ask(port, "GET", "/metrics"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(port, "GET", "/healthz"), StartsWith("HTTP/1.1 200 "));
  release.Notify();
  tracer.Join();
  EXPECT_THAT(traced, EndsWith("{\"took\":7}"));
}

TEST_F(ExposerTest, InspectsAModelByNameAndVersion) {
  // Goal: GET /inspect hands the decoded name and version on and the answer back; each error has its code and its text.
  // Method: a source that answers by name.
  InspectSource source = [](const std::string& model, const std::string& version) -> absl::StatusOr<std::string> {
    if (model == "gone") return absl::NotFoundError("unknown model 'gone'");
    if (model == "slow") return absl::UnavailableError("model 'slow' is loading");
    if (version == "x") return absl::InvalidArgumentError("a number");
    return absl::StrCat("<", model, "|", version, ">");
  };
  HealthProbes probes{[] { return true; }, [] { return true; }};
  auto server = MetricsServer::Start({.address = "127.0.0.1", .port = 0}, metrics_, std::move(probes), nullptr,
                                     std::move(source));
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  EXPECT_THAT(Ask(port, "GET", "/inspect?model=m"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"), EndsWith("\r\n\r\n<m|>")));
  EXPECT_THAT(Ask(port, "GET", "/inspect?version=2&model=a%20b%26c%2F"), EndsWith("\r\n\r\n<a b&c/|2>"));
  const std::pair<const char*, const char*> table[] = {{"/inspect", " 400 "},
                                                       {"/inspect?model=", " 400 "},
                                                       {"/inspect?version=1", " 400 "},
                                                       {"/inspect?model=m&version=x", " 400 "},
                                                       {"/inspect?model=gone", " 404 "},
                                                       {"/inspect?model=slow", " 503 "}};
  for (const auto& [path, code] : table) EXPECT_THAT(Ask(port, "GET", path), HasSubstr(code)) << path;
  EXPECT_THAT(Ask(port, "GET", "/inspect?model=gone"), EndsWith("unknown model 'gone'\n"));
  EXPECT_THAT(Ask(port, "POST", "/inspect?model=m"), Not(HasSubstr(" 200 ")));
  EXPECT_THAT(Ask(port, "GET", "/trace?seconds=1"), HasSubstr(" 404 ")) << "no source";
}

TEST_F(ExposerTest, APortInUseIsAnErrorThatNamesIt) {
  // Goal: the library's exception does not end the process. Method: start twice on the same port.
  const auto server = StartOn(0);
  ASSERT_NE(server, nullptr);
  absl::Status status;
  EXPECT_EQ(StartOn(server->port(), &status), nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("127.0.0.1:", server->port())));
  StartOn(70000, &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExposerTest, AnAnswerUnderWayIsWrittenBeforeItStops) {
  // Goal: the document of a trace that ends because the server does reaches its client. Method: stopped while the
  // source is in the middle of it; the document is longer than the socket's buffers take at once.
  const std::string document(size_t{16} << 20, 'x');
  Wakeup asked;
  auto server = MetricsServer::Start({.address = "127.0.0.1", .port = 0}, metrics_,
                                     {[] { return true; }, [] { return true; }}, [&](absl::Duration) {
                                       asked.Notify();
                                       return document;
                                     });
  ASSERT_TRUE(server.ok());
  const int port = (*server)->port();
  std::string answer;
  Thread client("client", [&] { answer = Ask(port, "GET", "/trace?seconds=1"); });
  ASSERT_TRUE(asked.WaitUntil(MonotonicClock().Now() + absl::Seconds(60)));
  (*server)->Stop();
  client.Join();
  EXPECT_THAT(answer.substr(0, 20), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(answer.size(), answer.find("\r\n\r\n") + 4 + document.size());
}

TEST_F(ExposerTest, StopFreesThePortAndMayBeRepeated) {
  // Goal: a clean stop. Method: stop twice, then listen on the same port again.
  const auto server = StartOn(0);
  ASSERT_NE(server, nullptr);
  const int port = server->port();
  server->Stop();
  server->Stop();
  EXPECT_EQ(Ask(port, "GET", "/metrics"), "");
  const auto again = StartOn(port);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->port(), port);
}

}  // namespace
}  // namespace sluice::metrics
