// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "model/onnx_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "model/graph_builder.h"
#include "onnx_writer.h"

namespace sluice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFiletype[] = SLUICE_SOURCE_DIR "/models/filetype/1/model.onnx";

std::string SmallFile() {
  return OnnxWriter()
      .Input("x", DataType::kFp32, {-1, 2})
      .Output("y", DataType::kFp32, {-1, 2})
      .Floats("b", {2}, {1.0f, 2.0f})
      .Node(
          "Add", {"x", "b"}, {"y"},
          {IntAttribute("i", -5), IntsAttribute("n", {1, 2}), FloatAttribute("f", 0.5f), StringAttribute("s", "text")})
      .Serialize();
}

std::string Wrap(const std::string& graph) {
  return WireWriter().Varint(1, 8).Bytes(7, graph).Bytes(8, WireWriter().Varint(2, 13).bytes()).bytes();
}

std::string WithInitializer(const std::string& tensor) { return Wrap(WireWriter().Bytes(5, tensor).bytes()); }

absl::Status ParseStatus(const std::string& file, const std::string& directory = "") {
  return ParseOnnx(AsBytes(file), directory).status();
}

TEST(OnnxReaderTest, ReadsWhatTheFileSays) {
  // Goal: every part a graph is made of is read, tensors in place. Method: a small file, looked at field by field.
  const std::string bytes = SmallFile();
  const auto file = ParseOnnx(AsBytes(bytes), "");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->ir_version, 8);
  ASSERT_EQ((*file)->nodes.size(), 1u);
  const OnnxNode& node = (*file)->nodes[0];
  EXPECT_EQ(node.operator_name, "Add");
  EXPECT_EQ(node.name, "y_node");
  EXPECT_THAT(node.inputs, ElementsAre("x", "b"));
  ASSERT_EQ(node.attributes.size(), 4u);
  EXPECT_EQ(std::get<int64_t>(node.attributes[0].value), -5);
  EXPECT_THAT(std::get<std::vector<int64_t>>(node.attributes[1].value), ElementsAre(1, 2));
  EXPECT_EQ(std::get<float>(node.attributes[2].value), 0.5f);
  EXPECT_EQ(std::get<std::string>(node.attributes[3].value), "text");
  EXPECT_EQ(*(*file)->inputs[0].dims, (Shape{-1, 2}));
  const ConstantTensor& tensor = (*file)->initializers[0];
  EXPECT_EQ(tensor.dims, Shape{2});
  EXPECT_GE(reinterpret_cast<const char*>(tensor.bytes.data()), bytes.data()) << "raw data stays in the file";
  EXPECT_LT(reinterpret_cast<const char*>(tensor.bytes.data()), bytes.data() + bytes.size());
}

TEST(OnnxReaderTest, LeavesDimensionsOpen) {
  // Goal: a dimension that a file leaves open is open, however it says so. Method: a name, nothing, 0 and -1 beside a
  // number.
  WireWriter shape;
  shape.Bytes(1, WireWriter().Bytes(2, "N").bytes()).Bytes(1, "").Bytes(1, WireWriter().Varint(1, 0).bytes());
  shape.Bytes(1, WireWriter().Varint(1, ~uint64_t{0}).bytes()).Bytes(1, WireWriter().Varint(1, 20).bytes());
  const std::string tensor = WireWriter().Varint(1, 1).Bytes(2, shape.bytes()).bytes();
  const std::string info = WireWriter().Bytes(1, "x").Bytes(2, WireWriter().Bytes(1, tensor).bytes()).bytes();
  const std::string bytes = Wrap(WireWriter().Bytes(11, info).bytes());
  const auto file = ParseOnnx(AsBytes(bytes), "");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->inputs[0].dims, (Shape{-1, -1, -1, -1, 20}));
}

