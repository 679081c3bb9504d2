// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/repository/repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice::server {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RepositoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "repository_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text = "x") {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary) << text;
  }
  std::vector<RepositoryModel> Scan() {
    absl::StatusOr<std::vector<RepositoryModel>> models = ScanRepository(root_.string());
    EXPECT_TRUE(models.ok()) << models.status();
    return models.ok() ? *std::move(models) : std::vector<RepositoryModel>();
  }
  static std::vector<int64_t> Numbers(const RepositoryModel& model) {
    std::vector<int64_t> numbers;
    for (const RepositoryVersion& version : model.versions) numbers.push_back(version.version);
    return numbers;
  }
  /// The versions served of folders 1, 2, 3, 10 under a version policy.
  RepositoryModel ScanWithPolicy(const std::string& config) {
    for (const char* version : {"1", "2", "3", "10"}) Write(absl::StrCat("m/", version, "/model.onnx"));
    Write("m/config.pbtxt", config);
    const std::vector<RepositoryModel> models = Scan();
    EXPECT_THAT(models, SizeIs(1));
    return models.empty() ? RepositoryModel() : models[0];
  }

  fs::path root_;
};

TEST_F(RepositoryTest, FindsModelsWithAndWithoutConfig) {
  // Goal: the layout of DESIGN 9 is understood. Method: two models, one with a config; names ascending.
  Write("b/1/model.onnx");
  Write("a/7/model.onnx");
  Write("a/config.pbtxt", "max_batch_size: 4");
  const std::vector<RepositoryModel> models = Scan();
  ASSERT_THAT(models, SizeIs(2));
  EXPECT_EQ(models[0].name, "a");
  EXPECT_TRUE(models[0].status.ok()) << models[0].status;
  ASSERT_TRUE(models[0].config.has_value());
  EXPECT_EQ(models[0].config->config.max_batch_size(), 4);
  ASSERT_THAT(models[0].versions, SizeIs(1));
  EXPECT_EQ(models[0].versions[0].version, 7);
  EXPECT_THAT(models[0].versions[0].path, EndsWith("a/7/model.onnx"));
  EXPECT_TRUE(models[0].versions[0].status.ok());
  EXPECT_EQ(models[1].name, "b");
  EXPECT_FALSE(models[1].config.has_value());
}

