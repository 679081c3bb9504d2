// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <string>

#include "examples/filetype/content.h"
#include "examples/filetype/rules.h"

namespace sluice::filetype {
namespace {

using ::testing::HasSubstr;

constexpr char kConfig[] = R"({
  "beg_size": 1024, "mid_size": 0, "end_size": 1024, "use_inputs_at_offsets": false,
  "medium_confidence_threshold": 0.5, "min_file_size_for_dl": 8, "padding_token": 256, "block_size": 4096,
  "target_labels_space": ["crt", "markdown", "randombytes", "randomtxt", "python", "png"],
  "thresholds": {"crt": 0.9, "markdown": 0.75}, "overwrite_map": {"randombytes": "unknown", "randomtxt": "txt"},
  "protection": "none", "version_major": 3})";

Rules TestRules() {
  const auto rules = ParseRules(kConfig);
  EXPECT_TRUE(rules.ok()) << rules.status();
  return *rules;
}

Ends EndsOf(const std::string& content) {
  const size_t length = std::min<size_t>(content.size(), 4096);
  return {content.substr(0, length), content.substr(content.size() - length)};
}

// FNV-1a over the values' little-endian bytes.
uint64_t HashOf(const std::vector<int32_t>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const int32_t value : values) {
    for (int byte = 0; byte < 4; ++byte) {
      hash = (hash ^ (static_cast<uint32_t>(value) >> (8 * byte) & 0xffu)) * 0x100000001b3u;
    }
  }
  return hash;
}

std::string PseudoRandomBytes(size_t count) {
  uint64_t state = 12345;
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    state = (state * 1103515245 + 12345) & 0x7fffffff;
    bytes.push_back(static_cast<char>(state >> 16 & 0xff));
  }
  return bytes;
}

struct FeatureCase {
  const char* name;
  std::string content;
  uint64_t hash;
  int32_t first, last_of_begin, first_of_end, last, sum;
};

// Goal: the model sees exactly what Magika's own package gives it. Method: generated contents; the values were recorded
// from the Python package magika 1.0.3.
TEST(Prepare, FeaturesAreMagikas) {
  const std::string script = "#!/bin/sh\necho hello\n";
  const std::vector<FeatureCase> cases = {
      {"script", script + script + script, 0x82593272949d4300u, 35, 256, 256, 111, 502436},
      {"blanks", " \n\t\r\v\f int main() { return 0; }\n \t ", 0xe833c7ddf1ff2124u, 105, 256, 256, 125, 513426},
      {"more than two blocks", PseudoRandomBytes(10000), 0x1acc08737c4b2d6bu, 220, 147, 218, 184, 261900},
      {"one block", PseudoRandomBytes(4096), 0x3eef5a72f9814cbfu, 220, 147, 203, 203, 266288},
      {"eight letters", "  12345678  ", 0x32dfe6ee6dcc8a85u, 49, 256, 256, 56, 520136},
      {"trailing blanks count", "    1234567    ", 0xdde7ff4a67027075u, 49, 256, 256, 55, 519640},
      {"zeros", std::string(9, '\0'), 0x4bc2f136b1a715d5u, 0, 256, 256, 0, 519680},
      {"other blanks stay", "\xa0\x85\x1c\x1d text with latin-1 blanks \x1c\xa0", 0x0dbf603bbbdc59e5u, 160, 256, 256,
       160, 513624},
  };
  const Rules rules = TestRules();
  for (const FeatureCase& expected : cases) {
    const Prepared prepared = Prepare(rules, EndsOf(expected.content));
    ASSERT_FALSE(prepared.verdict.has_value()) << expected.name;
    const std::vector<int32_t>& features = prepared.features;
    ASSERT_EQ(features.size(), 2048u) << expected.name;
    EXPECT_EQ(features[0], expected.first) << expected.name;
    EXPECT_EQ(features[1023], expected.last_of_begin) << expected.name;
    EXPECT_EQ(features[1024], expected.first_of_end) << expected.name;
    EXPECT_EQ(features[2047], expected.last) << expected.name;
    EXPECT_EQ(std::accumulate(features.begin(), features.end(), 0), expected.sum) << expected.name;
    EXPECT_EQ(HashOf(features), expected.hash) << expected.name;
  }
}

// Goal: what the model is not asked about. Method: short contents; the types were recorded from the Python package.
TEST(Prepare, ShortContentNeedsNoModel) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "empty"},
      {"1234567", "txt"},
      {"\xff\xfe\x01", "unknown"},
      {std::string(5000, ' ') + "real text at the end", "txt"},
      {"ab\xe2\x82", "unknown"},
      {std::string(4095, ' ') + "\xe2\x82\xac and so on, a longer tail", "unknown"}};
  const Rules rules = TestRules();
  for (const auto& [content, type] : cases) {
    const Prepared prepared = Prepare(rules, EndsOf(content));
    ASSERT_TRUE(prepared.verdict.has_value()) << type;
    EXPECT_EQ(prepared.verdict->type, type);
    EXPECT_EQ(prepared.verdict->score, 1.0);
    EXPECT_EQ(prepared.verdict->label, "");
  }
}

