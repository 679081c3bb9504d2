// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
//
// usage: cupti_self_check clean|planted
// Goal: the watcher sees what it must and nothing else. Method: a thread named as a request thread works in streams of
// its own and, when "planted", also allocates once and uses the legacy default stream once.
// exit codes: 0 done, 1 a CUDA call failed, 2 usage
#include <cuda_runtime_api.h>
#include <pthread.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "cupti_self_check: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void Mark() {
  const char* const path = std::getenv("SLUICE_CUPTI_MARK");
  if (path == nullptr) return;
  if (std::FILE* const file = std::fopen(path, "w"); file != nullptr) std::fclose(file);
  // The watcher looks every 50 ms.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

void Work(void* memory, cudaStream_t stream, cudaEvent_t event, bool planted) {
  pthread_setname_np(pthread_self(), "latency-0-0");
  Check(cudaMemsetAsync(memory, 1, 64, stream), "memset in a stream");
  Check(cudaEventRecord(event, stream), "record in a stream");
  Check(cudaMemsetAsync(memory, 2, 64, cudaStreamPerThread), "memset in the per-thread default stream");
  Check(cudaStreamSynchronize(cudaStreamPerThread), "wait");
  if (planted) {
    void* more = nullptr;
    Check(cudaMalloc(&more, 64), "the planted allocation");
    Check(cudaMemsetAsync(memory, 3, 64, cudaStreamLegacy), "the planted use of the legacy default stream");
  }
  Check(cudaStreamSynchronize(stream), "wait");
}

}  // namespace

int main(int argc, char** argv) {
  const bool planted = argc == 2 && std::strcmp(argv[1], "planted") == 0;
  if (!planted && (argc != 2 || std::strcmp(argv[1], "clean") != 0)) {
    std::fputs("usage: cupti_self_check clean|planted\n", stderr);
    return 2;
  }
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  Check(cudaMalloc(&memory, 64), "cudaMalloc");
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  Mark();
  std::thread(Work, memory, stream, event, planted).join();
  return 0;
}
