// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "client/commands/commands.h"
#include "client/commands/connection.h"
#include "client/text_table.h"
#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

struct ModelsFlags {
  ConnectionFlags connection;
  std::string load;
  std::string unload;
  std::string config_file;
  std::vector<std::string> files;  ///< VERSION/NAME=PATH
};

/// INVALID_ARGUMENT naming `flag` for a file that cannot be read.
absl::StatusOr<std::string> ReadFile(const char* flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": cannot read '", path, "'"));
  }
  return text;
}

/// What is sent with a load.
struct Given {
  std::optional<std::string> config;
  std::map<std::string, std::string> files;
};

absl::StatusOr<Given> ReadGiven(const ModelsFlags& flags) {
  Given given;
  if (!flags.config_file.empty()) {
    SLUICE_ASSIGN_OR_RETURN(given.config, ReadFile("--config", flags.config_file));
  }
  for (const std::string& file : flags.files) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(file, absl::MaxSplits('=', 1));
    if (parts.first.empty() || parts.second.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--file: expected VERSION/NAME=PATH, got '", file, "'"));
    }
    SLUICE_ASSIGN_OR_RETURN(given.files[parts.first], ReadFile("--file", parts.second));
  }
  return given;
}

void PrintModels(const ConnectionFlags& flags, const std::vector<ModelIndexEntry>& models) {
  if (flags.json) {
    nlohmann::json document = nlohmann::json::array();
    for (const ModelIndexEntry& model : models) {
      document.push_back(
          {{"name", model.name}, {"version", model.version}, {"state", model.state}, {"reason", model.reason}});
    }
    PrintJson(document);
    return;
  }
  TextTable table({"model", "version", "state", "reason"});
  for (const ModelIndexEntry& model : models) {
    table.AddRow({model.name, model.version, model.state.empty() ? "-" : model.state, model.reason});
  }
  std::cout << table.Render();
}

int RunModels(const ModelsFlags& flags) {
  const absl::StatusOr<Given> given = ReadGiven(flags);
  if (!given.ok()) {
    PrintError(flags.connection, given.status());
    return kExitUsage;
  }
  int exit_code = kExitOk;
  const std::unique_ptr<Client> client = ConnectOrExplain(flags.connection, exit_code);
  if (client == nullptr) return exit_code;
  absl::Status status;
  if (!flags.unload.empty()) status = client->UnloadModel(flags.unload);
  if (status.ok() && !flags.load.empty()) status = client->LoadModel(flags.load, given->config, given->files);
  absl::StatusOr<std::vector<ModelIndexEntry>> models = std::vector<ModelIndexEntry>();
  if (status.ok()) models = client->RepositoryIndex();
  if (status.ok()) status = models.status();
  if (!status.ok()) {
    PrintError(flags.connection, status);
    return kExitFailed;
  }
  PrintModels(flags.connection, *models);
  return kExitOk;
}

}  // namespace

void AddModelsCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ModelsFlags>();
  CLI::App* command =
      app.add_subcommand("models", "List the models of the server's repository, loading or unloading one");
  AddConnectionFlags(*command, flags->connection);
  command->add_option("--unload", flags->unload, "A model to unload first");
  CLI::Option* load =
      command->add_option("--load", flags->load, "A model to load, or to replace by what the repository has now");
  CLI::Option* config =
      command->add_option("--config", flags->config_file, "File of JSON in place of the loaded model's config.pbtxt")
          ->needs(load);
  command
      ->add_option("--file", flags->files,
                   "VERSION/NAME=PATH, repeatable: files to load in place of the repository's, such as "
                   "1/model.onnx=FILE")
      ->needs(config);
  command->add_flag("--json", flags->connection.json, "Print JSON");
  command->callback([flags, &exit_code] { exit_code = RunModels(*flags); });
}

}  // namespace sluice::client