// Goal: files from a call can be those that a model's folder may have, and no others. Method: a table of paths.
TEST(GivenFiles, OnlyFilesOfVersionsAreTaken) {
  EXPECT_TRUE(CheckGivenFiles("m", {{"1/model.onnx", "x"}, {"1/sub/w.bin", ""}, {"20/.hidden", ""}}).ok());
  EXPECT_TRUE(CheckGivenFiles("no/name", {}).ok());
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "a path with an empty part"},
      {"config.pbtxt", "parameter 'file:config.pbtxt': expected file:<version>/<file>, got a path without a version"},
      {"/1/model.onnx", "an absolute path"},
      {"1/../../model.onnx", "a path with '..'"},
      {"../1/model.onnx", "a path with '..'"},
      {"1/./model.onnx", "a path with '.'"},
      {"1//model.onnx", "an empty part"},
      {"1/model.onnx/", "an empty part"},
      {"1\\model.onnx", "a backslash"},
      {"1/model.onnx\n", "a control character"},
      {std::string("1/a\0b", 5), "a control character"},
      {"0/model.onnx", "'0' for a version"},
      {"-1/model.onnx", "'-1' for a version"},
      {"01/model.onnx", "'01' for a version"},
      {"one/model.onnx", "'one' for a version"},
      {"99999999999999999999/model.onnx", "for a version"},
      {"1/" + std::string(2000, 'a'), "a path of 2002 bytes"},
  };
  for (const auto& [path, words] : table) {
    const absl::Status status = CheckGivenFiles("m", {{"1/model.onnx", "x"}, {path, "x"}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_LT(status.message().size(), 500u);
  }
  EXPECT_THAT(std::string(CheckGivenFiles("../m", {{"1/model.onnx", "x"}}).message()), HasSubstr("model_name"));
  model::FilesInMemory many;
  for (size_t i = 0; i <= kMaxGivenFiles; ++i) many[absl::StrCat("1/", i)] = "x";
  EXPECT_THAT(std::string(CheckGivenFiles("m", many).message()), HasSubstr("at most 1024, got 1025"));
}

TEST(GivenFiles, AreScannedAsAFolderIs) {
  const auto files = std::make_shared<const model::FilesInMemory>(
      model::FilesInMemory{{"1/model.onnx", "a"}, {"2/net.onnx", "b"}, {"2/w.bin", "c"}, {"10/model.onnx", "d"}});
  const auto scan = [&files](const std::string& config) {
    const absl::StatusOr<ParsedConfig> parsed = ParseConfigText(config);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return ScanGivenFiles("m", files, *parsed);
  };
  const RepositoryModel newest = scan("");
  ASSERT_THAT(newest.versions, SizeIs(1));
  EXPECT_EQ(newest.name, "m");
  EXPECT_EQ(newest.path, "");
  EXPECT_EQ(newest.files, files);
  EXPECT_EQ(newest.versions[0].version, 10);
  EXPECT_EQ(newest.versions[0].path, "10/model.onnx");
  EXPECT_TRUE(newest.versions[0].status.ok());
  const RepositoryModel all = scan("version_policy { all {} } max_batch_size: 4");
  ASSERT_THAT(all.versions, SizeIs(3));
  EXPECT_EQ(all.config->config.max_batch_size(), 4);
  EXPECT_THAT(std::string(all.versions[1].status.message()), HasSubstr("there is no file 2/model.onnx"));
  const RepositoryModel named = scan("default_model_filename: 'net.onnx' version_policy { specific { versions: 2 } }");
  ASSERT_THAT(named.versions, SizeIs(1));
  EXPECT_TRUE(named.versions[0].status.ok());
  EXPECT_THAT(std::string(scan("version_policy { specific { versions: 7 } }").status.message()),
              HasSubstr("no version folder '7'"));
  EXPECT_FALSE(scan("default_model_filename: '../secret'").status.ok());
}

TEST_F(RepositoryTest, ABrokenModelDoesNotStopTheOthers) {
  // Goal: each model fails alone, with its reason. Method: a bad config, no version, no file, a bad name, a good one.
  Write("bad_config/1/model.onnx");
  Write("bad_config/config.pbtxt", "max_batch: 4");
  fs::create_directories(root_ / "no_version");
  Write("no_file/1/other.onnx");
  Write("sp ace/1/model.onnx");
  Write("good/1/model.onnx");
  const std::vector<RepositoryModel> models = Scan();
  ASSERT_THAT(models, SizeIs(5));
  EXPECT_EQ(models[0].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(models[0].status.message()), HasSubstr("model 'bad_config': config.pbtxt:1:"));
  EXPECT_EQ(models[1].name, "good");
  EXPECT_TRUE(models[1].status.ok());
  EXPECT_TRUE(models[2].status.ok());
  ASSERT_THAT(models[2].versions, SizeIs(1));
  EXPECT_EQ(models[2].versions[0].status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(models[2].versions[0].status.message()), HasSubstr("no_file/1/model.onnx"));
  EXPECT_EQ(models[3].status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(models[3].status.message()), HasSubstr("no version folder"));
  EXPECT_EQ(models[4].status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RepositoryTest, OnlyPositiveIntegersAreVersions) {
  // Goal: other folders are left alone. Method: near misses beside one version.
  for (const char* folder : {"0", "-1", "01", "1x", "+2", "99999999999999999999", "assets", ".hidden"}) {
    Write(absl::StrCat("m/", folder, "/model.onnx"));
  }
  Write("m/5/model.onnx");
  Write("m/7", "a file, not a folder");
  const std::vector<RepositoryModel> models = Scan();
  ASSERT_THAT(models, SizeIs(1));
  EXPECT_THAT(Numbers(models[0]), ElementsAre(5));
}

TEST_F(RepositoryTest, FilesAndHiddenFoldersAreNotModels) {
  // Goal: a README or a .git beside the models is harmless; a repository may be empty. Method: only such things.
  Write("README.md");
  Write(".git/1/model.onnx");
  EXPECT_THAT(Scan(), IsEmpty());
}

TEST_F(RepositoryTest, TheVersionPolicySelects) {
  // Goal: latest by number (10 after 3), all, specific; latest 1 without a policy. Method: one config each.
  EXPECT_THAT(Numbers(ScanWithPolicy("")), ElementsAre(10));
  EXPECT_THAT(Numbers(ScanWithPolicy("version_policy { latest { num_versions: 2 } }")), ElementsAre(3, 10));
  EXPECT_THAT(Numbers(ScanWithPolicy("version_policy { latest { num_versions: 99 } }")), ElementsAre(1, 2, 3, 10));
  EXPECT_THAT(Numbers(ScanWithPolicy("version_policy { all {} }")), ElementsAre(1, 2, 3, 10));
  EXPECT_THAT(Numbers(ScanWithPolicy("version_policy { specific { versions: [3, 1, 3] } }")), ElementsAre(1, 3));
}

TEST_F(RepositoryTest, ABadVersionPolicyIsAnError) {
  // Goal: a version that is asked for and not there is not passed over. Method: missing, none, zero.
  EXPECT_THAT(std::string(ScanWithPolicy("version_policy { specific { versions: 4 } }").status.message()),
              HasSubstr("there is no version folder '4'"));
  EXPECT_THAT(std::string(ScanWithPolicy("version_policy { specific {} }").status.message()),
              HasSubstr("names no version"));
  EXPECT_THAT(std::string(ScanWithPolicy("version_policy { latest {} }").status.message()),
              HasSubstr("must be at least 1"));
}

TEST_F(RepositoryTest, TheModelFileNameIsThatOfTheConfigAndStaysInItsFolder) {
  // Goal: default_model_filename is used and cannot lead elsewhere. Method: a plain name and ways out.
  Write("m/1/net.onnx");
  Write("m/config.pbtxt", "default_model_filename: 'net.onnx'");
  EXPECT_TRUE(Scan()[0].versions[0].status.ok());
  for (const char* name : {"../1/net.onnx", "/etc/passwd", "..", "a\\nb"}) {
    Write("m/config.pbtxt", absl::StrCat("default_model_filename: '", name, "'"));
    const RepositoryModel model = Scan()[0];
    EXPECT_EQ(model.status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(model.status.message()), HasSubstr("default_model_filename"));
  }
}

TEST_F(RepositoryTest, LinkedFoldersAreFollowed) {
  // Goal: mounts made of symbolic links work, as Kubernetes makes them; a dangling one is no model. Method: link a
  // model.
  Write(".data/1/model.onnx");
  fs::create_directory_symlink(root_ / ".data", root_ / "linked");
  fs::create_directory_symlink(root_ / ".gone", root_ / "dangling");
  const std::vector<RepositoryModel> models = Scan();
  ASSERT_THAT(models, SizeIs(1));
  EXPECT_EQ(models[0].name, "linked");
  EXPECT_TRUE(models[0].status.ok());
}

TEST_F(RepositoryTest, AMissingRepositoryIsAnError) {
  // Goal: a wrong --model-repository stops the start. Method: a path that is not there, and a file.
  EXPECT_EQ(ScanRepository((root_ / "none").string()).status().code(), absl::StatusCode::kNotFound);
  Write("file");
  EXPECT_EQ(ScanRepository((root_ / "file").string()).status().code(), absl::StatusCode::kNotFound);
}

TEST(ModelNameTest, SafeNames) {
  // Goal: names that are harmless as path, label and log field, and no others. Method: both kinds.
  for (const char* name : {"resnet50", "a", "A.b_c-d+e@f", "1"}) EXPECT_TRUE(IsSafeModelName(name)) << name;
  for (const char* name : {"", ".", "..", ".x", "-x", "a b", "a/b", "a\"b", "a\nb", "caf\xC3\xA9"}) {
    EXPECT_FALSE(IsSafeModelName(name)) << name;
  }
  EXPECT_TRUE(IsSafeModelName(std::string(128, 'a')));
  EXPECT_FALSE(IsSafeModelName(std::string(129, 'a')));
}

// Goal: one model is found as it is in the whole repository, and a client's name reaches no other folder. Method: the
// names that would.
TEST_F(RepositoryTest, FindsOneModelByItsName) {
  Write("m/1/model.onnx");
  Write("m/2/model.onnx");
  Write("m/config.pbtxt", "version_policy { all {} }");
  Write("bad/config.pbtxt", "no such field");
  const RepositoryModel model = ScanModel(root_.string(), "m");
  ASSERT_TRUE(model.status.ok()) << model.status;
  EXPECT_EQ(model.path, (root_ / "m").string());
  EXPECT_THAT(Numbers(model), ElementsAre(1, 2));
  EXPECT_EQ(ScanModel(root_.string(), "bad").status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* name : {"nobody", "", ".", "..", "m/1", "../m", "m\n"}) {
    const RepositoryModel none = ScanModel(root_.string(), name);
    EXPECT_EQ(none.status.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(none.path, IsEmpty()) << name;
  }
}

TEST_F(RepositoryTest, AnotherConfigTakesTheFilesPlace) {
  Write("m/1/model.onnx");
  Write("m/2/other.onnx");
  Write("m/config.pbtxt", "not read at all");
  const absl::StatusOr<ParsedConfig> config =
      ParseConfigJson(R"({"default_model_filename": "other.onnx", "version_policy": {"specific": {"versions": [2]}}})");
  ASSERT_TRUE(config.ok()) << config.status();
  const RepositoryModel model = ScanModel(root_.string(), "m", &*config);
  ASSERT_TRUE(model.status.ok()) << model.status;
  EXPECT_THAT(Numbers(model), ElementsAre(2));
  EXPECT_TRUE(model.versions[0].status.ok()) << model.versions[0].status;
}

TEST_F(RepositoryTest, ListsModelsWithoutReadingThem) {
  Write("b/config.pbtxt", "no such field");
  Write("a/1/model.onnx");
  Write(".hidden/1/model.onnx");
  Write("no name/1/model.onnx");
  Write("file");
  const absl::StatusOr<std::vector<std::string>> names = ListModels(root_.string());
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, ElementsAre("a", "b"));
  EXPECT_EQ(ListModels((root_ / "nowhere").string()).status().code(), absl::StatusCode::kNotFound);
}

TEST(ParseConfigJson, TellsAWrittenZeroFromNone) {
  EXPECT_FALSE(ParseConfigJson("{}")->has_max_batch_size);
  EXPECT_TRUE(ParseConfigJson(R"({"max_batch_size": 0})")->has_max_batch_size);
  const absl::StatusOr<ParsedConfig> parsed =
      ParseConfigJson(R"({"maxBatchSize": 4, "parameters": {"sluice.slots": {"string_value": "2"}}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->has_max_batch_size);
  EXPECT_EQ(parsed->config.max_batch_size(), 4);
  EXPECT_EQ(parsed->config.parameters().at("sluice.slots").string_value(), "2");
}

TEST(ParseConfigJson, RefusesWhatIsNoConfig) {
  for (const char* json : {"", "[]", "{", R"({"max_batch_size": "many"})", R"({"max_batchsize": 1})"}) {
    const absl::Status status = ParseConfigJson(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(status.message()), HasSubstr("parameter 'config': ")) << json;
  }
  EXPECT_FALSE(ParseConfigJson(std::string(100000, '[')).ok()) << "nested without end";
}

}  // namespace
}  // namespace sluice::server
