// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a model's description is asked for with any name and shown as tables, and nothing in it can make that fail.
// Method: a document by hand, and ones with parts missing or of the wrong type.
#include "client/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

json Unit(double us, bool captured) {
  return {
      {"first_launch", 0},    {"launch_count", 2},   {"us", us}, {"predicted_us", 7}, {"first_kernel", "Conv small"},
      {"last_kernel", "Add"}, {"captured", captured}};
}

json Value(const std::string& name, const json& dims) { return {{"name", name}, {"type", "FP32"}, {"dims", dims}}; }

json Node(const std::string& op, const json& output) { return {{"op", op}, {"outputs", json::array({output})}}; }

json Document() {
  json units = json::array();
  for (int i = 0; i < 12; ++i) units.push_back(Unit(10 + i, i > 0));
  json small = {{"rows", 1},
                {"micro_batch", false},
                {"classes", {"latency", "standard"}},
                {"whole_us", 50.0},
                {"us_per_row", 50.0},
                {"unit_count", 1},
                {"longest_unit_us", 50.04},
                {"longest_kernel", "Conv big"}};
  json large = small;
  large.update({{"rows", 4},
                {"micro_batch", true},
                {"whole_us", 186.0},
                {"units", units},
                {"unit_count", 12},
                {"kernels", {{{"name", "Conv small"}, {"us", 4.25}}}}});
  json memory = {{"weight_bytes", 1000000},
                 {"slot_device_bytes", 2000000},
                 {"slot_pinned_bytes", 500000},
                 {"total_bytes", 3500000},
                 {"plans",
                  {{{"rows", 4},
                    {"slots", {{"latency", 2}, {"standard", 1}, {"batch", 2}}},
                    {"device_bytes", 2000000},
                    {"pinned_bytes", 500000}}}}};
  json bucket = {{"micro_batch", {{"rows", 4}, {"rule", "unit_limit"}, {"why", "since."}, {"cost", 0.125}}},
                 {"plans", {small, large}}};
  json device = {
      {"device", "cuda:0"}, {"precision", "fp16"}, {"shape_buckets", json::array({bucket})}, {"memory", memory}};
  json before = {{"node_count", 3},
                 {"cut", false},
                 {"nodes",
                  {Node("Conv", Value("c", nullptr)), Node("Relu", Value("a/very/long/name/that/ends/in/r", nullptr)),
                   Node("Flatten", Value("y", {-1, 8}))}}};
  json fused = Node("Conv", Value("a/very/long/name/that/ends/in/r", {4, 8}));
  fused["fused"] = "Relu";
  json after = {{"node_count", 3},
                {"cut", false},
                {"nodes", {Node("Cast", Value("new", {4})), fused, Node("Flatten", Value("y", {4, 8}))}}};
  return {{"model", "net"},
          {"version", 2},
          {"max_batch_size", 8},
          {"devices", json::array({device})},
          {"graph", {{"before", before}, {"after", after}, {"after_rows", 4}}}};
}

TEST(InspectPath, EncodesWhatIsNotPlain) {
  EXPECT_EQ(InspectPath("resnet50", ""), "/inspect?model=resnet50");
  EXPECT_EQ(InspectPath("a b&c/\xC3\xA4", "1 2"), "/inspect?model=a%20b%26c%2F%C3%A4&version=1%202");
}

TEST(RenderInspection, ShowsPlansUnitsAndMemory) {
  const std::string text = RenderInspection(Document(), {});
  EXPECT_THAT(
      text,
      HasSubstr("net version 2, up to 8 rows a request\n\ncuda:0 in fp16: standard and batch work runs 4 rows at a "
                "time (unit_limit)\nsince.\n12.5 % of the best throughput given up\n"));
  EXPECT_THAT(text, HasSubstr("  1 "));
  EXPECT_THAT(text, HasSubstr("  4* "));
  EXPECT_THAT(text, HasSubstr("latency,standard  Conv big\n"));
  EXPECT_THAT(text, HasSubstr("Units of 4 rows, the 10 longest of 12 (--units: all)\n"));
  EXPECT_THAT(text, HasSubstr("  11  21.0     7.0        2  graph     Conv small    Add\n"));
  EXPECT_THAT(text, Not(HasSubstr("plain"))) << "the shortest, of twelve";
  EXPECT_THAT(text, HasSubstr("weights 1.000 + slots 2.000 + pinned 0.500 = 3.500 MB\n"));
  EXPECT_THAT(text, Not(HasSubstr("Graph")));
  EXPECT_THAT(text, Not(HasSubstr("4.2")));
}

TEST(RenderInspection, ShowsAllOfItWhenAsked) {
  const std::string text = RenderInspection(Document(), {.all_units = true, .kernels = true, .graph = true});
  EXPECT_THAT(text, HasSubstr("Units of 4 rows\n"));
  EXPECT_THAT(text, HasSubstr("plain"));
  EXPECT_THAT(text, HasSubstr("Kernels of 4 rows\n"));
  EXPECT_THAT(
      text,
      HasSubstr("Graph: 3 nodes before passes, 3 after them for 4 rows\n"
                "before                                     |  after\n"
                "Conv -> c:FP32                             |\n"
                "                                           |  Cast -> new:FP32[4]\n"
                "Relu -> .../long/name/that/ends/in/r:FP32  |  Conv+Relu -> .../long/name/that/ends/in/r:FP32[4,8]\n"
                "Flatten -> y:FP32[-1,8]                    |  Flatten -> y:FP32[4,8]\n"));
}

TEST(RenderInspection, SurvivesWhatIsMissingOrOfAnotherType) {
  const json whole = Document();
  const json flat = whole.flatten();
  for (const json& wrong : {json(), json("text"), json(7), json::array({1, "x", nullptr}), json::object()}) {
    for (const auto& [pointer, value] : flat.items()) {
      json broken = whole;
      broken[json::json_pointer(pointer)] = wrong;
      EXPECT_NE(RenderInspection(broken, {.all_units = true, .kernels = true, .graph = true}), "") << pointer;
    }
  }
  EXPECT_NE(RenderInspection(json::object(), {.graph = true}), "");
}

TEST(ParseInspection, RefusesWhatIsNone) {
  EXPECT_TRUE(ParseInspection(Document().dump()).ok());
  for (const char* text :
       {"", "not found\n", "[]", "{}", "7", R"({"model": "m", "devices": [], "graph": 1})", "{\"model\""}) {
    const auto inspection = ParseInspection(text);
    ASSERT_FALSE(inspection.ok()) << text;
    EXPECT_EQ(inspection.status().code(), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace sluice::client
