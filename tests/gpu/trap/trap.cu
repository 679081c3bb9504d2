// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// A kernel that kills the device under a running server, without a hook in the server: CUDA loads this library into the
// process when CUDA_INJECTION64_PATH names it. Once the file SLUICE_TRAP_FILE exists, a kernel traps in the context
// that the server uses, which leaves it as a trap in a model's own kernel would: every later call fails.
#include <cuda_runtime.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

__global__ void Trap() { asm volatile("trap;"); }

void Report(const char* what, cudaError_t error) {
  if (error != cudaSuccess) std::fprintf(stderr, "trap: %s: %s\n", what, cudaGetErrorName(error));
}

void WaitAndTrap(const std::string& file) {
  struct stat info;
  while (stat(file.c_str(), &info) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  cudaStream_t stream = nullptr;
  Report("cudaSetDevice", cudaSetDevice(0));
  Report("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Trap<<<1, 1, 0, stream>>>();
  Report("launch", cudaGetLastError());
  std::fprintf(stderr, "trap: launched\n");
}

}  // namespace

/// Called by the driver when it starts, which is before it can be used: so a thread waits for the file.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* file = std::getenv("SLUICE_TRAP_FILE");
  if (file == nullptr) return 1;
  std::thread(WaitAndTrap, std::string(file)).detach();
  return 1;
}
