// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model_harness.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/kernels/host_library.h"
#include "model/graph_builder.h"
#include "model/ops/registry.h"
#include "model/passes/passes.h"
#include "onnx_writer.h"

namespace sluice::model {

std::unique_ptr<gpu::Device> ModelTest::MakeDevice(const gpu::HostDeviceOptions& options) {
  auto device = gpu::CreateHostDevice(options, clock_, gpu::MakeHostKernelLibrary(clock_));
  EXPECT_TRUE(device.ok()) << device.status();
  return device.ok() ? *std::move(device) : nullptr;
}

absl::StatusOr<Graph> ModelTest::BuildGraphOf(const std::string& file) {
  bytes_.push_back(std::make_unique<std::string>(file));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<OnnxFile> parsed, ParseOnnx(AsBytes(*bytes_.back()), ""));
  files_.push_back(std::move(parsed));
  return BuildGraph(*files_.back());
}

Graph ModelTest::Bound(const std::string& file, const std::vector<Shape>& shapes) {
  absl::StatusOr<Graph> graph = BuildGraphOf(file);
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return Graph();
  absl::Status status = BindShapes(*graph, ReadSignature(*files_.back(), *graph), {shapes});
  if (status.ok()) status = FoldConstants(*graph, *device_);
  EXPECT_TRUE(status.ok()) << status;
  return *std::move(graph);
}

absl::StatusOr<std::unique_ptr<Model>> ModelTest::Load(const std::string& file) {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string file_name = absl::StrCat(info->test_suite_name(), ".", info->name(), ".onnx");
  std::replace(file_name.begin(), file_name.end(), '/', '.');  // Of a test with parameters.
  const std::string path = ::testing::TempDir() + file_name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << file;
  auto model = LoadOnnxModel(path);
  std::remove(path.c_str());  // The mapping keeps the bytes.
  return model;
}

absl::StatusOr<std::vector<std::string>> ModelTest::Run(const std::string& file, const std::vector<Shape>& shapes,
                                                        const std::vector<std::string>& inputs) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, Load(file));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceModel> device_model, model->Instantiate(*device_, *device_));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, device_model->BuildPlan({shapes}));
  return Run(*plan, RequestClass::kStandard, inputs, *device_);
}

absl::StatusOr<std::vector<std::string>> ModelTest::Run(Plan& plan, RequestClass request_class,
                                                        const std::vector<std::string>& inputs, gpu::Device& device) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<gpu::Slot> slot, plan.MakeSlot(request_class));
  SLUICE_ASSIGN_OR_RETURN(const gpu::Stream stream, device.CreateStream(gpu::StreamPriority::kDefault));
  EXPECT_EQ(slot->inputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const gpu::SlotTensor& tensor = slot->inputs[i];
    EXPECT_EQ(tensor.pinned.size_bytes, inputs[i].size());
    if (inputs[i].empty()) continue;
    std::memcpy(tensor.pinned.data, inputs[i].data(), inputs[i].size());
    SLUICE_RETURN_IF_ERROR(device.CopyToDevice(stream, tensor.pinned, tensor.device));
  }
  if (request_class == RequestClass::kLatency) {
    SLUICE_RETURN_IF_ERROR(device.LaunchGraph(stream, slot->graph));
  } else {
    for (const gpu::BoundLaunch& launch : slot->launches) {
      SLUICE_RETURN_IF_ERROR(device.Launch(stream, *launch.kernel, launch.args));
    }
  }
  for (const gpu::SlotTensor& output : slot->outputs) {
    if (output.pinned.size_bytes == 0) continue;
    SLUICE_RETURN_IF_ERROR(device.CopyToHost(stream, output.device, output.pinned));
  }
  SLUICE_RETURN_IF_ERROR(device.Synchronize(stream.view()));
  EXPECT_GT(slot->stamps().first_kernel, 0u);
  EXPECT_GE(slot->stamps().last_kernel, slot->stamps().first_kernel);
  std::vector<std::string> outputs;
  for (const gpu::SlotTensor& output : slot->outputs) {
    outputs.emplace_back(reinterpret_cast<const char*>(output.pinned.data), output.pinned.size_bytes);
  }
  return outputs;
}

std::vector<std::string> OperatorNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.emplace_back(node.entry->name);
  return names;
}

}  // namespace sluice::model
