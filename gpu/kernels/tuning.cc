// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// The file is text, so that people can compare two: a first line with the format's version, a second one with the
// environment, then a line for each choice, "problem<tab>choice", in the order of the problems.
#include "gpu/kernels/tuning.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace sluice::gpu {
namespace {

constexpr absl::string_view kFirstLine = "sluice tuning 1";
constexpr uintmax_t kMostFileBytes = uintmax_t{64} << 20;

/// Letters, digits and dots of the environment, as a file name.
std::string FileName(absl::string_view environment) {
  std::string name;
  for (const char c : environment) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.';
    if (plain) name.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
    if (!plain && !name.empty() && name.back() != '-') name.push_back('-');
  }
  return name + ".tuning";
}

absl::Status FileError(const std::string& path, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("tuning file ", path, ": ", what));
}

}  // namespace

std::string TuningTable::path() const {
  return options_.folder.empty() ? "" : (std::filesystem::path(options_.folder) / FileName(environment_)).string();
}

absl::StatusOr<std::unique_ptr<TuningTable>> TuningTable::Read(const TuningOptions& options,
                                                               const std::string& environment) {
  std::unique_ptr<TuningTable> table(new TuningTable(options, environment));
  if (options.folder.empty()) return table;
  std::error_code error;
  if (!options.tune && !std::filesystem::is_directory(options.folder, error)) {
    return absl::NotFoundError(absl::StrCat("folder of tunings: expected a folder, got '", options.folder, "'"));
  }
  const std::string path = table->path();
  if (!std::filesystem::exists(path, error)) return table;
  const uintmax_t size_bytes = std::filesystem::file_size(path, error);
  if (error || size_bytes > kMostFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat("tuning file ", path, ": expected a file of at most ",
                                                   kMostFileBytes, " bytes, got ",
                                                   error ? error.message() : absl::StrCat(size_bytes)));
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return FileError(path, "cannot be read");
  SLUICE_RETURN_IF_ERROR(table->Parse(text));
  return table;
}

absl::Status TuningTable::Parse(absl::string_view text) {
  const auto bad = [&](size_t line, absl::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat("tuning file ", path(), ", line ", line, ": expected ", expected,
                                                   "; delete the file and run `sluice tune` again"));
  };
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.size() < 2 || lines[0] != kFirstLine) return bad(1, absl::StrCat("'", kFirstLine, "' and an environment"));
  if (lines[1] != environment_) {
    return absl::FailedPreconditionError(absl::StrCat("tuning file ", path(), ", line 2: expected '", environment_,
                                                      "', got '", lines[1].substr(0, 200), "'"));
  }
  if (lines.size() - 2 > kMostTuningEntries) {
    return bad(kMostTuningEntries + 3, absl::StrCat("at most ", kMostTuningEntries, " choices"));
  }
  MutexLock lock(mutex_);
  for (size_t i = 2; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(lines[i], absl::MaxSplits('\t', 1));
    const auto [problem, choice] = parts;
    if (problem.empty() || choice.empty() || absl::StrContains(choice, '\t')) {
      return bad(i + 1, "a problem, a tab and a choice");
    }
    if (!choices_.emplace(problem, choice).second) return bad(i + 1, "each problem once");
  }
  return absl::OkStatus();
}

std::optional<std::string> TuningTable::Find(absl::string_view problem) const {
  MutexLock lock(mutex_);
  if (options_.tune && !recorded_.contains(problem)) return std::nullopt;
  const auto found = choices_.find(problem);
  if (found == choices_.end()) return std::nullopt;
  return found->second;
}

absl::Status TuningTable::Record(absl::string_view problem, absl::string_view choice) {
  if (!options_.tune) return absl::OkStatus();
  MutexLock lock(mutex_);
  if (choices_.size() >= kMostTuningEntries && !choices_.contains(problem)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tuning file ", path(), ": it has ", kMostTuningEntries, " choices, the most there may be"));
  }
  choices_.insert_or_assign(std::string(problem), std::string(choice));
  recorded_.emplace(problem);
  return absl::OkStatus();
}

void TuningTable::Remember(absl::string_view problem, absl::string_view choice) {
  MutexLock lock(mutex_);
  if (remembered_.size() >= kMostTuningEntries && !remembered_.contains(problem)) return;
  remembered_.insert_or_assign(std::string(problem), std::string(choice));
}

std::optional<std::string> TuningTable::Remembered(absl::string_view problem) const {
  MutexLock lock(mutex_);
  const auto found = remembered_.find(problem);
  if (found == remembered_.end()) return std::nullopt;
  return found->second;
}

absl::Status TuningTable::Write() const {
  const std::string to = path();
  if (to.empty()) return absl::FailedPreconditionError("a tuning is to be written, and no folder was named");
  std::string text = absl::StrCat(kFirstLine, "\n", environment_, "\n");
  {
    MutexLock lock(mutex_);
    for (const auto& [problem, choice] : choices_) absl::StrAppend(&text, problem, "\t", choice, "\n");
  }
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) return FileError(to, absl::StrCat("its folder cannot be made: ", error.message()));
  const std::string beside = to + ".new";
  {
    std::ofstream file(beside, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    if (!file) return FileError(beside, "cannot be written");
  }
  std::filesystem::rename(beside, to, error);
  return error ? FileError(to, absl::StrCat("cannot be replaced: ", error.message())) : absl::OkStatus();
}

size_t TuningTable::size() const {
  MutexLock lock(mutex_);
  return choices_.size();
}

size_t TuningTable::recorded_count() const {
  MutexLock lock(mutex_);
  return recorded_.size();
}

}  // namespace sluice::gpu
