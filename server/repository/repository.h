// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/model.h"
#include "server/repository/config_pbtxt.h"

namespace sluice::server {

/// One version folder that the model's version policy selects.
struct RepositoryVersion {
  int64_t version = 0;
  std::string path;     ///< Of the model file; among RepositoryModel::files if there are any.
  absl::Status status;  ///< Why it cannot be loaded; NOT_FOUND when the file is missing.
};

/// One folder of the repository, or files that a client gave in its place.
struct RepositoryModel {
  std::string name;
  std::string path;                                   ///< Of the folder; empty when there is none.
  std::shared_ptr<const model::FilesInMemory> files;  ///< By path below the folder; null: they are on disk.
  std::optional<ParsedConfig> config;                 ///< Empty when there is no config.pbtxt.
  std::vector<RepositoryVersion> versions;            ///< Ascending.
  absl::Status status;                                ///< Why none of it can be loaded. Other models are not affected.
};

/// Looks at the folder of one model. With `instead` its config.pbtxt is not read, and this is its config. NOT_FOUND in
/// the status when there is no such folder, or `name` cannot be one.
RepositoryModel ScanModel(const std::string& path, const std::string& name, const ParsedConfig* instead = nullptr);

inline constexpr size_t kMaxGivenFiles = 1024;

/// Files that a client gives in place of the folder of model `name` (none: of which nothing is asked): at most
/// kMaxGivenFiles, each at <version>/<file>, as ONNX's external data also deeper. INVALID_ARGUMENT naming the parameter
/// otherwise.
absl::Status CheckGivenFiles(const std::string& name, const model::FilesInMemory& files);

/// The same as ScanModel for files that were checked. `name` need not be in the repository.
RepositoryModel ScanGivenFiles(const std::string& name, std::shared_ptr<const model::FilesInMemory> files,
                               const ParsedConfig& config);

/// Names of the folders that ScanModel would look at, ascending; nothing in them is read. Bounds and errors as
/// ScanRepository.
absl::StatusOr<std::vector<std::string>> ListModels(const std::string& path);

/// Looks at `path`/<model>/<version>/<model file> and `path`/<model>/config.pbtxt, by name ascending. Hidden entries
/// are passed over, and so are, with a line in the log, files and folders that are neither. Loads nothing. NOT_FOUND or
/// FAILED_PRECONDITION only when the repository itself cannot be read; what is wrong with a model is in its status.
absl::StatusOr<std::vector<RepositoryModel>> ScanRepository(const std::string& path);

/// True for names that are safe as a label, a path part and a log field: 1 to 128 of A-Z a-z 0-9 . _ - + @, not
/// beginning with . or -.
bool IsSafeModelName(absl::string_view name);

}  // namespace sluice::server
