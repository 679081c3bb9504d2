// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/commands/connection.h"
#include "client/text_table.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;

struct ModelState {
  ModelCounters counters;
  bool ready = false;
  ModelInfo info;
};

struct ServerState {
  bool live = false;
  bool ready = false;
  ServerInfo info;
  std::vector<ModelState> models;
};

absl::StatusOr<ServerState> Ask(Client& client) {
  ServerState state;
  SLUICE_ASSIGN_OR_RETURN(state.live, client.ServerLive());
  SLUICE_ASSIGN_OR_RETURN(state.ready, client.ServerReady());
  SLUICE_ASSIGN_OR_RETURN(state.info, client.ServerMetadata());
  SLUICE_ASSIGN_OR_RETURN(std::vector<ModelCounters> all, client.ModelStatistics());
  for (ModelCounters& counters : all) {
    ModelState model;
    model.counters = std::move(counters);
    // A model may go between two calls, or be known and not ready: both are states to show, not errors of this command.
    const absl::StatusOr<bool> ready = client.ModelReady(model.counters.name, model.counters.version);
    model.ready = ready.ok() && *ready;
    absl::StatusOr<ModelInfo> info = client.ModelMetadata(model.counters.name, model.counters.version);
    if (info.ok()) model.info = *std::move(info);
    state.models.push_back(std::move(model));
  }
  return state;
}

std::string TensorText(const std::vector<TensorInfo>& tensors) {
  return absl::StrJoin(tensors, " ", [](std::string* out, const TensorInfo& tensor) {
    absl::StrAppend(out, tensor.name, ":", WireName(tensor.type), "[", absl::StrJoin(tensor.shape, ","), "]");
  });
}

std::string MeanMs(const StageCount& stage) {
  if (stage.count == 0) return "-";
  return absl::StrFormat("%.2f", absl::ToDoubleMilliseconds(stage.mean()));
}

void PrintText(const ServerState& state) {
  std::cout << state.info.name << " " << state.info.version << ": " << (state.live ? "live" : "not live") << ", "
            << (state.ready ? "ready" : "not ready") << "\n\n";
  TextTable models({"model", "version", "state", "inputs", "outputs"});
  TextTable counts({"model", "version", "ok", "failed", "rows", "batches", "mean ms", "queue ms", "input ms",
                    "infer ms", "output ms"});
  for (const ModelState& model : state.models) {
    const ModelCounters& counters = model.counters;
    models.AddRow({counters.name, counters.version, model.ready ? "READY" : "UNAVAILABLE",
                   TensorText(model.info.inputs), TensorText(model.info.outputs)});
    counts.AddRow({counters.name, counters.version, absl::StrCat(counters.success.count),
                   absl::StrCat(counters.fail.count), absl::StrCat(counters.inference_count),
                   absl::StrCat(counters.execution_count), MeanMs(counters.success), MeanMs(counters.queue),
                   MeanMs(counters.compute_input), MeanMs(counters.compute_infer), MeanMs(counters.compute_output)});
  }
  std::cout << models.Render() << "\n" << counts.Render();
}

json TensorsJson(const std::vector<TensorInfo>& tensors) {
  json out = json::array();
  for (const TensorInfo& tensor : tensors) {
    out.push_back({{"name", tensor.name}, {"datatype", std::string(WireName(tensor.type))}, {"shape", tensor.shape}});
  }
  return out;
}

json StageJson(const StageCount& stage) {
  return {{"count", stage.count}, {"mean_ms", absl::ToDoubleMilliseconds(stage.mean())}};
}

json ToJson(const ServerState& state) {
  json models = json::array();
  for (const ModelState& model : state.models) {
    const ModelCounters& counters = model.counters;
    models.push_back({{"name", counters.name},
                      {"version", counters.version},
                      {"ready", model.ready},
                      {"platform", model.info.platform},
                      {"inputs", TensorsJson(model.info.inputs)},
                      {"outputs", TensorsJson(model.info.outputs)},
                      {"rows", counters.inference_count},
                      {"batches", counters.execution_count},
                      {"success", StageJson(counters.success)},
                      {"fail", StageJson(counters.fail)},
                      {"queue", StageJson(counters.queue)},
                      {"compute_input", StageJson(counters.compute_input)},
                      {"compute_infer", StageJson(counters.compute_infer)},
                      {"compute_output", StageJson(counters.compute_output)}});
  }
  return {{"name", state.info.name}, {"version", state.info.version}, {"extensions", state.info.extensions},
          {"live", state.live},      {"ready", state.ready},          {"models", models}};
}

int RunStatus(const ConnectionFlags& flags) {
  int exit_code = kExitOk;
  const std::unique_ptr<Client> client = ConnectOrExplain(flags, exit_code);
  if (client == nullptr) return exit_code;
  const absl::StatusOr<ServerState> state = Ask(*client);
  if (!state.ok()) {
    PrintError(flags, state.status());
    return kExitFailed;
  }
  if (flags.json) {
    PrintJson(ToJson(*state));
  } else {
    PrintText(*state);
  }
  return state->live && state->ready ? kExitOk : kExitFailed;
}

}  // namespace

void AddStatusCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ConnectionFlags>();
  CLI::App* command = app.add_subcommand(
      "status", "Show the server, its models, their counts and mean stage times; fails when not ready");
  AddConnectionFlags(*command, *flags);
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([flags, &exit_code] { exit_code = RunStatus(*flags); });
}

}  // namespace sluice::client
