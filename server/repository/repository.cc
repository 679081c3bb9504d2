// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/repository/repository.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace sluice::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxEntries = 10000;  // Of one folder: more is not a model repository.

/// A version folder's number, or empty when the name is not one: a positive integer as it is printed.
std::optional<int64_t> ParseVersion(absl::string_view name) {
  int64_t version = 0;
  if (!absl::SimpleAtoi(name, &version) || version < 1 || absl::StrCat(version) != name) return std::nullopt;
  return version;
}

/// Names of the entries that are not hidden, sorted.
absl::StatusOr<std::vector<std::string>> ListFolder(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  std::vector<std::string> names;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name[0] == '.') continue;
    if (names.size() >= kMaxEntries) {
      return absl::FailedPreconditionError(absl::StrCat(folder.string(), " has more than ", kMaxEntries, " entries"));
    }
    names.push_back(std::move(name));
  }
  if (error) {
    return absl::FailedPreconditionError(absl::StrCat("cannot read ", folder.string(), ": ", error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

absl::StatusOr<std::optional<ParsedConfig>> ReadConfig(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (error) return absl::FailedPreconditionError(absl::StrCat("cannot read config.pbtxt: ", error.message()));
    return std::nullopt;
  }
  if (!IsFile(path)) return absl::InvalidArgumentError("config.pbtxt is not a file");
  std::ifstream file(path, std::ios::binary);
  // One byte more than allowed, so that the parser's own bound speaks.
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || !file.is_open()) return absl::FailedPreconditionError("cannot read config.pbtxt");
  text.resize(static_cast<size_t>(file.gcount()));
  SLUICE_ASSIGN_OR_RETURN(ParsedConfig config, ParseConfigText(text));
  return config;
}

/// The versions in `found` (ascending) that the policy selects.
absl::StatusOr<std::vector<int64_t>> SelectVersions(const inference::ModelVersionPolicy& policy,
                                                    std::vector<int64_t> found) {
  switch (policy.policy_choice_case()) {
    case inference::ModelVersionPolicy::kAll:
      return found;
    case inference::ModelVersionPolicy::kSpecific: {
      std::vector<int64_t> wanted(policy.specific().versions().begin(), policy.specific().versions().end());
      if (wanted.empty()) return absl::InvalidArgumentError("config.pbtxt: version_policy.specific: names no version");
      std::sort(wanted.begin(), wanted.end());
      wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
      for (const int64_t version : wanted) {
        if (!std::binary_search(found.begin(), found.end(), version)) {
          return absl::NotFoundError(
              absl::StrCat("config.pbtxt: version_policy.specific: there is no version folder '", version, "'"));
        }
      }
      return wanted;
    }
    case inference::ModelVersionPolicy::kLatest:
    case inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET:
      break;
  }
  const size_t count = policy.has_latest() ? policy.latest().num_versions() : 1;
  if (count == 0)
    return absl::InvalidArgumentError("config.pbtxt: version_policy.latest.num_versions: must be at least 1");
  if (found.size() > count) found.erase(found.begin(), found.end() - static_cast<std::ptrdiff_t>(count));
  return found;
}

absl::StatusOr<std::vector<int64_t>> FindVersions(const fs::path& folder) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  std::vector<int64_t> versions;
  for (const std::string& name : names) {
    if (!IsFolder(folder / name)) continue;  // config.pbtxt, labels and the like.
    if (const std::optional<int64_t> version = ParseVersion(name)) {
      versions.push_back(*version);
    } else {
      Log(Severity::kInfo, "folder is not a version and is not used", {{"folder", (folder / name).string()}});
    }
  }
  std::sort(versions.begin(), versions.end());
  if (versions.empty()) {
    return absl::NotFoundError("no version folder (a positive integer, such as 1)");
  }
  return versions;
}

absl::StatusOr<std::string> ModelFileName(const std::optional<ParsedConfig>& config) {
  if (!config || config->config.default_model_filename().empty()) return "model.onnx";
  const std::string& name = config->config.default_model_filename();
  const bool plain = name != "." && name != ".." && name.find('/') == std::string::npos &&
                     std::none_of(name.begin(), name.end(), [](char c) { return absl::ascii_iscntrl(c); });
  if (!plain) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.pbtxt: default_model_filename: must be a file name without folders, not '", name, "'"));
  }
  return name;
}

/// Those of the versions `found` that the config selects, in `folder`.
absl::Status AddVersions(const fs::path& folder, std::vector<int64_t> found,
                         absl::FunctionRef<bool(const fs::path&)> is_file, RepositoryModel& model) {
  SLUICE_ASSIGN_OR_RETURN(const std::string file_name, ModelFileName(model.config));
  const inference::ModelVersionPolicy policy =
      model.config ? model.config->config.version_policy() : inference::ModelVersionPolicy();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> selected, SelectVersions(policy, std::move(found)));
  for (const int64_t version : selected) {
    const fs::path file = folder / absl::StrCat(version) / file_name;
    RepositoryVersion& entry = model.versions.emplace_back(RepositoryVersion{version, file.string(), absl::OkStatus()});
    if (!is_file(file)) entry.status = absl::NotFoundError(absl::StrCat("there is no file ", file.string()));
  }
  return absl::OkStatus();
}

