// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the server's front end costs a request: its latency as a client sees it, less the latency of a bare echo of the
// same API and payload, less the time the request spent on the device.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "bench/overhead/caller.h"
#include "bench/overhead/echo_server.h"
#include "client/async_client.h"
#include "client/client.h"
#include "client/convert.h"
#include "client/pause.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "nlohmann/json.hpp"

namespace sluice::bench {
namespace {

enum ExitCode { kExitOk = 0, kExitFailed = 1, kExitUsage = 2 };

struct Flags {
  std::string url = "127.0.0.1:8001";
  std::vector<std::string> models = {"probe_1k", "probe_64k", "probe_600k"};
  int requests = 2000;
  int warmup = 200;
  int pause_us = 0;
  int echo_threads = 2;
  std::string request_class = "latency";
  std::string json_file;
  double most_p50_us = 0;
  double most_p99_us = 0;
};

/// Samples in microseconds.
using Samples = std::vector<double>;

/// The smallest sample that at least `quantile` of all do not exceed; `samples` is not empty.
double Quantile(Samples samples, double quantile) {
  const auto count = static_cast<double>(samples.size());
  const auto rank = static_cast<size_t>(std::max(1.0, std::ceil(quantile * count - 1e-9)));
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(rank - 1), samples.end());
  return samples[rank - 1];
}

/// What was measured with one model, one entry per request.
struct Measured {
  std::string model;
  size_t request_bytes = 0;
  size_t answer_bytes = 0;
  Samples client;     ///< As the client sees it.
  Samples echo;       ///< The same message to the bare echo, right after.
  Samples device;     ///< h2d + gpu_wait + compute + d2h, as the server says.
  Samples server;     ///< From the complete message to the built response, as the server says.
  Samples front;      ///< client - device of the same request.
  Samples in_server;  ///< server - device of the same request.

  double Overhead(double quantile) const { return Quantile(front, quantile) - Quantile(echo, quantile); }
};

absl::StatusOr<client::EncodedRequest> MakeRequest(client::Client& client, const std::string& model) {
  SLUICE_ASSIGN_OR_RETURN(const client::ModelInfo info, client.ModelMetadata(model));
  std::vector<client::Tensor> tensors;
  for (const client::TensorInfo& input : info.inputs) {
    client::Tensor tensor{input.name, input.type, input.shape, ""};
    for (int64_t& dimension : tensor.shape) dimension = dimension < 0 ? 1 : dimension;
    SLUICE_ASSIGN_OR_RETURN(const int64_t count, client::ElementCount(tensor.shape));
    tensor.bytes.assign(static_cast<size_t>(count) * ElementBytes(input.type), '\0');
    tensors.push_back(std::move(tensor));
  }
  client::InferOptions options;
  options.timings = true;
  return client::EncodedRequest::Encode(model, std::move(tensors), options);
}

absl::StatusOr<client::StageTimings> ReadTimings(grpc::ByteBuffer body) {
  inference::ModelInferResponse response;
  if (!grpc::SerializationTraits<inference::ModelInferResponse>::Deserialize(&body, &response).ok()) {
    return absl::InternalError("the answer is no ModelInferResponse");
  }
  const std::optional<client::StageTimings> timings = client::ReadStageTimings(response);
  if (!timings.has_value()) return absl::FailedPreconditionError("the server sends no stage times");
  return *timings;
}

absl::Status AddSample(Caller& product, Caller& echo, const grpc::ByteBuffer& request, RequestClass request_class,
                       Measured* measured) {
  SLUICE_ASSIGN_OR_RETURN(const Caller::Answer served, product.Call(request, request_class));
  // In turn, so that both see the same machine.
  SLUICE_ASSIGN_OR_RETURN(const Caller::Answer echoed, echo.Call(request, request_class));
  if (measured == nullptr) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const client::StageTimings timings, ReadTimings(served.body));
  const double client_us = absl::ToDoubleMicroseconds(served.latency);
  const double device_us = absl::ToDoubleMicroseconds(timings.h2d + timings.gpu_wait + timings.compute + timings.d2h);
  const double server_us = absl::ToDoubleMicroseconds(timings.total);
  measured->client.push_back(client_us);
  measured->echo.push_back(absl::ToDoubleMicroseconds(echoed.latency));
  measured->device.push_back(device_us);
  measured->server.push_back(server_us);
  measured->front.push_back(client_us - device_us);
  measured->in_server.push_back(server_us - device_us);
  return absl::OkStatus();
}

absl::StatusOr<Measured> Measure(const Flags& flags, client::Client& client, const std::string& model) {
  SLUICE_ASSIGN_OR_RETURN(const client::EncodedRequest request, MakeRequest(client, model));
  const RequestClass request_class = ParseRequestClass(flags.request_class).value_or(RequestClass::kLatency);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Caller> product, Caller::Connect(flags.url));
  SLUICE_ASSIGN_OR_RETURN(Caller::Answer first, product->Call(request.bytes(), request_class));
  Measured measured;
  measured.model = model;
  measured.request_bytes = request.bytes().Length();
  measured.answer_bytes = first.body.Length();
  // The echo gives the very bytes that the server gave: the same payload both ways.
  SLUICE_ASSIGN_OR_RETURN(const auto server, EchoServer::Start(std::move(first.body), flags.echo_threads));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Caller> echo,
                          Caller::Connect(absl::StrCat("127.0.0.1:", server->port())));
  const MonotonicClock clock;
  for (int i = -flags.warmup; i < flags.requests; ++i) {
    SLUICE_RETURN_IF_ERROR(AddSample(*product, *echo, request.bytes(), request_class, i < 0 ? nullptr : &measured));
    if (flags.pause_us > 0) client::PauseUntil(clock.Now() + absl::Microseconds(flags.pause_us));
  }
  return measured;
}

