// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: no model file brings a load down, takes memory beyond the device's limit, or leaves anything behind. Method:
// every step of a load on a host device of 16 MiB, up to a slot of the plan, with each open dimension bound to 2.
#include "gpu/host/host_device.h"
#include "gpu/kernels/host_library.h"
#include "model/device_model.h"
#include "model/graph_builder.h"
#include "model/onnx_reader.h"
#include "tests/fuzz/pieces.h"

namespace {

using sluice::testing::Require;

constexpr size_t kDeviceBytes = size_t{16} << 20;

sluice::gpu::Device& HostDevice() {
  static const sluice::MonotonicClock clock;
  static const auto device = [] {
    auto created = sluice::gpu::CreateHostDevice({.memory_limit_bytes = kDeviceBytes}, clock,
                                                 sluice::gpu::MakeHostKernelLibrary(clock));
    Require(created.ok(), "no host device");
    return *std::move(created);
  }();
  return *device;
}

sluice::model::Bucket BucketOf(const sluice::model::Signature& signature) {
  sluice::model::Bucket bucket;
  for (const auto& input : signature.inputs) {
    bucket.input_shapes.push_back(input.dims);
    for (int64_t& dimension : bucket.input_shapes.back()) {
      if (dimension < 0) dimension = 2;
    }
  }
  return bucket;
}

absl::Status Load(std::span<const uint8_t> file) {
  auto parsed = sluice::model::ParseOnnx(std::as_bytes(file), "");
  if (!parsed.ok()) return parsed.status();
  auto graph = sluice::model::BuildGraph(**parsed);
  if (!graph.ok()) return graph.status();
  const sluice::model::Signature signature = sluice::model::ReadSignature(**parsed, *graph);
  auto model = sluice::model::MakeDeviceModel(*std::move(graph), signature, HostDevice(), HostDevice(), {});
  if (!model.ok()) return model.status();
  auto plan = (*model)->BuildPlan(BucketOf(signature));
  if (!plan.ok()) return plan.status();
  return (*plan)->MakeSlot(sluice::RequestClass::kStandard).status();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = Load({data, size});
  Require(!absl::IsInternal(status), "an internal error");
  Require(HostDevice().memory().use().counted() == 0, "device memory is left behind");
  return 0;
}
