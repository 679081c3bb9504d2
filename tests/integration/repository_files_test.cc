// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a client that brings a model's files along with its load is served as if they lay in the repository, within
// bounds, and bad ones leave nothing behind. Method: a real server and real clients in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "tests/integration/repository_fixture.h"
#include "tests/integration/tiny_models.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

using RepositoryFilesTest = RepositoryControlTest;

// Goal: files in the call stand in for the model's folder until the next load without. Method: "double" in the
// repository has 4 columns, the files' one 2 columns and two versions.
TEST_F(RepositoryFilesTest, FilesInTheCallAreServedUntilTheNextLoad) {
  StartExplicit({"double"});
  const double before = MemoryUse();
  const auto narrow = [&](const std::string& model) {
    inference::ModelInferRequest request = Request(model, 1);
    request.mutable_inputs(0)->set_shape(1, 2);
    request.mutable_raw_input_contents(0)->resize(2 * sizeof(float));
    return request;
  };
  const std::vector<std::pair<std::string, std::string>> files = {{"3/model.onnx", DoublingModel(2)},
                                                                  {"7/model.onnx", DoublingModel(2)}};
  Break("double");  // its folder is not looked at
  ASSERT_TRUE(LoadFiles("double", R"({"max_batch_size": 4})", files).ok());
  AwaitIndex("chain,,,; double,1,UNAVAILABLE,unloaded; double,7,READY,");
  inference::ModelInferResponse response;
  ASSERT_TRUE(Infer(narrow("double"), &response).ok());
  EXPECT_EQ(response.model_version(), "7");
  EXPECT_EQ(response.outputs(0).shape(1), 2);
  EXPECT_EQ(Infer(Request("double", 1)).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // What is loaded stays when other files are no good.
  EXPECT_THAT(LoadFiles("double", "{}", {{"1/model.onnx", "this is no model"}}).error_message(),
              HasSubstr("failed to load 'double': version 1: 1/model.onnx: byte "));
  EXPECT_TRUE(Infer(narrow("double")).ok());
  std::filesystem::remove_all(repository_ + "/double");
  AddToRepository(repository_, "double", DoublingModel(4), "max_batch_size: 8\n");
  ASSERT_TRUE(Load("double").ok());
  EXPECT_TRUE(Infer(Request("double", 3)).ok());
  EXPECT_EQ(Infer(narrow("double")).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  AwaitIndex("chain,,,; double,1,READY,; double,7,UNAVAILABLE,unloaded");
  EXPECT_EQ(MemoryUse(), before);
}

TEST_F(RepositoryFilesTest, FilesInTheCallNeedNoFolder) {
  StartExplicit({"double"});
  ASSERT_TRUE(LoadFiles("guest", "{\"max_batch_size\": 8}", {{"1/model.onnx", DoublingModel(4)}}).ok());
  EXPECT_EQ(Index(), "chain,,,; double,1,READY,; guest,1,READY,");
  EXPECT_TRUE(Infer(Request("guest", 3)).ok());
  EXPECT_EQ(Load("guest").error_code(), grpc::StatusCode::INTERNAL) << "the repository has none";
  EXPECT_TRUE(Infer(Request("guest", 3)).ok());
  ASSERT_TRUE(Unload("guest").ok());
  EXPECT_NE(Infer(Request("guest", 3)).error_code(), grpc::StatusCode::OK);
  AwaitIndex("chain,,,; double,1,READY,");
  EXPECT_EQ(Unload("guest").error_code(), grpc::StatusCode::INTERNAL) << "nothing is left of it";
}

// Goal: calls with files that are no good say why and leave nothing, not even their names. Method: one of each kind.
TEST_F(RepositoryFilesTest, BadFilesInTheCallLeaveNothingBehind) {
  StartExplicit({"double"});
  const double before = MemoryUse();
  const auto expect_failure = [&](const grpc::Status& status, grpc::StatusCode code, const std::string& words) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(words));
    EXPECT_TRUE(ServerReady());
    EXPECT_EQ(Index(), "chain,,,; double,1,READY,");
    EXPECT_EQ(MemoryUse(), before);
  };
  constexpr auto kInternal = grpc::StatusCode::INTERNAL;
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  const std::string model = DoublingModel(4);
  expect_failure(LoadFiles("guest", "", {{"1/model.onnx", model}}), kInvalid, "parameter 'config'");
  expect_failure(LoadFiles("guest", "{", {{"1/model.onnx", model}}), kInvalid, "parameter 'config'");
  expect_failure(LoadFiles("../guest", "{}", {{"1/model.onnx", model}}), kInvalid, "model_name: expected");
  expect_failure(LoadFiles("guest", "{}", {{"../double/1/model.onnx", model}}), kInvalid, "a path with '..'");
  expect_failure(LoadFiles("guest", "{}", {{"/tmp/model.onnx", model}}), kInvalid, "an absolute path");
  expect_failure(LoadFiles("guest", "{}", {{"config.pbtxt", "max_batch_size: 1"}}), kInvalid, "without a version");
  expect_failure(LoadFiles("guest", "{}", {{"1/net.onnx", model}}), kInternal, "there is no file 1/model.onnx");
  expect_failure(LoadFiles("guest", "{}", {{"1/model.onnx", "this is no model"}}), kInternal, "1/model.onnx: byte ");
  expect_failure(LoadFiles("guest", "{}", {{"1/model.onnx", ""}}), kInternal, "failed to load 'guest'");
  EXPECT_TRUE(Infer(Request("double", 3)).ok());
}