absl::Status ScanFolder(const fs::path& folder, const ParsedConfig* instead, RepositoryModel& model) {
  if (!IsSafeModelName(model.name)) {
    return absl::InvalidArgumentError("the folder's name is no model name: 1 to 128 of A-Z a-z 0-9 . _ - + @");
  }
  if (instead != nullptr) {
    model.config = *instead;
  } else {
    SLUICE_ASSIGN_OR_RETURN(model.config, ReadConfig(folder / "config.pbtxt"));
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<int64_t> found, FindVersions(folder));
  return AddVersions(folder, std::move(found), &IsFile, model);
}

RepositoryModel Scan(const fs::path& root, const std::string& name, const ParsedConfig* instead) {
  const fs::path folder = root / name;
  RepositoryModel model;
  model.name = name;
  model.path = folder.string();
  const absl::Status status = ScanFolder(folder, instead, model);
  if (!status.ok()) model.status = absl::Status(status.code(), absl::StrCat("model '", name, "': ", status.message()));
  return model;
}

/// What is wrong with the path of a file that a client gives; empty when nothing is.
std::string WrongWithGivenPath(absl::string_view path) {
  constexpr size_t kMaxPathBytes = 1024;
  if (path.size() > kMaxPathBytes) return absl::StrCat("a path of ", path.size(), " bytes");
  if (absl::StartsWith(path, "/")) return "an absolute path";
  if (std::any_of(path.begin(), path.end(), [](char c) { return c == '\\' || absl::ascii_iscntrl(c); })) {
    return "a path with a backslash or a control character";
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  for (const absl::string_view part : parts) {
    if (part.empty()) return "a path with an empty part";
    if (part == "." || part == "..") return absl::StrCat("a path with '", part, "'");
  }
  if (parts.size() < 2) return "a path without a version";
  if (!ParseVersion(parts.front())) return absl::StrCat("'", parts.front(), "' for a version, a positive integer");
  return "";
}

}  // namespace

absl::Status CheckGivenFiles(const std::string& name, const model::FilesInMemory& files) {
  constexpr size_t kMaxShownBytes = 128;
  if (!files.empty() && !IsSafeModelName(name)) {
    return absl::InvalidArgumentError(absl::StrCat("model_name: expected 1 to 128 of A-Z a-z 0-9 . _ - + @, got '",
                                                   name.substr(0, kMaxShownBytes), "'"));
  }
  if (files.size() > kMaxGivenFiles) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameters 'file:...': expected at most ", kMaxGivenFiles, ", got ", files.size()));
  }
  for (const auto& [path, bytes] : files) {
    const std::string wrong = WrongWithGivenPath(path);
    if (wrong.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameter 'file:", path.substr(0, kMaxShownBytes),
                                                   "': expected file:<version>/<file>, got ", wrong));
  }
  return absl::OkStatus();
}

RepositoryModel ScanGivenFiles(const std::string& name, std::shared_ptr<const model::FilesInMemory> files,
                               const ParsedConfig& config) {
  RepositoryModel model;
  model.name = name;
  model.config = config;
  std::set<int64_t> versions;
  for (const auto& [path, bytes] : *files) {
    const std::optional<int64_t> version = ParseVersion(absl::string_view(path).substr(0, path.find('/')));
    if (version.has_value()) versions.insert(*version);
  }
  const absl::Status status = AddVersions(
      {}, {versions.begin(), versions.end()}, [&files](const fs::path& path) { return files->contains(path.string()); },
      model);
  if (!status.ok()) model.status = absl::Status(status.code(), absl::StrCat("model '", name, "': ", status.message()));
  model.files = std::move(files);
  return model;
}

bool IsSafeModelName(absl::string_view name) {
  if (name.empty() || name.size() > 128 || name[0] == '.' || name[0] == '-') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("._-+@").find(c) != absl::string_view::npos;
  });
}

RepositoryModel ScanModel(const std::string& path, const std::string& name, const ParsedConfig* instead) {
  // The name may come from a client: it is looked at before the file system is.
  if (IsSafeModelName(name) && IsFolder(fs::path(path) / name)) return Scan(path, name, instead);
  RepositoryModel model;
  model.name = name;
  model.status = absl::NotFoundError("there is no such model in the repository");
  return model;
}

absl::StatusOr<std::vector<std::string>> ListModels(const std::string& path) {
  const fs::path root(path);
  if (!IsFolder(root)) return absl::NotFoundError(absl::StrCat("model repository ", path, " is not a folder"));
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(root));
  std::erase_if(names, [&root](const std::string& name) { return !IsSafeModelName(name) || !IsFolder(root / name); });
  return names;
}

absl::StatusOr<std::vector<RepositoryModel>> ScanRepository(const std::string& path) {
  const fs::path root(path);
  if (!IsFolder(root)) return absl::NotFoundError(absl::StrCat("model repository ", path, " is not a folder"));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(root));
  std::vector<RepositoryModel> models;
  for (const std::string& name : names) {
    if (!IsFolder(root / name)) {
      Log(Severity::kInfo, "file in the model repository is not used", {{"file", (root / name).string()}});
      continue;
    }
    models.push_back(Scan(root, name, nullptr));
  }
  return models;
}

}  // namespace sluice::server
