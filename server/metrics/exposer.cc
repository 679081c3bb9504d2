// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/exposer.h"

#include <CivetServer.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/wakeup.h"
#include "server/metrics/exposition.h"

namespace sluice::metrics {
namespace {

struct Answer {
  int status = 200;
  std::string content_type;
  std::string body;
};

constexpr absl::Duration kLastAnswers = absl::Seconds(2);  ///< For answers under way when the server is stopped.

absl::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 409:
      return "Conflict";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

void Write(mg_connection* connection, const Answer& answer, bool with_body) {
  const std::string head = absl::StrCat(
      "HTTP/1.1 ", answer.status, " ", ReasonPhrase(answer.status), "\r\nContent-Type: ", answer.content_type,
      "\r\nContent-Length: ", answer.body.size(), "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n");
  mg_write(connection, head.data(), head.size());
  if (with_body) mg_write(connection, answer.body.data(), answer.body.size());
}

/// Counts answers that are being made and written. Any thread.
class UnderWay {
 public:
  /// One of them, while it lives.
  class One {
   public:
    explicit One(UnderWay& all) : all_(all) {
      MutexLock lock(all_.mutex_);
      ++all_.count_;
    }
    ~One() {
      MutexLock lock(all_.mutex_);
      if (--all_.count_ == 0) all_.none_.NotifyAll();
    }
    One(const One&) = delete;
    One& operator=(const One&) = delete;

   private:
    UnderWay& all_;
  };

  void WaitUntilNone(Time end) {
    MutexLock lock(mutex_);
    while (count_ > 0 && none_.WaitUntil(mutex_, end)) {
    }
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

/// One path of the server: the same answer for GET, and for HEAD without its body.
class PathHandler final : public CivetHandler {
 public:
  PathHandler(UnderWay& under_way, absl::AnyInvocable<Answer() const> answer)
      : under_way_(under_way), answer_(std::move(answer)) {}
  bool handleGet(CivetServer*, mg_connection* connection) override { return Answered(connection, true); }
  bool handleHead(CivetServer*, mg_connection* connection) override { return Answered(connection, false); }

 private:
  bool Answered(mg_connection* connection, bool with_body) {
    const UnderWay::One one(under_way_);
    Write(connection, answer_(), with_body);
    return true;
  }

  UnderWay& under_way_;
  const absl::AnyInvocable<Answer() const> answer_;
};

using Document = absl::StatusOr<std::string>;

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      return 404;
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

/// A parameter of a query, decoded; empty when it is not there.
std::string Parameter(absl::string_view query, const char* name) {
  std::string value;
  CivetServer::getParam(query.data(), query.size(), name, value);
  return value;
}

/// A path that takes a query and answers with JSON: GET only.
class QueryHandler final : public CivetHandler {
 public:
  QueryHandler(UnderWay& under_way, absl::AnyInvocable<Document(absl::string_view query) const> ask)
      : under_way_(under_way), ask_(std::move(ask)) {}
  bool handleGet(CivetServer*, mg_connection* connection) override {
    const UnderWay::One one(under_way_);
    const char* const query = mg_get_request_info(connection)->query_string;
    Document document = ask_(query == nullptr ? absl::string_view() : query);
    if (document.ok()) {
      Write(connection, {200, "application/json", *std::move(document)}, true);
    } else {
      const absl::Status& status = document.status();
      Write(connection, {HttpStatusOf(status.code()), "text/plain", absl::StrCat(status.message(), "\n")}, true);
    }
    return true;
  }

 private:
  UnderWay& under_way_;
  const absl::AnyInvocable<Document(absl::string_view query) const> ask_;
};

QueryHandler TraceHandler(UnderWay& under_way, const TraceSource& source) {
  return QueryHandler(under_way, [&source](absl::string_view query) -> Document {
    double seconds = 0;
    if (!absl::SimpleAtod(Parameter(query, "seconds"), &seconds) || !(seconds > 0 && seconds < 1e6)) {
      return absl::InvalidArgumentError("expected /trace?seconds=S with a number of seconds");
    }
    return source(absl::Seconds(seconds));
  });
}

QueryHandler InspectHandler(UnderWay& under_way, const InspectSource& source) {
  return QueryHandler(under_way, [&source](absl::string_view query) -> Document {
    const std::string model = Parameter(query, "model");
    if (model.empty()) {
      return absl::InvalidArgumentError("expected /inspect?model=NAME, or /inspect?model=NAME&version=V");
    }
    return source(model, Parameter(query, "version"));
  });
}

PathHandler ProbeHandler(UnderWay& under_way, const absl::AnyInvocable<bool() const>& probe, std::string yes,
                         std::string no) {
  return PathHandler(under_way, [&probe, yes = std::move(yes), no = std::move(no)] {
    return probe() ? Answer{200, "text/plain", yes} : Answer{503, "text/plain", no};
  });
}

/// Connects to `address`:`port` and hangs up.
void ConnectOnce(const std::string& address, int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  sockaddr_in target = {};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<uint16_t>(port));
  // Connecting to 0.0.0.0 reaches this host.
  if (inet_pton(AF_INET, address.c_str(), &target.sin_addr) == 1) {
    static_cast<void>(connect(fd, reinterpret_cast<const sockaddr*>(&target), sizeof(target)));
  }
  close(fd);
}

class CivetMetricsServer final : public MetricsServer {
 public:
  CivetMetricsServer(const Metrics& metrics, HealthProbes probes, TraceSource trace, InspectSource inspect)
      : probes_(std::move(probes)),
        trace_(std::move(trace)),
        inspect_(std::move(inspect)),
        metrics_handler_(under_way_,
                         [&metrics] {
                           return Answer{200, kExpositionContentType, ToText(metrics.Collect())};
                         }),
        live_handler_(ProbeHandler(under_way_, probes_.live, "ok\n", "not alive\n")),
        ready_handler_(ProbeHandler(under_way_, probes_.ready, "ready\n", "not ready\n")),
        trace_handler_(TraceHandler(under_way_, trace_)),
        inspect_handler_(InspectHandler(under_way_, inspect_)) {}
  ~CivetMetricsServer() override { Stop(); }

