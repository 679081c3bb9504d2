// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/repository/config_pbtxt.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::server {
namespace {

class ErrorCollector final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    constexpr size_t kMaxErrors = 3;
    if (errors_.size() >= kMaxErrors) return;
    // The parser counts from 0, and gives -1 for the file as a whole.
    errors_.push_back(line < 0 ? absl::StrCat("config.pbtxt: ", message)
                               : absl::StrCat("config.pbtxt:", line + 1, ":", column + 1, ": ", message));
  }
  std::string text() const { return absl::StrJoin(errors_, "; "); }

 private:
  std::vector<std::string> errors_;
};

}  // namespace

absl::StatusOr<ParsedConfig> ParseConfigText(absl::string_view text) {
  if (text.size() > kMaxConfigBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.pbtxt: ", text.size(), " bytes; at most ", kMaxConfigBytes, " are read"));
  }
  ErrorCollector errors;
  google::protobuf::TextFormat::ParseInfoTree locations;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&locations);
  parser.SetRecursionLimit(32);
  ParsedConfig parsed;
  if (!parser.ParseFromString(std::string(text), &parsed.config)) {
    return absl::InvalidArgumentError(errors.text());
  }
  // Text may escape any byte; clients that are sent the config could not read it. Protobuf checks when it parses.
  if (!inference::ModelConfig().ParseFromString(parsed.config.SerializeAsString())) {
    return absl::InvalidArgumentError("config.pbtxt: a string is not valid UTF-8");
  }
  const google::protobuf::FieldDescriptor* field =
      inference::ModelConfig::descriptor()->FindFieldByNumber(inference::ModelConfig::kMaxBatchSizeFieldNumber);
  parsed.has_max_batch_size = locations.GetLocation(field, -1).line >= 0;
  return parsed;
}

absl::StatusOr<ParsedConfig> ParseConfigJson(absl::string_view json) {
  const google::protobuf::StringPiece text(json.data(), json.size());
  ParsedConfig parsed;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &parsed.config);
  if (!status.ok())
    return absl::InvalidArgumentError(absl::StrCat("parameter 'config': ", std::string(status.message())));
  // The message does not tell a written 0 from none.
  google::protobuf::Struct fields;
  if (google::protobuf::util::JsonStringToMessage(text, &fields).ok()) {
    parsed.has_max_batch_size = fields.fields().contains("max_batch_size") || fields.fields().contains("maxBatchSize");
  }
  return parsed;
}

}  // namespace sluice::server
