// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: an answer arrives whole or is an error that says what was wrong. Method: a socket that answers prepared bytes.
#include "client/http.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/thread.h"
#include "client/trace_summary.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Answers one connection with `bytes` and closes it.
class OneAnswer {
 public:
  explicit OneAnswer(std::string bytes) : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    socklen_t length = sizeof(address);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    thread_ = Thread("answer", [this, bytes = std::move(bytes)] { Answer(bytes); });
  }
  ~OneAnswer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.Join();
    close(listener_);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  /// Once the answer was received.
  const std::string& request() {
    thread_.Join();
    return request_;
  }

 private:
  void Answer(const std::string& bytes) {
    const int fd = accept(listener_, nullptr, nullptr);
    if (fd < 0) return;
    char buffer[4096];
    while (request_.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = read(fd, buffer, sizeof(buffer));
      if (got <= 0) break;
      request_.append(buffer, static_cast<size_t>(got));
    }
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t step = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (step <= 0) break;
      sent += static_cast<size_t>(step);
    }
    close(fd);
  }

  int listener_;
  int port_ = 0;
  std::string request_;
  Thread thread_;
};

absl::StatusOr<HttpAnswer> Get(const std::string& bytes, const HttpOptions& options = {}) {
  const OneAnswer server(bytes);
  return HttpGet(server.address(), "/trace?seconds=1", options);
}

TEST(HttpGet, BringsStatusAndBody) {
  OneAnswer server("HTTP/1.1 409 Conflict\r\ncontent-length: 4\r\nX: y\r\n\r\nbusy");
  const auto answer = HttpGet(server.address(), "/trace?seconds=1", {});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 409);
  EXPECT_EQ(answer->body, "busy");
  EXPECT_THAT(server.request(), StartsWith("GET /trace?seconds=1 HTTP/1.1\r\nHost: 127.0.0.1:"));
}

TEST(HttpGet, BringsAMegabyte) {
  const std::string body(1 << 20, 'x');
  const auto answer = Get(absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, body);
}

TEST(HttpGet, SaysWhatIsWrongWithAnAnswer) {
  for (const char* bytes :
       {"", "SSH-2.0-x\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1234", "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n1234"}) {
    EXPECT_EQ(Get(bytes).status().code(), absl::StatusCode::kDataLoss) << bytes;
  }
  HttpOptions small;
  small.most_bytes = 20;
  EXPECT_EQ(Get("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n1234", small).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(HttpGet, NeedsAnAddressWhereSomebodyAnswers) {
  for (const char* address : {"", "host", "host:", ":80", "host:99999", "host:http"}) {
    EXPECT_EQ(HttpGet(address, "/", {}).status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
  std::string gone;
  {
    const OneAnswer server("");
    gone = server.address();
  }
  const absl::Status status = HttpGet(gone, "/", {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(gone));
}

TEST(HttpGet, DoesNotWaitForEver) {
  // A listener that never accepts: connected by the kernel, silent.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  HttpOptions options;
  options.silence_timeout = absl::Milliseconds(20);
  EXPECT_EQ(HttpGet(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), "/", options).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  close(listener);
}

TEST(SummarizeTrace, CountsSpans) {
  const auto summary = SummarizeTrace(R"({"otherData":{"records":3,"lost":9},"traceEvents":[
      {"name":"process_name","ph":"M","pid":1}, {"name":"thread_name","ph":"M","pid":1,"tid":1},
      {"name":"compute","cat":"stage","ph":"X","ts":0,"dur":10.5,"pid":1,"tid":1},
      {"name":"compute","cat":"stage","ph":"X","ts":20,"dur":20,"pid":1,"tid":1},
      {"name":"part 3","cat":"request","ph":"X","ts":20,"dur":1,"pid":1,"tid":1}]})");
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->records, 3u);
  EXPECT_EQ(summary->lost, 9u);
  EXPECT_EQ(summary->processes, 1u);
  EXPECT_EQ(summary->threads, 1u);
  ASSERT_EQ(summary->spans.size(), 2u);
  const SpanTotal& compute = summary->spans.at({"stage", "compute"});
  EXPECT_EQ(compute.count, 2u);
  EXPECT_EQ(compute.sum, absl::Nanoseconds(30500));
  EXPECT_EQ(compute.most, absl::Microseconds(20));
  EXPECT_EQ(summary->spans.at({"request", "part"}).count, 1u);
}

TEST(SummarizeTrace, RefusesWhatIsNoTrace) {
  for (const char* text : {"", "[]", "{}", R"({"traceEvents":{}})", R"({"traceEvents":[1]})",
                           R"({"traceEvents":[{"ph":"X","name":"a"}]})", R"({"traceEvents":[)"}) {
    EXPECT_EQ(SummarizeTrace(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace sluice::client
