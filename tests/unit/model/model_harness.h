// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpu/device.h"
#include "gpu/host/host_device.h"
#include "model/graph.h"
#include "model/model.h"
#include "model/onnx_reader.h"

namespace sluice::model {

/// Bytes of an array, as a slot takes and gives them.
template <class T>
std::string ToBytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
template <class T>
std::vector<T> FromBytes(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// A host device, and the way of a serialized file to its outputs.
class ModelTest : public ::testing::Test {
 protected:
  void SetUp() override { device_ = MakeDevice({}); }

  std::unique_ptr<gpu::Device> MakeDevice(const gpu::HostDeviceOptions& options);
  /// Parses and types `file`; what the graph points into is kept by the fixture.
  absl::StatusOr<Graph> BuildGraphOf(const std::string& file);
  /// The graph of `file`, bound and folded, so that passes find shapes. Fails the test when that cannot be.
  Graph Bound(const std::string& file, const std::vector<Shape>& shapes);
  /// The whole way: read, bind `shapes`, plan, make a slot, run. Outputs' bytes in file order.
  absl::StatusOr<std::vector<std::string>> Run(const std::string& file, const std::vector<Shape>& shapes,
                                               const std::vector<std::string>& inputs);
  absl::StatusOr<std::vector<std::string>> Run(Plan& plan, RequestClass request_class,
                                               const std::vector<std::string>& inputs, gpu::Device& device);
  /// Writes `file` below the test's temporary folder and loads it.
  absl::StatusOr<std::unique_ptr<Model>> Load(const std::string& file);

  MonotonicClock clock_;
  std::vector<std::unique_ptr<std::string>> bytes_;
  std::vector<std::unique_ptr<OnnxFile>> files_;
  std::unique_ptr<gpu::Device> device_;
};

/// Names of a graph's operators, in order.
std::vector<std::string> OperatorNames(const Graph& graph);

}  // namespace sluice::model
