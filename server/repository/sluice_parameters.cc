// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/repository/sluice_parameters.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace sluice::server {
namespace {

absl::Status Bad(absl::string_view key, absl::string_view expected, absl::string_view got) {
  return absl::InvalidArgumentError(
      absl::StrCat("config.pbtxt: parameter '", key, "' takes ", expected, ", not '", got, "'"));
}

/// The words of a comma-separated list, without white space around them.
std::vector<absl::string_view> Words(absl::string_view value) {
  std::vector<absl::string_view> words = absl::StrSplit(value, ',');
  for (absl::string_view& word : words) word = absl::StripAsciiWhitespace(word);
  return words;
}

absl::StatusOr<model::Precision> ParsePrecision(absl::string_view key, absl::string_view value) {
  const std::optional<model::Precision> precision = model::ParsePrecision(value);
  if (!precision) return Bad(key, "fp32, tf32, fp16 or bf16", value);
  return *precision;
}

absl::StatusOr<RequestClass> ParseClass(absl::string_view key, absl::string_view value) {
  const std::optional<RequestClass> request_class = ParseRequestClass(value);
  if (!request_class) return Bad(key, "latency, standard or batch", value);
  return *request_class;
}

absl::StatusOr<std::vector<RequestClass>> ParseClasses(absl::string_view key, absl::string_view value) {
  std::vector<RequestClass> classes;
  for (const absl::string_view word : Words(value)) {
    SLUICE_ASSIGN_OR_RETURN(const RequestClass request_class, ParseClass(key, word));
    if (std::find(classes.begin(), classes.end(), request_class) != classes.end()) {
      return Bad(key, "each class at most once", value);
    }
    classes.push_back(request_class);
  }
  std::sort(classes.begin(), classes.end());
  return classes;
}

absl::StatusOr<std::vector<int64_t>> ParseBuckets(absl::string_view key, absl::string_view value) {
  constexpr absl::string_view kExpected = "ascending batch sizes such as 1,2,4 (at most 16, each 1 to 4096)";
  std::vector<int64_t> buckets;
  for (const absl::string_view word : Words(value)) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(word, &size) || size < 1 || size > kMaxBatchSize) return Bad(key, kExpected, value);
    if (!buckets.empty() && size <= buckets.back()) return Bad(key, kExpected, value);
    buckets.push_back(size);
  }
  if (buckets.size() > kMaxBatchBuckets) return Bad(key, kExpected, value);
  return buckets;
}

absl::StatusOr<int64_t> ParseBatchRows(absl::string_view key, absl::string_view value) {
  int64_t rows = 0;
  if (!absl::SimpleAtoi(value, &rows) || rows < 1 || rows > kMaxBatchSize) {
    return Bad(key, "one of the model's batch sizes (sluice.buckets)", value);
  }
  return rows;
}

absl::Status ParseSlots(absl::string_view key, absl::string_view value, SluiceParameters& result) {
  constexpr absl::string_view kExpected = "a number from 1 to 64, or such numbers by class, as latency=2,batch=4";
  int count = 0;
  const auto parse_count = [&count](absl::string_view text) {
    return absl::SimpleAtoi(text, &count) && count >= 1 && count <= kMaxSlots;
  };
  if (parse_count(value)) {
    result.slots.fill(count);
    return absl::OkStatus();
  }
  for (const absl::string_view word : Words(value)) {
    const std::vector<absl::string_view> pair = absl::StrSplit(word, '=');
    if (pair.size() != 2 || !parse_count(pair[1])) return Bad(key, kExpected, value);
    const std::optional<RequestClass> request_class = ParseRequestClass(pair[0]);
    if (!request_class) return Bad(key, kExpected, value);
    std::optional<int>& slots = result.slots[static_cast<size_t>(*request_class)];
    if (slots) return Bad(key, "each class at most once", value);
    slots = count;
  }
  return absl::OkStatus();
}

absl::Status ParseOne(const std::string& key, absl::string_view value, SluiceParameters& result) {
  if (key == "sluice.precision") {
    SLUICE_ASSIGN_OR_RETURN(result.precision, ParsePrecision(key, value));
    return absl::OkStatus();
  }
  if (key == "sluice.slots") return ParseSlots(key, value, result);
  if (key == "sluice.default_class") {
    SLUICE_ASSIGN_OR_RETURN(result.default_class, ParseClass(key, value));
    return absl::OkStatus();
  }
  if (key == "sluice.allowed_classes") {
    SLUICE_ASSIGN_OR_RETURN(result.allowed_classes, ParseClasses(key, value));
    return absl::OkStatus();
  }
  if (key == "sluice.buckets") {
    SLUICE_ASSIGN_OR_RETURN(result.buckets, ParseBuckets(key, value));
    return absl::OkStatus();
  }
  if (key == "sluice.batch_rows") {
    SLUICE_ASSIGN_OR_RETURN(result.batch_rows, ParseBatchRows(key, value));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("config.pbtxt: unknown parameter '", key,
                                                 "'; known are sluice.allowed_classes, sluice.batch_rows, "
                                                 "sluice.buckets, sluice.default_class, sluice.precision and "
                                                 "sluice.slots"));
}

}  // namespace

absl::StatusOr<SluiceParameters> ParseSluiceParameters(const inference::ModelConfig& config) {
  SluiceParameters result;
  // By key, so that the first error does not depend on the map's hash.
  const std::map<std::string, inference::ModelParameter> sorted(config.parameters().begin(), config.parameters().end());
  for (const auto& [key, parameter] : sorted) {
    if (!absl::StartsWith(key, "sluice.")) {
      result.warnings.push_back(absl::StrCat("parameter '", key, "' changes nothing"));
      continue;
    }
    SLUICE_RETURN_IF_ERROR(ParseOne(key, absl::StripAsciiWhitespace(parameter.string_value()), result));
  }
  return result;
}

}  // namespace sluice::server