TEST(OnnxReaderTest, ReadsTypedFields) {
  // Goal: numbers outside raw_data are read in the type's own field, narrowed. Method: one tensor of each field.
  const struct {
    uint64_t onnx_type;
    uint32_t field;
    std::string packed;
    std::string bytes;
  } cases[] = {
      {1, 4, std::string("\0\0\x80\x3F", 4), std::string("\0\0\x80\x3F", 4)},
      {11, 10, std::string("\0\0\0\0\0\0\xF0\x3F", 8), std::string("\0\0\0\0\0\0\xF0\x3F", 8)},
      {6, 5, std::string("\x07", 1), std::string("\x07\0\0\0", 4)},
      {7, 7, std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 10),
       std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8)},
      {9, 5, std::string("\x01", 1), std::string("\x01", 1)},
      {3, 5, std::string("\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 10), std::string("\xFE", 1)},
      {10, 5, std::string("\x80\x78", 2), std::string("\0\x3C", 2)},
      {13, 11, std::string("\x05", 1), std::string("\x05\0\0\0\0\0\0\0", 8)},
  };
  for (const auto& test : cases) {
    const std::string bytes = WithInitializer(
        WireWriter().Varint(1, 1).Varint(2, test.onnx_type).Bytes(8, "t").Bytes(test.field, test.packed).bytes());
    const auto file = ParseOnnx(AsBytes(bytes), "");
    ASSERT_TRUE(file.ok()) << file.status() << " type " << test.onnx_type;
    const ByteSpan got = (*file)->initializers[0].bytes;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.data()), got.size()), test.bytes) << test.onnx_type;
  }
}

TEST(OnnxReaderTest, RefusesMalformedFiles) {
  // Goal: every way a file can be wrong is an error that names the field. Method: a table.
  const std::string float_type = WireWriter().Varint(1, 1).bytes();
  const struct {
    std::string file;
    absl::StatusCode code;
    const char* message;
  } cases[] = {
      {"", absl::StatusCode::kInvalidArgument, "model.graph: missing"},
      {"not a model at all", absl::StatusCode::kInvalidArgument, "byte "},
      {WireWriter().Varint(7, 1).bytes(), absl::StatusCode::kInvalidArgument, "model.graph: expected bytes"},
      {WireWriter().Bytes(7, "").bytes(), absl::StatusCode::kInvalidArgument, "model.opset_import: missing"},
      {WireWriter().Bytes(7, "").Bytes(7, "").bytes(), absl::StatusCode::kInvalidArgument, "model.graph: given twice"},
      {SmallFile() + WireWriter().Bytes(25, "f").bytes(), absl::StatusCode::kUnimplemented, "functions"},
      {SmallFile() + WireWriter().Bytes(20, "").bytes(), absl::StatusCode::kUnimplemented, "training_info"},
      {Wrap(WireWriter().Bytes(1, "").bytes()), absl::StatusCode::kInvalidArgument, "node.op_type: missing"},
      {Wrap(WireWriter().Bytes(1, WireWriter().Bytes(4, "\xFF").bytes()).bytes()), absl::StatusCode::kInvalidArgument,
       "not UTF-8"},
      {Wrap(WireWriter().Bytes(1, WireWriter().Bytes(4, std::string(5000, 'a')).bytes()).bytes()),
       absl::StatusCode::kInvalidArgument, "at most 4096"},
      {Wrap(WireWriter().Bytes(15, "").bytes()), absl::StatusCode::kUnimplemented, "sparse_initializer"},
      {WithInitializer(WireWriter().Bytes(8, "t").bytes()), absl::StatusCode::kInvalidArgument, "no element type"},
      {WithInitializer(RawTensorBytes("t", DataType::kFp32, {2}, "1234")), absl::StatusCode::kInvalidArgument,
       "4 bytes of values; the dimensions need 8"},
      {WithInitializer(RawTensorBytes("t", DataType::kFp32, {-1}, "")), absl::StatusCode::kInvalidArgument, "negative"},
      {WithInitializer(RawTensorBytes("t", DataType::kFp32, {1 << 30, 1 << 30, 1 << 30}, "")),
       absl::StatusCode::kInvalidArgument, "more elements"},
      {WithInitializer(RawTensorBytes("t", DataType::kFp32, {0, int64_t{1} << 39, int64_t{1} << 39}, "")),
       absl::StatusCode::kInvalidArgument, "more elements"},
      {WithInitializer(RawTensorBytes("t", DataType::kFp32, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "1234")),
       absl::StatusCode::kInvalidArgument, "tensor.dims"},
      {WithInitializer(RawTensorBytes("", DataType::kFp32, {1}, "1234")), absl::StatusCode::kInvalidArgument,
       "without a name"},
      {WithInitializer(WireWriter().Varint(2, 8).Bytes(8, "t").bytes()), absl::StatusCode::kUnimplemented,
       "element type 8 (STRING)"},
      {WithInitializer(WireWriter().Varint(1, 1).Varint(2, 1).Bytes(7, "\x01").bytes()),
       absl::StatusCode::kInvalidArgument, "does not belong to FP32"},
      {WithInitializer(WireWriter().Varint(1, 1).Varint(2, 1).Bytes(9, "1234").Bytes(4, "1234").bytes()),
       absl::StatusCode::kInvalidArgument, "both raw and typed"},
      {Wrap(WireWriter().Bytes(11, WireWriter().Bytes(1, "x").bytes()).bytes()), absl::StatusCode::kInvalidArgument,
       "no tensor type"},
      {OnnxWriter().Node("Add", {}, {"y"}, {IntAttribute("a", 1), IntAttribute("a", 2)}).Serialize(),
       absl::StatusCode::kInvalidArgument, "attribute 'a': given twice"},
      {OnnxWriter().Node("Add", {}, {"y"}, {WireWriter().Bytes(1, "a").Varint(20, 99).bytes()}).Serialize(),
       absl::StatusCode::kInvalidArgument, "type 99 is unknown"},
      {OnnxWriter()
           .Node("If", {"c"}, {"y"}, {WireWriter().Bytes(1, "then_branch").Bytes(6, "").Varint(20, 5).bytes()})
           .Serialize(),
       absl::StatusCode::kUnimplemented, "node 'y_node' (If): attribute 'then_branch'"},
  };
  for (const auto& test : cases) {
    const absl::Status status = ParseStatus(test.file);
    EXPECT_EQ(status.code(), test.code) << test.message << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.message));
  }
}

class ExternalDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "external.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    std::filesystem::create_directories(root_ / "model/sub");
    std::ofstream(root_ / "model/w.bin", std::ios::binary) << "0123456789abcdef";
    std::ofstream(root_ / "model/sub/w.bin", std::ios::binary) << "zyxw";
    std::ofstream(root_ / "secret.bin", std::ios::binary) << "secret!!";
    std::filesystem::create_symlink("../secret.bin", root_ / "model/link.bin");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  static std::string FileWith(const std::string& location, const std::string& offset, const std::string& length) {
    WireWriter tensor;
    tensor.Varint(1, 1).Varint(2, 1).Bytes(8, "w").Varint(14, 1);
    const auto entry = [&](const std::string& key, const std::string& value) {
      if (!value.empty()) tensor.Bytes(13, WireWriter().Bytes(1, key).Bytes(2, value).bytes());
    };
    entry("location", location);
    entry("offset", offset);
    entry("length", length);
    return WithInitializer(tensor.bytes());
  }

  std::string directory() const { return (root_ / "model").string(); }
  std::filesystem::path root_;
};

TEST_F(ExternalDataTest, FindsDataBesideTheModel) {
  // Goal: offset and length are honoured, subfolders allowed. Method: two tensors.
  auto file = ParseOnnx(AsBytes(FileWith("w.bin", "4", "4")), directory());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(std::memcmp((*file)->initializers[0].bytes.data(), "4567", 4), 0);
  file = ParseOnnx(AsBytes(FileWith("sub/w.bin", "", "")), directory());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(std::memcmp((*file)->initializers[0].bytes.data(), "zyxw", 4), 0);
}

TEST_F(ExternalDataTest, RefusesEverythingElse) {
  // Goal: a model cannot name a file outside its folder, nor bytes outside a file. Method: a table of attempts.
  const struct {
    std::string location, offset, length;
    const char* message;
  } cases[] = {
      {"/etc/passwd", "", "", "absolute"},
      {"../secret.bin", "", "", "leaves"},
      {"sub/../../secret.bin", "", "", "leaves"},
      {"link.bin", "", "", "leads out"},
      {"", "", "", "no location"},
      {"none.bin", "", "", "no such file"},
      {"sub", "", "", "not a regular file"},
      {"w.bin", "13", "", "of a file of 16"},
      {"w.bin", "18446744073709551615", "", "of a file of 16"},
      {"w.bin", "-1", "", "not a number"},
      {"w.bin", "0", "8", "the dimensions need 4"},
  };
  for (const auto& test : cases) {
    const absl::Status status = ParseStatus(FileWith(test.location, test.offset, test.length), directory());
    EXPECT_FALSE(status.ok()) << test.location;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.message));
  }
  EXPECT_THAT(std::string(ParseStatus(FileWith("w.bin", "", "")).message()), HasSubstr("not allowed"));
}

