// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/load/stream_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/load/load_run.h"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;

// Goal: every field of an open loop reaches the spec. Method: one text with all of them.
TEST(StreamSpec, OpenLoop) {
  const auto spec = ParseStreamSpec(
      "class=latency,model=filetype,version=2,rate=20.5,distribution=constant,batch=3,deadline-ms=150,data=a=b.npy,"
      "shape=bytes:3x2048,shape=x:1,name=mine");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->request_class, RequestClass::kLatency);
  EXPECT_EQ(spec->model, "filetype");
  EXPECT_EQ(spec->version, "2");
  EXPECT_TRUE(spec->open_loop());
  EXPECT_EQ(spec->rate, 20.5);
  EXPECT_EQ(spec->arrivals, Arrivals::kConstant);
  EXPECT_EQ(spec->batch, 3);
  EXPECT_EQ(spec->deadline, absl::Milliseconds(150));
  EXPECT_EQ(spec->data, "a=b.npy");
  EXPECT_EQ(spec->shapes.at("bytes"), (std::vector<int64_t>{3, 2048}));
  EXPECT_EQ(spec->shapes.at("x"), (std::vector<int64_t>{1}));
  EXPECT_EQ(spec->name, "mine");
}

// Goal: closed loop and the defaults. Method: the least and a limited one.
TEST(StreamSpec, ClosedLoopAndDefaults) {
  const auto spec = ParseStreamSpec("model=m,concurrency=4,requests=100");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->open_loop());
  EXPECT_EQ(spec->concurrency, 4);
  EXPECT_EQ(spec->request_limit, 100);
  EXPECT_EQ(spec->batch, 1);
  EXPECT_EQ(spec->data, "random");
  EXPECT_EQ(spec->name, "default/m");
  EXPECT_FALSE(spec->request_class.has_value());
  EXPECT_FALSE(spec->deadline.has_value());
  EXPECT_EQ(ParseStreamSpec("model=m,rate=1")->arrivals, Arrivals::kPoisson);
  EXPECT_EQ(ParseStreamSpec("model=m,rate=1,distribution=bursty")->arrivals, Arrivals::kBursty);
}

struct BadSpec {
  const char* text;
  const char* names;
};
class BadStreamSpec : public ::testing::TestWithParam<BadSpec> {};

// Goal: a wrong spec is refused and the message names the field. Method: one table row for each way to be wrong.
TEST_P(BadStreamSpec, NamesTheField) {
  const auto spec = ParseStreamSpec(GetParam().text);
  ASSERT_FALSE(spec.ok()) << GetParam().text;
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr(std::string("'") + GetParam().names + "'"));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadStreamSpec,
    ::testing::Values(BadSpec{"", ""}, BadSpec{"rate=1", "model"}, BadSpec{"model=,rate=1", "model"},
                      BadSpec{"model=m", "rate"}, BadSpec{"model=m,rate=1,concurrency=1", "concurrency"},
                      BadSpec{"model=m,rate=0", "rate"}, BadSpec{"model=m,rate=-1", "rate"},
                      BadSpec{"model=m,rate=nan", "rate"}, BadSpec{"model=m,rate=fast", "rate"},
                      BadSpec{"model=m,rate=2000000", "rate"}, BadSpec{"model=m,concurrency=0", "concurrency"},
                      BadSpec{"model=m,concurrency=5000", "concurrency"}, BadSpec{"model=m,rate=1,class=fast", "class"},
                      BadSpec{"model=m,rate=1,batch=0", "batch"}, BadSpec{"model=m,rate=1,batch=1.5", "batch"},
                      BadSpec{"model=m,rate=1,distribution=normal", "distribution"},
                      BadSpec{"model=m,concurrency=1,distribution=poisson", "distribution"},
                      BadSpec{"model=m,rate=1,requests=5", "requests"},
                      BadSpec{"model=m,rate=1,deadline-ms=0", "deadline-ms"},
                      BadSpec{"model=m,rate=1,shape=x", "shape"}, BadSpec{"model=m,rate=1,shape=x:1x-2", "shape"},
                      BadSpec{"model=m,rate=1,rate=2", "rate"}, BadSpec{"model=m,rate=1,speed=2", "speed"},
                      BadSpec{"model=m,rate=1,", ""}));

// Goal: two streams of one class and model can be told apart. Method: name three.
TEST(StreamSpec, RepeatedNamesAreNumbered) {
  std::vector<StreamSpec> streams(3);
  streams[0].name = streams[2].name = "batch/m";
  streams[1].name = "latency/m";
  NameStreams(streams);
  EXPECT_EQ(streams[0].name, "batch/m");
  EXPECT_EQ(streams[1].name, "latency/m");
  EXPECT_EQ(streams[2].name, "batch/m#2");
}

// Goal: which phases run by default, and who takes part. Method: streams of one kind and of two.
TEST(Phases, DefaultsAndParts) {
  StreamSpec latency, batch;
  latency.request_class = RequestClass::kLatency;
  batch.request_class = RequestClass::kBatch;
  EXPECT_EQ(DefaultPhases({latency, batch}), (std::vector<Phase>{Phase::kAlone, Phase::kMixed, Phase::kAlone}));
  EXPECT_EQ(DefaultPhases({latency, latency}), std::vector<Phase>{Phase::kMixed});
  EXPECT_EQ(DefaultPhases({batch}), std::vector<Phase>{Phase::kMixed});
  EXPECT_TRUE(TakesPart(latency, Phase::kAlone));
  EXPECT_FALSE(TakesPart(batch, Phase::kAlone));
  EXPECT_FALSE(TakesPart(latency, Phase::kBatchAlone));
  EXPECT_TRUE(TakesPart(batch, Phase::kBatchAlone));
  EXPECT_TRUE(TakesPart(batch, Phase::kMixedStandard));
}

// Goal: phase names are read back, and a wrong one is named. Method: all, then a mistake.
TEST(Phases, Parse) {
  EXPECT_EQ(*ParsePhases("alone,mixed,batch-alone,mixed-standard"),
            (std::vector<Phase>{Phase::kAlone, Phase::kMixed, Phase::kBatchAlone, Phase::kMixedStandard}));
  EXPECT_THAT(std::string(ParsePhases("alone,mixd").status().message()), HasSubstr("'mixd'"));
  EXPECT_FALSE(ParsePhases("").ok());
}

}  // namespace
}  // namespace sluice::client
