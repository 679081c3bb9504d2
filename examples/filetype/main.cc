// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/client.h"
#include "client/errors.h"
#include "examples/filetype/content.h"
#include "examples/filetype/rules.h"
#include "nlohmann/json.hpp"

namespace sluice::filetype {
namespace {

struct Flags {
  std::string address = "localhost:8001";
  std::string model = "filetype";
  std::string config = "models/filetype/config.min.json";
  std::vector<std::string> files;
  bool json = false;
};

struct Row {
  std::string file;
  absl::StatusOr<Verdict> verdict;
};

absl::StatusOr<Rules> ReadRules(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open '", path, "'"));
  return ParseRules(std::string(std::istreambuf_iterator<char>(file), {}));
}

/// Asks the model about some files at once: row i of the request and of the answer is features[i].
absl::StatusOr<std::vector<Verdict>> AskModel(client::Client& client, const std::string& model, const Rules& rules,
                                              const std::vector<std::vector<int32_t>>& features) {
  client::Tensor input;
  input.name = "bytes";
  input.type = DataType::kInt32;
  input.shape = {static_cast<int64_t>(features.size()), static_cast<int64_t>(rules.begin_size + rules.end_size)};
  for (const std::vector<int32_t>& row : features) {
    input.bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(int32_t));
  }
  SLUICE_ASSIGN_OR_RETURN(const client::InferReply reply, client.Infer(model, {std::move(input)}));
  const auto output = std::find_if(reply.outputs.begin(), reply.outputs.end(),
                                   [](const client::Tensor& tensor) { return tensor.name == "target_label"; });
  const size_t labels = rules.labels.size();
  if (output == reply.outputs.end() || output->type != DataType::kFp32 ||
      output->bytes.size() != features.size() * labels * sizeof(float)) {
    return absl::InternalError(
        "the model's output is not 'target_label' FP32 [files, labels]: does the config fit it?");
  }
  std::vector<float> scores(features.size() * labels);
  std::memcpy(scores.data(), output->bytes.data(), output->bytes.size());
  std::vector<Verdict> verdicts;
  for (size_t i = 0; i < features.size(); ++i) {
    verdicts.push_back(JudgeScores(rules, std::span<const float>(scores).subspan(i * labels, labels)));
  }
  return verdicts;
}

/// Prepares every file and asks the model about those that need it, as many in one request as the model takes.
absl::StatusOr<std::vector<Row>> Identify(client::Client& client, const Flags& flags, const Rules& rules) {
  SLUICE_ASSIGN_OR_RETURN(const inference::ModelConfig config, client.ModelConfig(flags.model));
  const auto most_rows = static_cast<size_t>(std::max(1, config.max_batch_size()));
  std::vector<Row> rows;
  std::vector<size_t> waiting;
  std::vector<std::vector<int32_t>> features;
  for (size_t i = 0; i < flags.files.size(); ++i) {
    absl::StatusOr<Prepared> prepared = PrepareFile(rules, flags.files[i]);
    if (!prepared.ok()) {
      rows.push_back({flags.files[i], prepared.status()});
    } else if (prepared->verdict.has_value()) {
      rows.push_back({flags.files[i], *prepared->verdict});
    } else {
      rows.push_back({flags.files[i], Verdict()});
      waiting.push_back(i);
      features.push_back(std::move(prepared->features));
    }
    if (features.empty() || (features.size() < most_rows && i + 1 < flags.files.size())) continue;
    SLUICE_ASSIGN_OR_RETURN(std::vector<Verdict> verdicts, AskModel(client, flags.model, rules, features));
    for (size_t row = 0; row < waiting.size(); ++row) rows[waiting[row]].verdict = std::move(verdicts[row]);
    waiting.clear();
    features.clear();
  }
  return rows;
}

void PrintText(const std::vector<Row>& rows) {
  size_t width = 4;
  for (const Row& row : rows) width = std::max(width, row.file.size());
  std::cout << absl::StrFormat("%-*s  %-16s  %s\n", static_cast<int>(width), "file", "type", "score");
  for (const Row& row : rows) {
    if (!row.verdict.ok()) continue;
    std::cout << absl::StrFormat("%-*s  %-16s  %.3f\n", static_cast<int>(width), row.file, row.verdict->type,
                                 row.verdict->score);
  }
}

void PrintJson(const std::vector<Row>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const Row& row : rows) {
    if (row.verdict.ok()) {
      out.push_back({{"file", row.file},
                     {"type", row.verdict->type},
                     {"label", row.verdict->label},
                     {"score", row.verdict->score}});
    } else {
      out.push_back({{"file", row.file}, {"error", std::string(row.verdict.status().message())}});
    }
  }
  std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

int Fail(const absl::Status& status, int exit_code) {
  std::cerr << "filetype: " << client::CodeName(status.code()) << ": " << status.message() << "\n";
  return exit_code;
}

int Run(const Flags& flags) {
  const absl::StatusOr<Rules> rules = ReadRules(flags.config);
  if (!rules.ok()) return Fail(rules.status(), 2);
  client::ClientOptions options;
  options.address = flags.address;
  const absl::StatusOr<std::unique_ptr<client::Client>> client = client::Client::Connect(options);
  if (!client.ok()) return Fail(client.status(), 3);
  const absl::StatusOr<std::vector<Row>> rows = Identify(**client, flags, *rules);
  if (!rows.ok()) return Fail(rows.status(), 1);
  flags.json ? PrintJson(*rows) : PrintText(*rows);
  int exit_code = 0;
  for (const Row& row : *rows) {
    if (!row.verdict.ok()) exit_code = Fail(row.verdict.status(), 1);
  }
  return exit_code;
}

}  // namespace
}  // namespace sluice::filetype

int main(int argc, char** argv) {
  sluice::filetype::Flags flags;
  CLI::App app("filetype: name the type of files with the file-type model of an inference server", "filetype");
  app.add_option("-u,--url", flags.address, "Address of the server, host:port")->capture_default_str();
  app.add_option("-m,--model", flags.model, "Name of the model")->capture_default_str();
  app.add_option("--config", flags.config, "The model's config.min.json")->capture_default_str();
  app.add_flag("--json", flags.json, "Print JSON");
  app.add_option("FILE", flags.files, "Files")->required();
  app.footer("Exit codes: 0 success, 1 failed, 2 wrong usage, 3 server unreachable.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return sluice::filetype::Run(flags);
}
