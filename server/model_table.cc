// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/model_table.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

/// A name as a client sent it, made safe for a status message and not longer than one line.
std::string Quoted(const std::string& name) {
  constexpr size_t kLongest = 128;
  const std::string cut = name.size() > kLongest ? name.substr(0, kLongest) + "..." : name;
  return absl::StrCat("'", absl::CHexEscape(cut), "'");
}

absl::Status UnknownModel(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("unknown model ", Quoted(name)));
}

absl::Status NotReady(const std::string& name, int64_t version, const absl::Status& failure) {
  const std::string which = version > 0 ? absl::StrCat(Quoted(name), " version ", version) : Quoted(name);
  if (failure.ok()) return absl::UnavailableError(absl::StrCat("model ", which, " is loading"));
  return absl::UnavailableError(absl::StrCat("model ", which, " is not ready: ", std::string(failure.message())));
}

}  // namespace

void ModelTable::SetLoading(const std::string& name, int64_t version) {
  MutexLock lock(mutex_);
  models_[name][version] = Entry{};
}

void ModelTable::SetReady(std::shared_ptr<const ServedModel> model) {
  MutexLock lock(mutex_);
  models_[model->name][model->version] = Entry{.ready = model, .failure = absl::OkStatus()};
}

void ModelTable::SetFailed(const std::string& name, int64_t version, const absl::Status& reason) {
  MutexLock lock(mutex_);
  models_[name][version] = Entry{.ready = nullptr, .failure = reason};
}

absl::StatusOr<std::shared_ptr<const ServedModel>> ModelTable::Find(const std::string& name,
                                                                    const std::string& version) const {
  int64_t wanted = -1;
  if (!version.empty() && (!absl::SimpleAtoi(version, &wanted) || wanted < 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model_version: expected a number that is not negative, or nothing "
                     "for the newest, got ",
                     Quoted(version)));
  }
  MutexLock lock(mutex_);
  const auto model = models_.find(name);
  if (model == models_.end()) return UnknownModel(name);
  const Versions& versions = model->second;
  if (!version.empty()) {
    const auto entry = versions.find(wanted);
    if (wanted == 0 || entry == versions.end()) {
      return absl::NotFoundError(absl::StrCat("unknown model ", Quoted(name), " version ", wanted));
    }
    if (entry->second.ready == nullptr) return NotReady(name, wanted, entry->second.failure);
    return entry->second.ready;
  }
  for (auto entry = versions.rbegin(); entry != versions.rend(); ++entry) {
    if (entry->second.ready != nullptr) return entry->second.ready;
  }
  return NotReady(name, versions.rbegin()->first, versions.rbegin()->second.failure);
}

absl::StatusOr<std::vector<int64_t>> ModelTable::ReadyVersions(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto model = models_.find(name);
  if (model == models_.end()) return UnknownModel(name);
  std::vector<int64_t> ready;
  for (const auto& [version, entry] : model->second) {
    if (entry.ready != nullptr) ready.push_back(version);
  }
  return ready;
}

std::vector<std::shared_ptr<const ServedModel>> ModelTable::ReadyModels() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<const ServedModel>> ready;
  for (const auto& [name, versions] : models_) {
    for (const auto& [version, entry] : versions) {
      if (entry.ready != nullptr) ready.push_back(entry.ready);
    }
  }
  return ready;
}

bool ModelTable::Settled(bool strict) const {
  MutexLock lock(mutex_);
  for (const auto& [name, versions] : models_) {
    for (const auto& [version, entry] : versions) {
      if (entry.ready != nullptr) continue;
      if (strict || entry.failure.ok()) return false;
    }
  }
  return true;
}

}  // namespace sluice::server
