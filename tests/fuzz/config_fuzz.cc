// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: no config.pbtxt brings a load down, and what is accepted is without contradictions. Method: each is read and
// completed for models of two kinds; the completed config must be accepted as it is and complete to itself.
#include <google/protobuf/stubs/logging.h>

#include "absl/strings/match.h"
#include "server/repository/config_pbtxt.h"
#include "server/repository/model_settings.h"
#include "tests/fuzz/pieces.h"

namespace {

using sluice::DataType;
using sluice::testing::Require;

const sluice::model::Signature kSignatures[] = {
    {.inputs = {{"image", DataType::kFp32, {-1, 3, 8, 8}}, {"mask", DataType::kInt64, {-1, -1}}},
     .outputs = {{"scores", DataType::kFp32, {-1, 10}}}},
    {.inputs = {{"image", DataType::kFp32, {4, 16}}}, .outputs = {{"scores", DataType::kFp32, {4}}}},
};

void CheckSettings(const sluice::server::ModelSettings& settings) {
  Require(settings.max_batch_size >= 0, "max_batch_size below 0");
  Require(settings.batch_buckets.empty() == (settings.max_batch_size == 0), "batch buckets without a batch dimension");
  Require(!settings.shape_buckets.empty(), "no shape is served");
  int64_t last = 0;
  for (const int64_t rows : settings.batch_buckets) {
    Require(rows > last && rows <= settings.max_batch_size, "batch buckets out of order or bounds");
    last = rows;
  }
  for (const auto& bucket : settings.shape_buckets) {
    Require(bucket.size() == settings.inputs.size(), "a bucket without a shape for each input");
    for (const auto& shape : bucket) {
      for (const int64_t dimension : shape) Require(dimension > 0, "an open dimension in a bucket");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static google::protobuf::LogSilencer quiet;  // it logs every string that is no UTF-8
  const auto parsed = sluice::server::ParseConfigText(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed.ok()) {
    Require(absl::StartsWith(parsed.status().message(), "config.pbtxt:"), "an error without its place");
    return 0;
  }
  for (const bool has_gpu : {false, true}) {
    for (const auto& signature : kSignatures) {
      const sluice::server::SettingsOptions options{.has_gpu = has_gpu};
      const auto settings = sluice::server::MakeModelSettings("m", &*parsed, signature, options);
      if (!settings.ok()) {
        Require(absl::StartsWith(settings.status().message(), "model 'm': "), "an error without its model");
        continue;
      }
      CheckSettings(*settings);
      const sluice::server::ParsedConfig completed{.config = settings->config, .has_max_batch_size = true};
      const auto again = sluice::server::MakeModelSettings("m", &completed, signature, options);
      Require(again.ok(), "the completed config is refused");
      Require(again->config.SerializeAsString() == settings->config.SerializeAsString() ||
                  settings->config.parameters_size() > 1,  // a map, which serializes in any order
              "the completed config completes to another");
      Require(again->shape_buckets == settings->shape_buckets && again->batch_buckets == settings->batch_buckets,
              "the completed config has other buckets");
    }
  }
  return 0;
}
