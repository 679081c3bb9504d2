// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: `sluice inspect` shows what a real model became on a running server, and says what was wrong otherwise. Method:
// the command itself against a server with the filetype model, its JSON compared with what the server's metrics count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "tests/integration/server_fixture.h"

namespace sluice::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kFiletypeConfig[] =
    "max_batch_size: 8\n"
    "parameters { key: \"sluice.buckets\" value { string_value: \"1,2\" } }\n"
    "parameters { key: \"sluice.slots\" value { string_value: \"1\" } }\n";

/// Swaps what a stream writes to for as long as it lives.
class Capture {
 public:
  explicit Capture(std::ostream& stream) : stream_(stream), old_(stream.rdbuf(text_.rdbuf())) {}
  ~Capture() { stream_.rdbuf(old_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostream& stream_;
  std::ostringstream text_;
  std::streambuf* const old_;
};

struct Outcome {
  int exit_code = -1;
  std::string out, error;
};

class InspectTest : public ServerTest {
 protected:
  void AddFiletype() {
    const std::filesystem::path model = std::filesystem::path(repository_) / "filetype";
    std::filesystem::create_directories(model / "1");
    std::filesystem::copy_file(std::filesystem::path(SLUICE_SOURCE_DIR) / "models/filetype/1/model.onnx",
                               model / "1" / "model.onnx");
    std::ofstream(model / "config.pbtxt") << kFiletypeConfig;
  }

  Outcome Run(const std::string& arguments) {
    Outcome outcome;
    const Capture out(std::cout);
    const Capture error(std::cerr);
    CLI::App app("sluice");
    client::AddInspectCommand(app, outcome.exit_code);
    app.parse(absl::StrCat("inspect ", arguments));
    outcome.out = out.text();
    outcome.error = error.text();
    return outcome;
  }
  std::string Url() const { return absl::StrCat(" --url 127.0.0.1:", server_->metrics_port()); }
  json Inspect(const std::string& model) {
    const Outcome outcome = Run(absl::StrCat(model, Url(), " --json"));
    EXPECT_EQ(outcome.exit_code, client::kExitOk) << outcome.out;
    return json::parse(outcome.out, nullptr, false);
  }
};

TEST_F(InspectTest, ShowsTheFiletypeModel) {
  AddFiletype();
  Start(SmallConfig());
  const json inspection = Inspect("filetype");
  ASSERT_TRUE(inspection.is_object());
  EXPECT_EQ(inspection["version"], 1);
  EXPECT_EQ(inspection["graph"]["before"]["node_count"], 95);
  EXPECT_LT(inspection["graph"]["after"]["node_count"], 60);
  EXPECT_EQ(inspection["graph"]["before"]["inputs"][0]["dims"], json({-1, 2048}));
  EXPECT_EQ(inspection["graph"]["after"]["inputs"][0]["dims"], json({2, 2048}));
  const json& bucket = inspection["devices"][0]["shape_buckets"][0];
  EXPECT_EQ(bucket["micro_batch"]["rows"], 2);
  EXPECT_EQ(bucket["micro_batch"]["rule"], "largest");
  for (const json& plan : bucket["plans"]) {
    std::set<std::string> kernels;
    for (const json& kernel : plan["kernels"]) {
      EXPECT_GT(kernel["us"].get<double>(), 0);
      kernels.insert(kernel["name"]);
    }
    EXPECT_GT(kernels.size(), 5u);
    EXPECT_EQ(plan["kernels"].size(), plan["unit_count"].get<size_t>() + 2) << "a unit is one kernel; two stamps";
    EXPECT_EQ(kernels.count(plan["longest_kernel"]), 1u);
  }

  // What all models say they take is what the server counts.
  double weights = 0, slots = 0;
  for (const char* model : {"filetype", "double", "chain"}) {
    const json memory = Inspect(model)["devices"][0]["memory"];
    weights += memory["weight_bytes"].get<double>();
    slots += memory["slot_device_bytes"].get<double>() + memory["slot_pinned_bytes"].get<double>();
  }
  EXPECT_EQ(weights, Metric("sluice_device_memory_bytes", {"kind=\"weights\""}));
  EXPECT_EQ(slots, Metric("sluice_device_memory_bytes", {"kind=\"slots\""}));
  EXPECT_EQ(Metric("sluice_batch_plan_rows", {"model=\"filetype\"", "version=\"1\"", "device=\"host:0\""}), 2);
  EXPECT_EQ(Metric("sluice_batch_plan_units", {"model=\"filetype\""}), bucket["plans"][1]["unit_count"]);

  const Outcome text = Run(absl::StrCat("filetype --graph --units --kernels", Url()));
  EXPECT_EQ(text.exit_code, client::kExitOk);
  EXPECT_THAT(text.out, HasSubstr("filetype version 1, up to 8 rows a request\n"));
  EXPECT_THAT(text.out, HasSubstr("host:0 in fp32: standard and batch work runs 2 rows at a time (largest)\n"));
  EXPECT_THAT(text.out, HasSubstr("Units of 2 rows\n"));
  EXPECT_THAT(text.out, HasSubstr("Graph: 95 nodes before passes, "));
  EXPECT_EQ(text.error, "");
}

TEST_F(InspectTest, SaysWhatWasWrong) {
  Start(SmallConfig());
  const Outcome unknown = Run(absl::StrCat("nobody", Url()));
  EXPECT_EQ(unknown.exit_code, client::kExitFailed);
  EXPECT_EQ(unknown.out, "");
  EXPECT_EQ(unknown.error, "sluice: NOT_FOUND: unknown model 'nobody'\n");
  const json error = json::parse(Run(absl::StrCat("nobody --json", Url())).out, nullptr, false);
  EXPECT_EQ(error["error"]["code"], "NOT_FOUND");
  EXPECT_THAT(Run(absl::StrCat("double --model-version 9", Url())).error,
              HasSubstr("unknown model 'double' version 9"));
  const Outcome version = Run(absl::StrCat("double --model-version new", Url()));
  EXPECT_EQ(version.exit_code, client::kExitUsage);
  EXPECT_THAT(version.error, HasSubstr("model_version: expected a number"));
  EXPECT_EQ(Run(absl::StrCat("double --model-version 1", Url())).exit_code, client::kExitOk);
  EXPECT_EQ(Run("double --url nobody").exit_code, client::kExitUsage);
  EXPECT_THROW(Run(""), CLI::RequiredError);
  EXPECT_THROW(Run("--help"), CLI::CallForHelp);
  const std::string url = Url();
  server_.reset();
  EXPECT_EQ(Run(absl::StrCat("double", url)).exit_code, client::kExitUnreachable);
}

}  // namespace
}  // namespace sluice::testing
