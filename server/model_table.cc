// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/model_table.h"

#include <algorithm>
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

}  // namespace

std::string ModelTable::ReasonOf(const Entry& entry) {
  if (entry.state != ModelState::kUnavailable) return "";
  return entry.failure.ok() ? "unloaded" : std::string(entry.failure.message());
}

absl::Status ModelTable::NotReady(const std::string& name, int64_t version, const Entry& entry) {
  const std::string which = version > 0 ? absl::StrCat(Quoted(name), " version ", version) : Quoted(name);
  if (entry.state == ModelState::kLoading) return absl::UnavailableError(absl::StrCat("model ", which, " is loading"));
  if (entry.state == ModelState::kUnloading) {
    return absl::UnavailableError(absl::StrCat("model ", which, " is being unloaded"));
  }
  return absl::UnavailableError(absl::StrCat("model ", which, " is not ready: ", ReasonOf(entry)));
}

absl::Status ModelTable::Unknown(const std::string& name) const {
  return absl::NotFoundError(absl::StrCat(
      "unknown model ", Quoted(name), repository_.contains(name) ? ": the repository has it, it is not loaded" : ""));
}

void ModelTable::SetRepository(const std::vector<std::string>& names) {
  std::set<std::string> now(names.begin(), names.end());
  MutexLock lock(mutex_);
  std::erase_if(models_, [&now](const auto& model) {
    return !now.contains(model.first) && std::all_of(model.second.begin(), model.second.end(), [](const auto& version) {
      return version.second.state == ModelState::kUnavailable;
    });
  });
  repository_ = std::move(now);
}

void ModelTable::SetLoading(const std::string& name, int64_t version) {
  MutexLock lock(mutex_);
  Entry& entry = models_[name][version];
  if (entry.state != ModelState::kReady) entry = Entry{};
}

void ModelTable::SetReady(std::shared_ptr<const ServedModel> model) {
  Entry entry{.state = ModelState::kReady, .ready = std::move(model)};
  MutexLock lock(mutex_);
  const ServedModel& ready = *entry.ready;
  models_[ready.name].erase(0);
  std::swap(models_[ready.name][ready.version], entry);  // the old one goes after the lock
}

void ModelTable::SetFailed(const std::string& name, int64_t version, const absl::Status& reason) {
  MutexLock lock(mutex_);
  Versions& versions = models_[name];
  if (version == 0) {
    std::erase_if(versions, [](const auto& other) { return other.second.state == ModelState::kUnavailable; });
    if (!versions.empty()) return;
  }
  Entry& entry = versions[version];
  if (entry.state != ModelState::kReady) entry = Entry{.state = ModelState::kUnavailable, .failure = reason};
}

std::vector<std::shared_ptr<const ServedModel>> ModelTable::Unload(const std::string& name,
                                                                   const std::vector<int64_t>& kept) {
  std::vector<std::shared_ptr<const ServedModel>> unloaded;
  MutexLock lock(mutex_);
  const auto model = models_.find(name);
  if (model == models_.end()) return unloaded;
  for (auto& [version, entry] : model->second) {
    if (std::binary_search(kept.begin(), kept.end(), version)) continue;
    if (entry.state == ModelState::kReady) {
      unloaded.push_back(std::move(entry.ready));
      entry = Entry{.state = ModelState::kUnloading, .unloading = unloaded.back()->id};
    } else if (entry.state != ModelState::kUnloading) {
      entry = Entry{.state = ModelState::kUnavailable};
    }
  }
  return unloaded;
}

void ModelTable::SetUnloaded(const ServedModel& model) {
  MutexLock lock(mutex_);
  const auto found = models_.find(model.name);
  if (found == models_.end()) return;
  const auto entry = found->second.find(model.version);
  if (entry == found->second.end() || entry->second.state != ModelState::kUnloading) return;
  if (entry->second.unloading == model.id) entry->second = Entry{.state = ModelState::kUnavailable};
}

void ModelTable::Clear() {
  std::map<std::string, Versions> models;
  MutexLock lock(mutex_);
  models.swap(models_);
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
  if (model == models_.end()) return Unknown(name);
  const Versions& versions = model->second;
  if (!version.empty()) {
    const auto entry = versions.find(wanted);
    if (wanted == 0 || entry == versions.end()) {
      return absl::NotFoundError(absl::StrCat("unknown model ", Quoted(name), " version ", wanted));
    }
    if (entry->second.ready == nullptr) return NotReady(name, wanted, entry->second);
    return entry->second.ready;
  }
  for (auto entry = versions.rbegin(); entry != versions.rend(); ++entry) {
    if (entry->second.ready != nullptr) return entry->second.ready;
  }
  return NotReady(name, versions.rbegin()->first, versions.rbegin()->second);
}

absl::StatusOr<std::vector<int64_t>> ModelTable::ReadyVersions(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto model = models_.find(name);
  if (model == models_.end()) return Unknown(name);
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

std::vector<ModelIndexEntry> ModelTable::Index(bool only_ready) const {
  MutexLock lock(mutex_);
  std::vector<ModelIndexEntry> index;
  for (const auto& [name, versions] : models_) {
    for (const auto& [version, entry] : versions) {
      if (only_ready && entry.state != ModelState::kReady) continue;
      index.push_back({name, version == 0 ? "" : absl::StrCat(version), entry.state, ReasonOf(entry)});
    }
  }
  if (only_ready) return index;
  for (const std::string& name : repository_) {
    if (!models_.contains(name)) index.push_back({.name = name, .version = {}, .reason = {}});
  }
  std::stable_sort(index.begin(), index.end(),
                   [](const ModelIndexEntry& left, const ModelIndexEntry& right) { return left.name < right.name; });
  return index;
}

bool ModelTable::Knows(const std::string& name) const {
  MutexLock lock(mutex_);
  return models_.contains(name) || repository_.contains(name);
}

bool ModelTable::AllReady() const {
  MutexLock lock(mutex_);
  for (const auto& [name, versions] : models_) {
    for (const auto& [version, entry] : versions) {
      const bool failed = entry.state == ModelState::kUnavailable && !entry.failure.ok();
      if (failed || entry.state == ModelState::kLoading) return false;
    }
  }
  return true;
}

}  // namespace sluice::server
