// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/commands/connection.h"
#include "client/load/stream_spec.h"
#include "client/tensor_file.h"
#include "client/tensor_values.h"
#include "client/text_table.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;

constexpr size_t kFirstValues = 6;

struct InferFlags {
  ConnectionFlags connection;
  std::string model;
  std::string version;
  std::vector<std::string> inputs;
  std::vector<std::string> shapes;
  std::string json_input;
  std::string class_name;
  std::vector<std::string> outputs;
  std::string id;
  uint64_t priority = 0;
  int64_t timeout_us = 0;
  int64_t batch = 1;
  uint64_t seed = 1;
  size_t top = 0;
  bool timings = false;
};

absl::StatusOr<std::map<std::string, InputSource>> ReadSources(const InferFlags& flags) {
  std::map<std::string, InputSource> sources;
  for (const std::string& text : flags.inputs) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      return absl::InvalidArgumentError(absl::StrCat("--input '", text, "': expected NAME=FILE or NAME=random"));
    }
    if (!sources.emplace(text.substr(0, equals), InputSource{text.substr(equals + 1), std::nullopt}).second) {
      return absl::InvalidArgumentError(absl::StrCat("--input '", text.substr(0, equals), "' is given twice"));
    }
  }
  for (const std::string& text : flags.shapes) {
    // The last colon: tensor names may have colons themselves.
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("--shape '", text, "': expected NAME:A,B,C"));
    }
    const auto found = sources.find(text.substr(0, colon));
    if (found == sources.end()) {
      return absl::InvalidArgumentError(absl::StrCat("--shape '", text, "': there is no --input of that name"));
    }
    SLUICE_ASSIGN_OR_RETURN(found->second.shape, ParseShape(absl::string_view(text).substr(colon + 1)));
  }
  return sources;
}

absl::StatusOr<std::vector<Tensor>> MakeInputs(const InferFlags& flags, const ModelInfo& model) {
  if (!flags.json_input.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(flags.json_input));
    return ParseJsonInputs(text, model.inputs);
  }
  SLUICE_ASSIGN_OR_RETURN(auto sources, ReadSources(flags));
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const TensorInfo& info = model.inputs[i];
    const auto found = sources.find(info.name);
    if (found == sources.end()) {
      return absl::InvalidArgumentError(absl::StrCat("input '", info.name, "' (", WireName(info.type), " [",
                                                     absl::StrJoin(info.shape, ","), "]) is missing; give --input ",
                                                     info.name, "=FILE or --input ", info.name, "=random"));
    }
    SLUICE_ASSIGN_OR_RETURN(Tensor tensor, LoadInput(info, found->second, flags.batch, flags.seed + i));
    tensors.push_back(std::move(tensor));
    sources.erase(found);
  }
  if (!sources.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input '", sources.begin()->first, "' is none of the model's: ",
        absl::StrJoin(model.inputs, ", ", [](std::string* out, const TensorInfo& info) { *out += info.name; })));
  }
  return tensors;
}

InferOptions MakeOptions(const InferFlags& flags) {
  InferOptions options;
  options.model_version = flags.version;
  if (!flags.class_name.empty()) options.request_class = ParseRequestClass(flags.class_name);
  if (flags.timeout_us > 0) options.timeout = absl::Microseconds(flags.timeout_us);
  options.priority = flags.priority;
  options.id = flags.id;
  options.outputs = flags.outputs;
  options.timings = flags.timings;
  return options;
}

// Positions of the k largest values of one row of the last dimension, largest first.
std::vector<size_t> TopOfRow(const Tensor& tensor, size_t row_start, size_t row_length, size_t k) {
  std::vector<size_t> order(row_length);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(std::min(k, row_length));
  std::partial_sort(order.begin(), middle, order.end(), [&](size_t a, size_t b) {
    const double left = ElementAsDouble(tensor, row_start + a);
    const double right = ElementAsDouble(tensor, row_start + b);
    return left > right || (left == right && a < b);
  });
  order.erase(middle, order.end());
  return order;
}

