// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cuda_module.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "gpu/cuda/cuda_module_entry.h"

namespace sluice::gpu {
namespace {

absl::Status LoadError(absl::string_view module_path, absl::string_view reason) {
  return absl::FailedPreconditionError(absl::StrCat("the CUDA module ", module_path, " cannot be used: ", reason));
}

/// The message of the last failed call of the dl family.
absl::string_view DlError() { return absl::NullSafeStringView(dlerror()); }

struct Entry {
  CudaModuleCountFunction* count = nullptr;
  CudaModuleCreateFunction* create = nullptr;
};

/// The module stays loaded for the life of the process: see the header.
absl::StatusOr<Entry> LoadModule(const std::string& module_path) {
  // LOCAL: the module has its own copies of our libraries, which must not meet ours.
  void* module = dlopen(module_path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (module == nullptr) return LoadError(module_path, DlError());
  const auto version = reinterpret_cast<CudaModuleVersionFunction*>(dlsym(module, kCudaModuleVersionSymbol));
  const uint32_t found = version == nullptr ? 0 : version();
  Entry entry;
  entry.count = reinterpret_cast<CudaModuleCountFunction*>(dlsym(module, kCudaModuleCountSymbol));
  entry.create = reinterpret_cast<CudaModuleCreateFunction*>(dlsym(module, kCudaModuleCreateSymbol));
  dlclose(module);  // Gives back the reference; NODELETE keeps the code.
  if (version == nullptr) return LoadError(module_path, "it is not a CUDA module of this program");
  if (found != kCudaModuleVersion) {
    return LoadError(module_path, absl::StrCat("its version is ", found, ", not ", kCudaModuleVersion));
  }
  if (entry.count == nullptr || entry.create == nullptr) {
    return LoadError(module_path, "it does not export what its version says");
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> LoadCudaDevice(const std::string& module_path, int ordinal, const Clock& clock,
                                                       const CudaDeviceOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const Entry module, LoadModule(module_path));
  absl::StatusOr<std::unique_ptr<Device>> device = absl::UnknownError("not set");
  module.create(ordinal, &clock, &options, &device);
  return device;
}

absl::StatusOr<int> CountCudaDevices(const std::string& module_path) {
  SLUICE_ASSIGN_OR_RETURN(const Entry module, LoadModule(module_path));
  absl::StatusOr<int> count = absl::UnknownError("not set");
  module.count(&count);
  return count;
}

}  // namespace sluice::gpu