// Goal: bytes of files are bounded over all models, and given back. Method: a bound that holds one such model.
TEST_F(RepositoryFilesTest, BytesOfFilesAreBounded) {
  const std::string model = DoublingModel(4);
  server::ServerConfig config = SmallConfig();
  config.model_control_mode = server::ModelControlMode::kExplicit;
  config.model_file_bytes = static_cast<int64_t>(model.size()) * 3 / 2;
  Start(config);
  const std::string settings = "{\"max_batch_size\": 8}";
  ASSERT_TRUE(LoadFiles("first", settings, {{"1/model.onnx", model}}).ok());
  const grpc::Status full = LoadFiles("second", settings, {{"1/model.onnx", model}});
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(full.error_message(), HasSubstr("--model-file-bytes"));
  EXPECT_TRUE(Infer(Request("first", 1)).ok());
  ASSERT_TRUE(Unload("first").ok());
  AwaitIndex("chain,,,; double,,,");
  for (int i = 0; i < 3; ++i) {  // a failed load gives them back too
    EXPECT_EQ(LoadFiles("second", "{\"max_batch_size\": -1}", {{"1/model.onnx", model}}).error_code(),
              grpc::StatusCode::INTERNAL);
  }
  ASSERT_TRUE(LoadFiles("second", settings, {{"1/model.onnx", model}}).ok());
  EXPECT_TRUE(Infer(Request("second", 1)).ok());
}

// Goal: the command line brings files along too, and says which flag is wrong. Method: `sluice models` on files of
// ours.
TEST_F(RepositoryFilesTest, TheCommandLineBringsFilesAlong) {
  StartExplicit();
  const std::string model = repository_ + "/.model", config = repository_ + "/.config";
  std::ofstream(model) << DoublingModel(2);
  std::ofstream(config) << "{\"max_batch_size\": 3}";
  const auto run = [&](const std::string& arguments) {
    int exit_code = -1;
    CLI::App app("sluice");
    client::AddModelsCommand(app, exit_code);
    app.parse(absl::StrCat("models --url 127.0.0.1:", server_->grpc_port(), " ", arguments));
    return exit_code;
  };
  EXPECT_EQ(run(absl::StrCat("--load brought --config ", config, " --file 7/model.onnx=", model)), client::kExitOk);
  EXPECT_TRUE(client_->ModelMetadata("brought", "7").ok());
  EXPECT_EQ(run(absl::StrCat("--load brought --config ", config, " --file 7/model.onnx=/nowhere")), client::kExitUsage);
  EXPECT_EQ(run(absl::StrCat("--load brought --config ", config, " --file 7/model.onnx")), client::kExitUsage);
  EXPECT_EQ(run(absl::StrCat("--load brought --config ", config, " --file /1/m=", model)), client::kExitFailed);
  EXPECT_THROW(run(absl::StrCat("--load brought --file 7/model.onnx=", model)), CLI::RequiresError);
}

}  // namespace
}  // namespace sluice::testing