// Goal: well-formed UTF-8 is what the standard says. Method: bounds of every sequence length, and what lies beyond.
TEST(Utf8, Bounds) {
  for (const char* good : {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa9z"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2g", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
        "\xe2\x82g", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xf0\x90\x80"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

// Goal: thresholds, overwrites and fallbacks. Method: one dominant score each; the types were recorded from the Python
// package.
TEST(JudgeScores, ThresholdsAndOverwrites) {
  struct Case {
    size_t label;
    float score;
    const char* type;
  };
  const Rules rules = TestRules();
  for (const Case& expected :
       {Case{0, 0.85f, "unknown"}, Case{0, 0.95f, "crt"}, Case{1, 0.74f, "txt"}, Case{1, 0.75f, "markdown"},
        Case{2, 0.9f, "unknown"}, Case{3, 0.9f, "txt"}, Case{3, 0.1f, "txt"}, Case{4, 0.49f, "txt"},
        Case{5, 0.49f, "unknown"}, Case{5, 0.5f, "png"}}) {
    std::vector<float> scores(rules.labels.size(), 0.01f);
    scores[expected.label] = expected.score;
    const Verdict verdict = JudgeScores(rules, scores);
    EXPECT_EQ(verdict.type, expected.type) << rules.labels[expected.label] << " " << expected.score;
    EXPECT_EQ(verdict.label, rules.labels[expected.label]);
    EXPECT_EQ(verdict.score, static_cast<double>(expected.score));
  }
}

// Goal: the table of binary labels is in order, as its search needs. Method: labels from its ends and middle, and
// textual ones.
TEST(Labels, TextAndBinary) {
  for (const char* binary : {"3gp", "elf", "png", "unknown", "randombytes", "zip", "zlibstream", "crt", "pdf"}) {
    EXPECT_FALSE(IsText(binary)) << binary;
  }
  for (const char* text : {"txt", "python", "randomtxt", "markdown", "c", "json", "pem", "svg"}) {
    EXPECT_TRUE(IsText(text)) << text;
  }
}

// Goal: a config that is broken or of a newer kind is refused by field. Method: change one field at a time.
TEST(ParseRules, RefusesUnfitConfigs) {
  const auto refused = [](const std::string& from, const std::string& to) {
    std::string text = kConfig;
    text.replace(text.find(from), from.size(), to);
    const auto rules = ParseRules(text);
    EXPECT_FALSE(rules.ok()) << to;
    return std::string(rules.status().message());
  };
  EXPECT_THAT(refused("\"beg_size\": 1024", "\"beg_size\": -1"), HasSubstr("'beg_size'"));
  EXPECT_THAT(refused("\"beg_size\": 1024", "\"beg_size\": 5000"), HasSubstr("'beg_size'"));
  EXPECT_THAT(refused("\"mid_size\": 0", "\"mid_size\": 512"), HasSubstr("'mid_size'"));
  EXPECT_THAT(refused("\"use_inputs_at_offsets\": false", "\"use_inputs_at_offsets\": true"),
              HasSubstr("not supported"));
  EXPECT_THAT(refused("\"thresholds\"", "\"threshold\""), HasSubstr("'thresholds'"));
  EXPECT_THAT(refused("0.75", "\"high\""), HasSubstr("'thresholds'"));
  EXPECT_THAT(refused("\"crt\",", "1,"), HasSubstr("'target_labels_space'"));
  EXPECT_THAT(refused("0.5", "\"x\""), HasSubstr("'medium_confidence_threshold'"));
  EXPECT_FALSE(ParseRules("{").ok());
  EXPECT_FALSE(ParseRules("[]").ok());
}

// Goal: files are read by their two ends; what is no regular file is named without being read. Method: temporary paths.
TEST(PrepareFile, ReadsBothEnds) {
  const Rules rules = TestRules();
  const std::string path = ::testing::TempDir() + "filetype_large.bin";
  std::ofstream(path, std::ios::binary) << PseudoRandomBytes(10000);
  const auto prepared = PrepareFile(rules, path);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(HashOf(prepared->features), 0x1acc08737c4b2d6bu);
  EXPECT_EQ(PrepareFile(rules, ::testing::TempDir())->verdict->type, "directory");
  EXPECT_EQ(PrepareFile(rules, "/dev/null")->verdict->type, "unknown");
  EXPECT_EQ(PrepareFile(rules, path + ".none").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice::filetype
