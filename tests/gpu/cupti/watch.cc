// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// Watches every CUDA call of a process, its libraries' calls too: what is issued to the legacy default stream, and what
// request threads allocate. The driver loads it (CUDA_INJECTION64_PATH) when the process first uses CUDA. Environment:
//   SLUICE_CUPTI_OUT   file for the counts, as JSON, rewritten while the process runs and when it ends
//   SLUICE_CUPTI_MARK  file whose appearance ends the start-up phase: counts are kept apart before and after it
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "tests/gpu/cupti/call_table.h"

namespace sluice::cupti {
namespace {

constexpr std::string_view kRequestThreads[] = {"latency-", "standard-", "batch-", "launcher", "rpc-io-"};
constexpr auto kLook = std::chrono::milliseconds(50);
constexpr int kPhases = 2;  // start-up, then after the mark

bool IsRequestThread() {
  // A thread is named before its first CUDA call and never renamed.
  thread_local const bool is_request_thread = [] {
    char name[16] = {};
    if (pthread_getname_np(pthread_self(), name, sizeof(name)) != 0) return false;
    for (const std::string_view prefix : kRequestThreads) {
      if (std::string_view(name).substr(0, prefix.size()) == prefix) return true;
    }
    return false;
  }();
  return is_request_thread;
}

/// Counts of one watched call, by phase.
struct Counts {
  std::array<std::atomic<uint64_t>, kPhases> calls{};
  std::array<std::atomic<uint64_t>, kPhases> legacy{};
  std::array<std::atomic<uint64_t>, kPhases> allocations{};  // on request threads
};

/// One per process, never destroyed: CUDA calls may come until the very end.
class Watch {
 public:
  Watch() : out_(Environment("SLUICE_CUPTI_OUT")), mark_(Environment("SLUICE_CUPTI_MARK")) {
    const auto calls = WatchedCalls();
    counts_ = std::make_unique<Counts[]>(calls.size());
    for (size_t i = 0; i < calls.size(); ++i) index_.emplace(Key(calls[i].domain, calls[i].id), i);
  }

  /// False when CUPTI refuses.
  bool Start() {
    if (cuptiSubscribe(&subscriber_, &Watch::OnCallback, this) != CUPTI_SUCCESS) return false;
    for (const CUpti_CallbackDomain domain : {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API}) {
      if (cuptiEnableDomain(1, subscriber_, domain) != CUPTI_SUCCESS) return false;
    }
    std::thread([this] { Look(); }).detach();
    return true;
  }

  void WriteCounts() {
    if (out_.empty()) return;
    const std::lock_guard<std::mutex> lock(write_mutex_);
    const std::string partial = out_ + ".partial";
    std::FILE* const file = std::fopen(partial.c_str(), "w");
    if (file == nullptr) return;
    std::fprintf(file, "{\"marked\": %s, \"before\": ", phase_.load() > 0 ? "true" : "false");
    WritePhase(file, 0);
    std::fputs(", \"after\": ", file);
    WritePhase(file, 1);
    std::fputs("}\n", file);
    if (std::fclose(file) == 0) std::rename(partial.c_str(), out_.c_str());
  }

 private:
  static std::string Environment(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  }
  static uint64_t Key(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    return (static_cast<uint64_t>(domain) << 32) | id;
  }

  static void CUPTIAPI OnCallback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
    const auto* const call = static_cast<const CUpti_CallbackData*>(data);
    if (call->callbackSite == CUPTI_API_ENTER) static_cast<Watch*>(self)->OnCall(domain, id, call->functionParams);
  }

  void OnCall(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* params) {
    const auto phase = static_cast<size_t>(phase_.load(std::memory_order_relaxed));
    all_calls_[phase].fetch_add(1, std::memory_order_relaxed);
    const auto found = index_.find(Key(domain, id));
    if (found == index_.end()) return;
    const WatchedCall& call = WatchedCalls()[found->second];
    Counts& counts = counts_[found->second];
    counts.calls[phase].fetch_add(1, std::memory_order_relaxed);
    if (GoesToLegacyStream(call, params)) counts.legacy[phase].fetch_add(1, std::memory_order_relaxed);
    if (call.allocates && IsRequestThread()) counts.allocations[phase].fetch_add(1, std::memory_order_relaxed);
  }

  void Look() {
    for (;;) {
      std::this_thread::sleep_for(kLook);
      if (phase_.load() == 0 && !mark_.empty() && access(mark_.c_str(), F_OK) == 0) phase_.store(1);
      WriteCounts();
    }
  }

  void WriteNames(std::FILE* file, size_t phase, std::array<std::atomic<uint64_t>, kPhases> Counts::*kind) {
    const auto calls = WatchedCalls();
    const char* separator = "";
    std::fputs("{", file);
    for (size_t i = 0; i < calls.size(); ++i) {
      const uint64_t count = (counts_[i].*kind)[phase].load();
      if (count == 0) continue;
      std::fprintf(file, "%s\"%s\": %llu", separator, calls[i].name, static_cast<unsigned long long>(count));
      separator = ", ";
    }
    std::fputs("}", file);
  }

  void WritePhase(std::FILE* file, size_t phase) {
    std::fprintf(file,
                 "{\"calls\": %llu, \"legacy_stream\": ", static_cast<unsigned long long>(all_calls_[phase].load()));
    WriteNames(file, phase, &Counts::legacy);
    std::fputs(", \"allocations_on_request_threads\": ", file);
    WriteNames(file, phase, &Counts::allocations);
    std::fputs(", \"watched\": ", file);
    WriteNames(file, phase, &Counts::calls);
    std::fputs("}", file);
  }

  const std::string out_;
  const std::string mark_;
  std::unordered_map<uint64_t, size_t> index_;  // read-only after the constructor
  std::unique_ptr<Counts[]> counts_;
  std::array<std::atomic<uint64_t>, kPhases> all_calls_{};
  std::atomic<int> phase_ = 0;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::mutex write_mutex_;
};

}  // namespace
}  // namespace sluice::cupti

/// Called by the driver when it loads this library.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  static sluice::cupti::Watch* const watch = new sluice::cupti::Watch;
  if (!watch->Start()) {
    std::fputs("sluice_cupti_watch: CUPTI refused to subscribe\n", stderr);
    return 0;
  }
  std::atexit([] { watch->WriteCounts(); });
  return 1;
}