// [[{"index", "value"}, ...], ...]: one list for each row of the last dimension.
json TopJson(const Tensor& tensor, size_t k) {
  json rows = json::array();
  if (ElementBytes(tensor.type) == 0) return rows;
  const size_t count = tensor.bytes.size() / ElementBytes(tensor.type);
  const size_t row_length = tensor.shape.empty() ? 1 : static_cast<size_t>(tensor.shape.back());
  for (size_t start = 0; start < count; start += row_length) {
    json row = json::array();
    for (const size_t index : TopOfRow(tensor, start, row_length, k)) {
      row.push_back({{"index", index}, {"value", ElementAsDouble(tensor, start + index)}});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string ValuesText(const Tensor& tensor) {
  const json values = Elements(tensor, kFirstValues + 1);
  std::string text;
  for (size_t i = 0; i < std::min(values.size(), kFirstValues); ++i) {
    absl::StrAppend(&text, i > 0 ? " " : "",
                    values[i].is_number_float() ? absl::StrFormat("%.6g", values[i].get<double>())
                                                : values[i].dump(-1, ' ', false, json::error_handler_t::replace));
  }
  return values.size() > kFirstValues ? text + " ..." : text;
}

std::string TimingsText(const StageTimings& timings) {
  return absl::StrFormat("queue %s, copy in %s, h2d %s, gpu wait %s, compute %s, d2h %s; in the server %s",
                         absl::FormatDuration(timings.queue), absl::FormatDuration(timings.copy_in),
                         absl::FormatDuration(timings.h2d), absl::FormatDuration(timings.gpu_wait),
                         absl::FormatDuration(timings.compute), absl::FormatDuration(timings.d2h),
                         absl::FormatDuration(timings.total));
}

void PrintText(const InferReply& reply, size_t top, absl::Duration round_trip) {
  std::cout << reply.model_name << " version " << reply.model_version;
  if (reply.effective_class.has_value()) std::cout << ", class " << RequestClassName(*reply.effective_class);
  if (!reply.id.empty()) std::cout << ", id " << reply.id;
  std::cout << ", " << absl::StrFormat("%.2f ms", absl::ToDoubleMilliseconds(round_trip)) << "\n";
  if (reply.timings.has_value()) std::cout << TimingsText(*reply.timings) << "\n";
  std::cout << "\n";
  TextTable table({"output", "type", "shape", "first values"});
  for (const Tensor& output : reply.outputs) {
    table.AddRow({output.name, std::string(WireName(output.type)),
                  absl::StrCat("[", absl::StrJoin(output.shape, ","), "]"), ValuesText(output)});
  }
  std::cout << table.Render();
  if (top == 0) return;
  TextTable best({"output", "row", "rank", "index", "value"});
  for (const Tensor& output : reply.outputs) {
    size_t row_number = 0;
    for (const json& row : TopJson(output, top)) {
      for (size_t rank = 0; rank < row.size(); ++rank) {
        best.AddRow({output.name, absl::StrCat(row_number), absl::StrCat(rank + 1), row[rank]["index"].dump(),
                     absl::StrFormat("%.6g", row[rank]["value"].get<double>())});
      }
      ++row_number;
    }
  }
  std::cout << "\n" << best.Render();
}

json ToJson(const InferReply& reply, size_t top, absl::Duration round_trip) {
  json out = {{"model_name", reply.model_name},
              {"model_version", reply.model_version},
              {"id", reply.id},
              {"class", reply.effective_class.has_value() ? json(std::string(RequestClassName(*reply.effective_class)))
                                                          : json(nullptr)},
              {"round_trip_ms", absl::ToDoubleMilliseconds(round_trip)},
              {"outputs", json::array()}};
  if (reply.timings.has_value()) {
    const StageTimings& timings = *reply.timings;
    out["timings_us"] = {{"queue", absl::ToInt64Microseconds(timings.queue)},
                         {"copy_in", absl::ToInt64Microseconds(timings.copy_in)},
                         {"h2d", absl::ToInt64Microseconds(timings.h2d)},
                         {"gpu_wait", absl::ToInt64Microseconds(timings.gpu_wait)},
                         {"compute", absl::ToInt64Microseconds(timings.compute)},
                         {"d2h", absl::ToInt64Microseconds(timings.d2h)},
                         {"total", absl::ToInt64Microseconds(timings.total)}};
  }
  for (const Tensor& output : reply.outputs) {
    json entry = {{"name", output.name}, {"datatype", std::string(WireName(output.type))}, {"shape", output.shape}};
    if (top > 0) {
      entry["top"] = TopJson(output, top);
    } else {
      entry["data"] = Elements(output, output.bytes.size());
    }
    out["outputs"].push_back(std::move(entry));
  }
  return out;
}

int RunInfer(const InferFlags& flags) {
  int exit_code = kExitOk;
  const std::unique_ptr<Client> client = ConnectOrExplain(flags.connection, exit_code);
  if (client == nullptr) return exit_code;
  const absl::StatusOr<ModelInfo> model = client->ModelMetadata(flags.model, flags.version);
  if (!model.ok()) {
    PrintError(flags.connection, model.status());
    return kExitFailed;
  }
  absl::StatusOr<std::vector<Tensor>> inputs = MakeInputs(flags, *model);
  if (!inputs.ok()) {
    PrintError(flags.connection, inputs.status());
    return kExitUsage;
  }
  const MonotonicClock clock;
  const Time start = clock.Now();
  const absl::StatusOr<InferReply> reply = client->Infer(flags.model, *std::move(inputs), MakeOptions(flags));
  const absl::Duration round_trip = clock.Now() - start;
  if (!reply.ok()) {
    PrintError(flags.connection, reply.status());
    return kExitFailed;
  }
  if (flags.connection.json) {
    PrintJson(ToJson(*reply, flags.top, round_trip));
  } else {
    PrintText(*reply, flags.top, round_trip);
  }
  return kExitOk;
}

}  // namespace

void AddInferCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InferFlags>();
  CLI::App* command = app.add_subcommand("infer", "Run one inference and print its outputs");
  AddConnectionFlags(*command, flags->connection);
  command->add_option("-m,--model", flags->model, "Model")->required();
  command->add_option("--model-version", flags->version, "Version; the newest ready one when left out");
  CLI::Option* inputs =
      command->add_option("--input", flags->inputs,
                          "NAME=FILE (.npy, .json, anything else is raw bytes) or NAME=random; one for each input");
  command
      ->add_option("--json-input", flags->json_input,
                   "File (- is standard input) with {\"NAME\": nested arrays} or {\"inputs\": [...]} as over HTTP")
      ->excludes(inputs);
  command->add_option("--shape", flags->shapes, "NAME:A,B,C for an input whose shape the file does not tell");
  command->add_option("--batch", flags->batch, "Rows of random inputs")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command->add_option("--seed", flags->seed, "Seed of random inputs")->capture_default_str();
  command->add_option("--class", flags->class_name, "latency, standard or batch; the server decides when left out")
      ->check(CLI::IsMember({"latency", "standard", "batch"}));
  command->add_option("--priority", flags->priority, "Priority parameter: 1 is the highest, 0 the model's default");
  command->add_option("--timeout-us", flags->timeout_us, "Longest time in the server's queue")
      ->check(CLI::Range(int64_t{1}, int64_t{86'400'000'000}));
  command->add_option("--id", flags->id, "Id that comes back in the reply");
  command->add_option("--output", flags->outputs, "Output to ask for; all when left out");
  command->add_option("--top", flags->top, "Print the K largest values of each row of each output");
  command->add_flag("--timings", flags->timings, "Ask the server where the time went");
  command->add_flag("--json", flags->connection.json, "Print JSON");
  command->callback([flags, &exit_code] { exit_code = RunInfer(*flags); });
}

}  // namespace sluice::client