  absl::Status Listen(const MetricsServerOptions& options) {
    const std::string endpoint = absl::StrCat(options.address, ":", options.port);
    const std::vector<std::string> settings = {"listening_ports", endpoint, "num_threads",        "4",
                                               "tcp_nodelay",     "1",      "request_timeout_ms", "10000"};
    // The library throws when the port is taken; nothing of ours does.
    try {
      server_ = std::make_unique<CivetServer>(settings);
    } catch (const std::exception& error) {
      return absl::FailedPreconditionError(
          absl::StrCat("metrics: cannot listen on ", endpoint, " (--metrics-port): ", error.what()));
    }
    const std::vector<int> ports = server_->getListeningPorts();
    if (ports.empty()) return absl::InternalError(absl::StrCat("metrics: no port after listening on ", endpoint));
    address_ = options.address;
    port_ = ports.front();
    server_->addHandler("/metrics$", metrics_handler_);
    server_->addHandler("/healthz$", live_handler_);
    server_->addHandler("/readyz$", ready_handler_);
    if (trace_ != nullptr) server_->addHandler("/trace$", trace_handler_);
    if (inspect_ != nullptr) server_->addHandler("/inspect$", inspect_handler_);
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  void Stop() override {
    if (server_ == nullptr) return;
    // The library writes nothing more once it stops: an answer under way, such as the last trace, would be lost.
    under_way_.WaitUntilNone(MonotonicClock().Now() + kLastAnswers);
    // The library's accepting thread looks at its stop flag every 2 s, or when somebody connects: so somebody does,
    // until it has stopped. Draining a server, and every test that starts one, would take that much longer.
    Wakeup stopped;
    Thread caller("metrics-stop", [this, &stopped] {
      do {
        ConnectOnce(address_, port_);
      } while (!stopped.WaitUntil(MonotonicClock().Now() + absl::Milliseconds(5)));
    });
    server_.reset();
    stopped.Notify();
  }

 private:
  UnderWay under_way_;
  const HealthProbes probes_;
  const TraceSource trace_;
  const InspectSource inspect_;
  PathHandler metrics_handler_;
  PathHandler live_handler_;
  PathHandler ready_handler_;
  QueryHandler trace_handler_;
  QueryHandler inspect_handler_;
  std::string address_;
  int port_ = 0;
  std::unique_ptr<CivetServer> server_;  // Last: its threads use the handlers.
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const MetricsServerOptions& options,
                                                                    const Metrics& metrics, HealthProbes probes,
                                                                    TraceSource trace, InspectSource inspect) {
  if (options.port < 0 || options.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--metrics-port must be 0 to 65535, not ", options.port));
  }
  auto server = std::make_unique<CivetMetricsServer>(metrics, std::move(probes), std::move(trace), std::move(inspect));
  if (absl::Status status = server->Listen(options); !status.ok()) return status;
  return server;
}

}  // namespace sluice::metrics