void PrintText(const std::vector<Measured>& results) {
  std::cout << absl::StrFormat("%-12s %9s %7s  %15s %15s %15s %15s %15s %17s\n", "model", "bytes", "n", "client us",
                               "bare echo us", "device us", "server us", "in server us", "front end us");
  std::cout << absl::StrFormat("%-12s %9s %7s ", "", "", "");
  for (int i = 0; i < 6; ++i) std::cout << absl::StrFormat(" %15s", "p50 / p99");
  std::cout << "\n";
  for (const Measured& row : results) {
    std::cout << absl::StrFormat("%-12s %9d %7d ", row.model, row.request_bytes, row.client.size());
    for (const Samples* samples : {&row.client, &row.echo, &row.device, &row.server, &row.in_server}) {
      std::cout << absl::StrFormat(" %7.0f/%7.0f", Quantile(*samples, 0.5), Quantile(*samples, 0.99));
    }
    std::cout << absl::StrFormat("  %7.0f/%7.0f\n", row.Overhead(0.5), row.Overhead(0.99));
  }
  std::cout << "device: h2d + gpu_wait + compute + d2h of each request; server: complete message to built response; "
               "in server: server - device;\nfront end: quantile of (client - device) less the same quantile of the "
               "bare echo\n";
}

nlohmann::json ToJson(const std::vector<Measured>& results) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Measured& row : results) {
    nlohmann::json entry = {
        {"model", row.model},     {"request_bytes", row.request_bytes},    {"answer_bytes", row.answer_bytes},
        {"n", row.client.size()}, {"front_end_p50_us", row.Overhead(0.5)}, {"front_end_p99_us", row.Overhead(0.99)}};
    const std::pair<const char*, const Samples*> parts[] = {{"client", &row.client}, {"echo", &row.echo},
                                                            {"device", &row.device}, {"server", &row.server},
                                                            {"front", &row.front},   {"in_server", &row.in_server}};
    for (const auto& [name, samples] : parts) {
      for (const auto& [label, quantile] : {std::pair("p50", 0.5), std::pair("p99", 0.99), std::pair("max", 1.0)}) {
        entry[absl::StrCat(name, "_", label, "_us")] = Quantile(*samples, quantile);
      }
    }
    rows.push_back(std::move(entry));
  }
  return {{"rows", rows}};
}

/// The limits apply to the first model: the smallest payload.
bool WithinLimits(const Flags& flags, const Measured& row) {
  bool within = true;
  const auto check = [&](double quantile, double most) {
    if (most <= 0 || row.Overhead(quantile) <= most) return;
    std::cerr << absl::StrFormat("overhead: failed: front end p%g of %s is %.0f us, more than %.0f us\n",
                                 quantile * 100, row.model, row.Overhead(quantile), most);
    within = false;
  };
  check(0.5, flags.most_p50_us);
  check(0.99, flags.most_p99_us);
  return within;
}

absl::StatusOr<std::vector<Measured>> MeasureAll(const Flags& flags) {
  client::ClientOptions options;
  options.address = flags.url;
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, client::Client::Connect(options));
  std::vector<Measured> results;
  for (const std::string& model : flags.models) {
    SLUICE_ASSIGN_OR_RETURN(Measured measured, Measure(flags, *client, model));
    results.push_back(std::move(measured));
  }
  return results;
}

int Run(int argc, char** argv) {
  Flags flags;
  CLI::App app("overhead: what the server's front end costs a request, beside a bare gRPC echo and without the device");
  app.option_defaults()->always_capture_default();
  app.add_option("--url", flags.url, "Server with the models of scripts/generate_gpu_models.sh, folder probes");
  app.add_option("--models", flags.models, "Models, smallest payload first")->delimiter(',');
  app.add_option("--requests", flags.requests, "Requests per model")->check(CLI::Range(100, 10'000'000));
  app.add_option("--warmup", flags.warmup, "Requests before them, not counted")->check(CLI::Range(0, 1'000'000));
  app.add_option("--pause-us", flags.pause_us, "Pause between requests")->check(CLI::Range(0, 1'000'000));
  app.add_option("--echo-threads", flags.echo_threads, "Threads of the bare echo")->check(CLI::Range(1, 4));
  app.add_option("--class", flags.request_class, "Class of the requests")
      ->check(CLI::IsMember({"latency", "standard", "batch"}));
  app.add_option("--json", flags.json_file, "Write the results as JSON to this file; - is standard output");
  app.add_option("--max-p50-us", flags.most_p50_us, "Exit with 1 when the first model's front end p50 is above; 0: no");
  app.add_option("--max-p99-us", flags.most_p99_us, "The same for its p99");
  try {  // CLI11 reports by throwing.
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const absl::StatusOr<std::vector<Measured>> results = MeasureAll(flags);
  if (!results.ok()) {
    std::cerr << "overhead: " << results.status().message() << "\n";
    return kExitFailed;
  }
  if (flags.json_file == "-") {
    std::cout << ToJson(*results).dump(2) << "\n";
  } else {
    PrintText(*results);
  }
  if (!flags.json_file.empty() && flags.json_file != "-") {
    std::ofstream file(flags.json_file);
    file << ToJson(*results).dump(2) << "\n";
    if (!file.flush()) {
      std::cerr << "overhead: cannot write '" << flags.json_file << "'\n";
      return kExitFailed;
    }
  }
  return WithinLimits(flags, results->front()) ? kExitOk : kExitFailed;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::Run(argc, argv); }
