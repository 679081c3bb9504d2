// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/nvml.h"

#include <dlfcn.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace sluice::gpu {
namespace {

// NVML's C interface as far as it is used, since nvml.h is not part of the toolkit we build with. Its structs of equal
// numbers are arrays here. Codes and prototypes have not changed since there is a driver that runs CUDA 13.
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNoPermission = 4;
constexpr int kNotFound = 6;
constexpr int kFunctionNotFound = 13;

using PlainFunction = int();
using TextFunction = const char*(int code);
using FindFunction = int(const char* uuid, void** handle);
using Rates = std::array<unsigned, 2>;                  // GPU, memory; per cent
using MemoryBytes = std::array<unsigned long long, 3>;  // total, free, used

/// A question about one GPU; no function when this driver's library has none of that name.
template <class Number>
struct Question {
  const char* name;
  int (*function)(void* handle, Number* answer) = nullptr;
};

template <class Function>
Function* Symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

template <class Number>
void Resolve(void* library, Question<Number>& question) {
  question.function = Symbol<int(void*, Number*)>(library, question.name);
}

absl::Status CannotUse(const std::string& library, absl::string_view reason) {
  return absl::FailedPreconditionError(absl::StrCat("NVML (", library, ") cannot be used: ", reason));
}

}  // namespace

struct Nvml::Functions {
  PlainFunction* initialise = nullptr;
  PlainFunction* shut_down = nullptr;
  TextFunction* error_text = nullptr;
  FindFunction* find = nullptr;
  Question<unsigned> utilization{"nvmlDeviceGetUtilizationRates"};
  Question<unsigned long long> memory{"nvmlDeviceGetMemoryInfo"};
  Question<unsigned> power{"nvmlDeviceGetPowerUsage"};
  Question<unsigned> power_limit{"nvmlDeviceGetPowerManagementLimit"};
  Question<unsigned long long> energy{"nvmlDeviceGetTotalEnergyConsumption"};

  absl::Status ToStatus(int code, absl::string_view function) const {
    if (code == kSuccess) return absl::OkStatus();
    const absl::string_view text = error_text == nullptr ? "error" : absl::NullSafeStringView(error_text(code));
    const std::string message = absl::StrCat(function, ": ", text, " (", code, ")");
    if (code == kNotSupported || code == kNoPermission || code == kFunctionNotFound) {
      return absl::UnimplementedError(message);
    }
    return code == kNotFound ? absl::NotFoundError(message) : absl::UnavailableError(message);
  }

  template <class Number>
  absl::Status Ask(const Question<Number>& question, void* handle, Number* answer) const {
    if (question.function == nullptr) {
      return absl::UnimplementedError(absl::StrCat("this driver has no ", question.name));
    }
    return ToStatus(question.function(handle, answer), question.name);
  }
};

Nvml::Nvml(std::unique_ptr<const Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() { functions_->shut_down(); }

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Load(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return CannotUse(library, absl::NullSafeStringView(dlerror()));
  auto functions = std::make_unique<Functions>();
  functions->initialise = Symbol<PlainFunction>(handle, "nvmlInit_v2");
  functions->shut_down = Symbol<PlainFunction>(handle, "nvmlShutdown");
  functions->error_text = Symbol<TextFunction>(handle, "nvmlErrorString");
  functions->find = Symbol<FindFunction>(handle, "nvmlDeviceGetHandleByUUID");
  Resolve(handle, functions->utilization);
  Resolve(handle, functions->memory);
  Resolve(handle, functions->power);
  Resolve(handle, functions->power_limit);
  Resolve(handle, functions->energy);
  dlclose(handle);  // Gives back the reference; NODELETE keeps the code.
  if (functions->initialise == nullptr || functions->shut_down == nullptr || functions->find == nullptr) {
    return CannotUse(library, "it lacks nvmlInit_v2, nvmlShutdown or nvmlDeviceGetHandleByUUID");
  }
  const absl::Status started = functions->ToStatus(functions->initialise(), "nvmlInit_v2");
  if (!started.ok()) return CannotUse(library, started.message());
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

absl::StatusOr<NvmlGpu> Nvml::Find(const std::string& uuid) const {
  NvmlGpu gpu{.uuid = uuid};
  absl::Status status = functions_->ToStatus(functions_->find(uuid.c_str(), &gpu.handle), "nvmlDeviceGetHandleByUUID");
  // To CUDA a slice of a GPU is a device like any other; NVML names it apart.
  absl::string_view number = uuid;
  if (absl::IsNotFound(status) && absl::ConsumePrefix(&number, "GPU-")) {
    gpu.uuid = absl::StrCat("MIG-", number);
    const int code = functions_->find(gpu.uuid.c_str(), &gpu.handle);
    if (code == kSuccess) status = absl::OkStatus();
  }
  SLUICE_RETURN_IF_ERROR(status);
  return gpu;
}

GpuReading Nvml::Read(const NvmlGpu& gpu) const {
  GpuReading reading;
  const auto store = [&reading](GpuValue value, const absl::Status& status, double number) {
    absl::StatusOr<double>& place = reading[static_cast<size_t>(value)];
    if (status.ok()) {
      place = number;
    } else {
      place = status;
    }
  };
  Rates rates{};
  absl::Status status = functions_->Ask(functions_->utilization, gpu.handle, rates.data());
  store(GpuValue::kUtilization, status, rates[0] / 100.0);
  MemoryBytes memory{};
  status = functions_->Ask(functions_->memory, gpu.handle, memory.data());
  store(GpuValue::kMemoryTotalBytes, status, static_cast<double>(memory[0]));
  store(GpuValue::kMemoryUsedBytes, status, static_cast<double>(memory[2]));
  unsigned milliwatts = 0;
  status = functions_->Ask(functions_->power, gpu.handle, &milliwatts);
  store(GpuValue::kPowerWatts, status, milliwatts / 1000.0);
  status = functions_->Ask(functions_->power_limit, gpu.handle, &milliwatts);
  store(GpuValue::kPowerLimitWatts, status, milliwatts / 1000.0);
  unsigned long long millijoules = 0;
  status = functions_->Ask(functions_->energy, gpu.handle, &millijoules);
  store(GpuValue::kEnergyJoules, status, static_cast<double>(millijoules) / 1000.0);
  return reading;
}

}  // namespace sluice::gpu
