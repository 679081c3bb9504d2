// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: `sluice tune` runs the server's program, shows its report, and says what was wrong otherwise. Method: the
// command itself, with the real program on a machine that need not have a GPU, and with scripts that answer as it
// would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "server/execution/tuner.h"
#include "tests/support/temporary_folder.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

class TuneTest : public ::testing::Test {
 protected:
  /// A program that prints `output` and its own arguments to a file, and ends with `exit_code`.
  std::string Program(const std::string& output, int exit_code) {
    const std::string path = folder_.path() + "/program";
    std::ofstream(folder_.path() + "/output") << output;
    std::ofstream(path) << "#!/bin/sh\necho \"$@\" > " << folder_.path() << "/arguments\ncat " << folder_.path()
                        << "/output\nexit " << exit_code << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  std::string Arguments() {
    std::ifstream file(folder_.path() + "/arguments");
    std::string line;
    std::getline(file, line);
    return line;
  }
  /// Runs the command; standard output is kept.
  int Run(const std::string& arguments) {
    std::ostringstream text;
    std::streambuf* const old = std::cout.rdbuf(text.rdbuf());
    int exit_code = -1;
    CLI::App app("sluice");
    client::AddTuneCommand(app, exit_code);
    app.parse(absl::StrCat("tune ", arguments));
    std::cout.rdbuf(old);
    out_ = text.str();
    return exit_code;
  }

  TemporaryFolder folder_;
  std::string out_;
};

server::TuneReport Report() {
  server::TuneReport report;
  report.plans = {{.device = "cuda:0",
                   .version = 3,
                   .input_shapes = {{4, 3, 224, 224}, {4, 1}},
                   .rows = 4,
                   .before = absl::Microseconds(400),
                   .after = absl::Microseconds(300)}};
  report.devices = {{.name = "cuda:0",
                     .environment = "A GPU, cuDNN 2",
                     .path = "/tunings/a-gpu.tuning",
                     .choices = 17,
                     .all_choices = 40,
                     .load_before = absl::Seconds(2),
                     .tuning = absl::Seconds(30),
                     .load_after = absl::Milliseconds(500)}};
  return report;
}

TEST_F(TuneTest, ShowsTheReportAndHandsFlagsOn) {
  const std::string program = Program(server::ToJson(Report()) + "\n", 0);
  const std::string flags = absl::StrCat("resnet50 --model-repository models --tuning-cache /tunings --server ",
                                         program, " --gpu-memory-limit 20GiB");
  ASSERT_EQ(Run(flags), client::kExitOk);
  EXPECT_EQ(Arguments(),
            "tune resnet50 --model-repository models --tuning-cache /tunings --devices auto --gpu-memory-limit 20GiB");
  for (const char* part : {"[4,3,224,224] [4,1]", "400.0", "300.0", "0.750", "17 choices made in 30.0 s",
                           "40 in /tunings/a-gpu.tuning", "A GPU, cuDNN 2", "0.5 s instead of 2.0"}) {
    EXPECT_THAT(out_, HasSubstr(part));
  }
  ASSERT_EQ(Run(flags + " --json"), client::kExitOk);
  const auto json = nlohmann::json::parse(out_, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << out_;
  EXPECT_EQ(json["plans"][0]["us_after"], 300);
  EXPECT_EQ(json["devices"][0]["choices"], 17);
}

TEST_F(TuneTest, SaysWhatWentWrong) {
  const std::string flags = "m --model-repository models --tuning-cache /tunings --server ";
  EXPECT_EQ(Run(flags + Program("{}", 1)), client::kExitFailed);
  EXPECT_EQ(Run(flags + Program("{}", 2)), client::kExitUsage);
  EXPECT_EQ(Run(flags + Program("not JSON", 0)), client::kExitFailed);
  EXPECT_EQ(Run(flags + Program("{}", 0)), client::kExitFailed);
  EXPECT_EQ(Run(flags + folder_.path() + "/missing"), client::kExitFailed);
  EXPECT_EQ(out_, "");
}

TEST_F(TuneTest, TheServerTunesOnlyOnAGpu) {
  // Goal: on a host the program ends with a sentence, and leaves no file. Method: the real one.
  const std::string cache = folder_.path() + "/tunings";
  EXPECT_EQ(Run(absl::StrCat("filetype --model-repository ", SLUICE_SOURCE_DIR,
                             "/models --devices host --tuning-cache ", cache, " --server ", SLUICE_SERVER)),
            client::kExitFailed);
  EXPECT_FALSE(std::filesystem::exists(cache));
  server::ServerConfig config;
  config.model_repository = SLUICE_SOURCE_DIR "/models";
  config.devices = "host";
  const MonotonicClock clock;
  const auto tune = [&](const std::string& model) {
    return server::TuneModel(config, model, clock, [](absl::string_view) {}).status();
  };
  EXPECT_THAT(std::string(tune("filetype").message()), HasSubstr("--tuning-cache: expected a folder"));
  config.tuning_cache = cache;
  EXPECT_THAT(std::string(tune("filetype").message()), HasSubstr("--devices: expected a CUDA device"));
  EXPECT_THAT(std::string(tune("missing").message()), HasSubstr("model 'missing' is not in"));
}

}  // namespace
}  // namespace sluice::testing
