// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/overhead/report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/text_table.h"

namespace sluice::bench {
namespace {

std::string MedianAndTail(const std::vector<double>& samples) {
  return absl::StrFormat("%.0f/%.0f", Quantile(samples, 0.5), Quantile(samples, 0.99));
}

double Copies(const Measured& row) { return row.Overhead(0.5) / row.copy_us; }

std::string LatencyTable(const std::vector<Measured>& rows) {
  client::TextTable table({"server", "model", "bytes", "answer", "n", "client us p50/p99", "bare echo us", "device us",
                           "server us", "in server us", "front end us", "copy us", "copies"});
  for (const Measured& row : rows) {
    const bool timed = Quantile(row.total, 1) > 0;
    std::vector<std::string> cells = {row.server, row.model, absl::StrCat(row.request_bytes),
                                      absl::StrCat(row.answer_bytes), absl::StrCat(row.client.size())};
    for (const auto* samples : {&row.client, &row.echo}) cells.push_back(MedianAndTail(*samples));
    for (const auto* samples : {&row.device, &row.total, &row.in_server}) {
      cells.push_back(timed ? MedianAndTail(*samples) : "-");
    }
    cells.push_back(absl::StrFormat("%.0f/%.0f", row.Overhead(0.5), row.Overhead(0.99)));
    cells.push_back(absl::StrFormat("%.1f", row.copy_us));
    cells.push_back(absl::StrFormat("%.2f", Copies(row)));
    table.AddRow(std::move(cells));
  }
  return absl::StrCat(
      table.Render(),
      "device: h2d + gpu_wait + compute + d2h of each request; server: complete message to built response; in server: "
      "server - device;\nfront end: quantile of (client - device) less the same quantile of the bare echo; copies: its "
      "p50 over a copy of the request\n");
}

std::string ThroughputTable(const std::vector<Throughput>& rows) {
  client::TextTable table(
      {"server", "model", "calls/s", "bare echo calls/s", "ratio", "p99 us", "bare echo p99 us", "failed"});
  for (const Throughput& row : rows) {
    table.AddRow({row.server, row.model, absl::StrFormat("%.0f", row.rate), absl::StrFormat("%.0f", row.echo_rate),
                  absl::StrFormat("%.3f", row.ratio), absl::StrFormat("%.0f", row.p99_us),
                  absl::StrFormat("%.0f", row.echo_p99_us), absl::StrCat(row.failed)});
  }
  return table.Render();
}

nlohmann::json RowToJson(const Measured& row) {
  nlohmann::json entry = {{"server", row.server},
                          {"model", row.model},
                          {"request_bytes", row.request_bytes},
                          {"answer_bytes", row.answer_bytes},
                          {"n", row.client.size()},
                          {"copy_us", row.copy_us},
                          {"front_end_copies", Copies(row)},
                          {"front_end_p50_us", row.Overhead(0.5)},
                          {"front_end_p99_us", row.Overhead(0.99)}};
  const std::pair<const char*, const std::vector<double>*> parts[] = {
      {"client", &row.client}, {"echo", &row.echo},   {"device", &row.device},
      {"server", &row.total},  {"front", &row.front}, {"in_server", &row.in_server}};
  for (const auto& [name, samples] : parts) {
    for (const auto& [label, quantile] : {std::pair("p50", 0.5), std::pair("p99", 0.99), std::pair("max", 1.0)}) {
      entry[absl::StrCat(name, "_", label, "_us")] = Quantile(*samples, quantile);
    }
  }
  return entry;
}

}  // namespace

std::string ToText(const Results& results) {
  std::string text = LatencyTable(results.rows);
  if (!results.throughput.empty()) absl::StrAppend(&text, "\n", ThroughputTable(results.throughput));
  return text;
}

nlohmann::json ToJson(const Results& results) {
  nlohmann::json rows = nlohmann::json::array(), throughput = nlohmann::json::array();
  for (const Measured& row : results.rows) rows.push_back(RowToJson(row));
  for (const Throughput& row : results.throughput) {
    throughput.push_back({{"server", row.server},
                          {"model", row.model},
                          {"rate", row.rate},
                          {"echo_rate", row.echo_rate},
                          {"ratio", row.ratio},
                          {"p99_us", row.p99_us},
                          {"echo_p99_us", row.echo_p99_us},
                          {"failed", row.failed}});
  }
  return {{"rows", rows}, {"throughput", throughput}};
}

std::vector<std::string> Beyond(const Limits& limits, const Results& results) {
  std::vector<std::string> lines;
  const Measured& smallest = results.rows.front();
  const auto check = [&](double quantile, double most) {
    if (most <= 0 || smallest.Overhead(quantile) <= most) return;
    lines.push_back(absl::StrFormat("front end p%g of %s is %.0f us, more than %.0f us", quantile * 100, smallest.model,
                                    smallest.Overhead(quantile), most));
  };
  check(0.5, limits.p50_us);
  check(0.99, limits.p99_us);
  const Measured* largest = &smallest;
  for (const Measured& row : results.rows) {
    if (row.server == smallest.server) largest = &row;
  }
  if (limits.copies > 0 && Copies(*largest) > limits.copies) {
    lines.push_back(absl::StrFormat("front end p50 of %s is %.2f copies of it, more than %g", largest->model,
                                    Copies(*largest), limits.copies));
  }
  if (limits.throughput_ratio > 0 && !results.throughput.empty()) {
    const Throughput& first = results.throughput.front();
    if (first.ratio < limits.throughput_ratio) {
      lines.push_back(absl::StrFormat("throughput of %s is %.3f of the echo's, less than %g", first.model, first.ratio,
                                      limits.throughput_ratio));
    }
  }
  return lines;
}

}  // namespace sluice::bench
