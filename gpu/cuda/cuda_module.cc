// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/cuda/cuda_module.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gpu/cuda/cuda_module_entry.h"

namespace sluice::gpu {
namespace {

absl::Status LoadError(absl::string_view module_path, absl::string_view reason) {
  return absl::FailedPreconditionError(absl::StrCat("the CUDA module ", module_path, " cannot be used: ", reason));
}

/// The message of the last failed call of the dl family.
absl::string_view DlError() { return absl::NullSafeStringView(dlerror()); }

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> LoadCudaDevice(const std::string& module_path, int ordinal,
                                                       const Clock& clock) {
  // NODELETE: see the header. LOCAL: the module has its own copies of our libraries, which must not meet ours.
  void* module = dlopen(module_path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (module == nullptr) return LoadError(module_path, DlError());
  const auto version = reinterpret_cast<CudaModuleVersionFunction*>(dlsym(module, kCudaModuleVersionSymbol));
  const auto create = reinterpret_cast<CudaModuleCreateFunction*>(dlsym(module, kCudaModuleCreateSymbol));
  absl::StatusOr<std::unique_ptr<Device>> device = absl::UnknownError("not set");
  if (version == nullptr || create == nullptr) {
    device = LoadError(module_path, "it is not a CUDA module of this program");
  } else if (const uint32_t found = version(); found != kCudaModuleVersion) {
    device = LoadError(module_path, absl::StrCat("its version is ", found, ", not ", kCudaModuleVersion));
  } else {
    create(ordinal, &clock, &device);
  }
  dlclose(module);  // Gives back the reference; NODELETE keeps the code.
  return device;
}

}  // namespace sluice::gpu
