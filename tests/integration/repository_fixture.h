// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/integration/server_fixture.h"

namespace sluice::testing {

/// A server whose models are loaded when a client asks for it, and what such a client does.
class RepositoryControlTest : public ServerTest {
 protected:
  void StartExplicit(std::vector<std::string> load_models = {}) {
    server::ServerConfig config = SmallConfig();
    config.model_control_mode = server::ModelControlMode::kExplicit;
    config.load_models = std::move(load_models);
    Start(config);
  }
  grpc::Status Load(const std::string& name, const std::string& config = "") {
    grpc::ClientContext context;
    inference::RepositoryModelLoadRequest request;
    inference::RepositoryModelLoadResponse response;
    request.set_model_name(name);
    if (!config.empty()) (*request.mutable_parameters())["config"].set_string_param(config);
    return stub_->RepositoryModelLoad(&context, request, &response);
  }
  /// As tritonclient's load_model(name, config=..., files=...).
  grpc::Status LoadFiles(const std::string& name, const std::string& config,
                         const std::vector<std::pair<std::string, std::string>>& files) {
    grpc::ClientContext context;
    inference::RepositoryModelLoadRequest request;
    inference::RepositoryModelLoadResponse response;
    request.set_model_name(name);
    if (!config.empty()) (*request.mutable_parameters())["config"].set_string_param(config);
    for (const auto& [path, bytes] : files) (*request.mutable_parameters())["file:" + path].set_bytes_param(bytes);
    return stub_->RepositoryModelLoad(&context, request, &response);
  }
  grpc::Status Unload(const std::string& name) {
    grpc::ClientContext context;
    inference::RepositoryModelUnloadRequest request;
    inference::RepositoryModelUnloadResponse response;
    request.set_model_name(name);
    return stub_->RepositoryModelUnload(&context, request, &response);
  }
  /// "name,version,state,reason; ..."
  std::string Index(bool ready = false) {
    grpc::ClientContext context;
    inference::RepositoryIndexRequest request;
    inference::RepositoryIndexResponse response;
    request.set_ready(ready);
    const grpc::Status status = stub_->RepositoryIndex(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return absl::StrJoin(response.models(), "; ", [](std::string* out, const auto& model) {
      absl::StrAppend(out, model.name(), ",", model.version(), ",", model.state(), ",", model.reason());
    });
  }
  /// Bounded; fails the test otherwise.
  void AwaitIndex(const std::string& expected) {
    const Time end = clock_.Now() + absl::Seconds(60);
    while (Index() != expected) {
      ASSERT_LT(clock_.Now(), end) << "got " << Index() << ", expected " << expected;
      std::this_thread::yield();
    }
  }
  bool ServerReady() {
    grpc::ClientContext context;
    inference::ServerReadyResponse response;
    EXPECT_TRUE(stub_->ServerReady(&context, {}, &response).ok());
    return response.ready();
  }
  double MemoryUse() { return Metric("sluice_device_memory_bytes", {}) + Metric("sluice_pinned_memory_bytes", {}); }
  /// Puts bytes that are no model in place of a version's file.
  void Break(const std::string& name) {
    std::filesystem::remove(FileOf(name));  // what is loaded keeps the old one
    std::ofstream(FileOf(name), std::ios::binary) << "this is no model";
  }
  std::string FileOf(const std::string& name) const { return absl::StrCat(repository_, "/", name, "/1/model.onnx"); }
};

}  // namespace sluice::testing