TEST_F(ExternalDataTest, OfAModelInMemoryIsInMemory) {
  // Goal: what a client gave finds its own files and none on disk. Method: the same attempts beside a folder of that
  // name that has them.
  const auto files = std::make_shared<const FilesInMemory>(
      FilesInMemory{{"model/w.bin", "0123456789abcdef"}, {"model/sub/w.bin", "zyxw"}, {"secret.bin", "secret!!"}});
  const auto parse = [&files](const std::string& location, const std::string& offset) {
    return ParseOnnx(AsBytes(FileWith(location, offset, "")), "model", files);
  };
  auto file = parse("w.bin", "4");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(std::memcmp((*file)->initializers[0].bytes.data(), "4567", 4), 0);
  file = parse("./sub/w.bin", "");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(std::memcmp((*file)->initializers[0].bytes.data(), "zyxw", 4), 0);
  const std::vector<std::array<std::string, 3>> cases = {
      {"/etc/passwd", "", "absolute"},    {"../secret.bin", "", "leaves"}, {"sub/../../secret.bin", "", "leaves"},
      {"link.bin", "", "no such file"},   {"", "", "no location"},         {"sub", "", "no such file"},
      {"w.bin", "13", "of a file of 16"},
  };
  std::filesystem::current_path(root_);
  for (const auto& [location, offset, message] : cases) {
    const absl::Status status = parse(location, offset).status();
    EXPECT_FALSE(status.ok()) << location;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  std::filesystem::current_path("/");
}

TEST(OnnxReaderTest, AModelInMemoryNeedsItsFile) {
  const auto files = std::make_shared<const FilesInMemory>(FilesInMemory{{"1/model.onnx", "this is no model"}});
  const absl::Status broken = LoadOnnxModel(files, "1/model.onnx").status();
  EXPECT_EQ(broken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(broken.message()), HasSubstr("1/model.onnx: byte "));
  EXPECT_EQ(LoadOnnxModel(files, "2/model.onnx").status().code(), absl::StatusCode::kNotFound);
}

TEST(OnnxReaderTest, MissingFileIsNotFound) {
  // Goal: the caller can tell a missing file from a broken one. Method: both.
  EXPECT_EQ(ReadOnnxFile("/nonexistent/model.onnx").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadOnnxFile(::testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LoadOnnxModel("/nonexistent/model.onnx").status().code(), absl::StatusCode::kNotFound);
}

/// Reads and types arbitrary bytes; nothing but a crash can go wrong here.
void Digest(const std::string& bytes) {
  const auto file = ParseOnnx(AsBytes(bytes), "");
  if (file.ok()) BuildGraph(**file).status().IgnoreError();
}

TEST(OnnxReaderTest, SurvivesDamageToARealFile) {
  // Goal: no truncation and no flipped bit of a real file crashes or hangs the reader (sanitizers watch in their
  // builds). Method: every prefix of the structured head and tail, and seeded flips where structure is dense.
  std::ifstream stream(kFiletype, std::ios::binary);
  const std::string original((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  ASSERT_GT(original.size(), 1'000'000u);
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) Digest(original.substr(0, random() % original.size()));
  // Nodes come first in this file, then initializers, then inputs and outputs.
  for (int i = 0; i < 4000; ++i) {
    std::string damaged = original.substr(0, 60'000) + original.substr(original.size() - 2'000);
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1u << (random() % 8));
    }
    Digest(damaged);
  }
  for (int i = 0; i < 60; ++i) {
    std::string damaged = original;
    damaged[random() % 30'000] ^= static_cast<char>(1u << (random() % 8));
    Digest(damaged);
  }
}

TEST(OnnxReaderTest, SurvivesDamageToASmallFile) {
  // Goal: as above, exhaustively. Method: every prefix, and every bit of a small file flipped.
  const std::string original = SmallFile();
  for (size_t size = 0; size < original.size(); ++size) Digest(original.substr(0, size));
  for (size_t bit = 0; bit < original.size() * 8; ++bit) {
    std::string damaged = original;
    damaged[bit / 8] ^= static_cast<char>(1u << (bit % 8));
    Digest(damaged);
  }
}

}  // namespace
}  // namespace sluice::model
