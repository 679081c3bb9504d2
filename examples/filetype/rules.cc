// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "examples/filetype/rules.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace sluice::filetype {
namespace {

using nlohmann::json;

// Magika's types that are not text, in order. The model's config does not say which they are.
constexpr absl::string_view kBinaryLabels[] = {"3gp",       "ace",          "ai",
                                               "apk",       "applebplist",  "bmp",
                                               "bzip",      "cab",          "cat",
                                               "chm",       "coff",         "crt",
                                               "crx",       "deb",          "dex",
                                               "dicom",     "dmg",          "doc",
                                               "docx",      "dsstore",      "dwg",
                                               "elf",       "emf",          "epub",
                                               "flac",      "flv",          "gif",
                                               "gzip",      "h5",           "hlp",
                                               "icns",      "ico",          "iso",
                                               "jar",       "javabytecode", "jp2",
                                               "jpeg",      "lha",          "lnk",
                                               "macho",     "midi",         "mkv",
                                               "mp3",       "mp4",          "mscompress",
                                               "msi",       "npy",          "npz",
                                               "nupkg",     "odp",          "ods",
                                               "odt",       "ogg",          "one",
                                               "onnx",      "otf",          "outlook",
                                               "parquet",   "pcap",         "pdb",
                                               "pdf",       "pebin",        "pickle",
                                               "png",       "postscript",   "ppt",
                                               "pptx",      "psd",          "pythonbytecode",
                                               "pytorch",   "qt",           "randombytes",
                                               "rar",       "rpm",          "sevenzip",
                                               "snap",      "sqlite",       "squashfs",
                                               "stlbinary", "swf",          "tar",
                                               "tga",       "thumbsdb",     "tiff",
                                               "torrent",   "ttf",          "unknown",
                                               "wasm",      "wav",          "webm",
                                               "webp",      "wmf",          "woff",
                                               "woff2",     "xar",          "xls",
                                               "xlsb",      "xlsx",         "xpi",
                                               "xz",        "zip",          "zlibstream"};

absl::StatusOr<size_t> ReadSize(const json& document, const char* field) {
  if (!document.contains(field) || !document[field].is_number_unsigned()) {
    return absl::InvalidArgumentError(absl::StrCat("config field '", field, "': expected a whole number"));
  }
  return document[field].get<size_t>();
}

absl::StatusOr<const json*> ReadMember(const json& document, const char* field, json::value_t type) {
  if (!document.contains(field) || document[field].type() != type) {
    return absl::InvalidArgumentError(absl::StrCat("config field '", field, "': missing or of another kind"));
  }
  return &document[field];
}

absl::Status ReadTables(const json& document, Rules& rules) {
  SLUICE_ASSIGN_OR_RETURN(const json* labels, ReadMember(document, "target_labels_space", json::value_t::array));
  for (const json& label : *labels) {
    if (!label.is_string())
      return absl::InvalidArgumentError("config field 'target_labels_space': not all are strings");
    rules.labels.push_back(label.get<std::string>());
  }
  SLUICE_ASSIGN_OR_RETURN(const json* thresholds, ReadMember(document, "thresholds", json::value_t::object));
  for (const auto& [label, value] : thresholds->items()) {
    if (!value.is_number()) return absl::InvalidArgumentError("config field 'thresholds': not all are numbers");
    rules.thresholds[label] = value.get<double>();
  }
  SLUICE_ASSIGN_OR_RETURN(const json* overwrite, ReadMember(document, "overwrite_map", json::value_t::object));
  for (const auto& [label, value] : overwrite->items()) {
    if (!value.is_string()) return absl::InvalidArgumentError("config field 'overwrite_map': not all are strings");
    rules.overwrite[label] = value.get<std::string>();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Rules> ParseRules(absl::string_view json_text) {
  const json document = json::parse(json_text.begin(), json_text.end(), nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return absl::InvalidArgumentError("the config is not a JSON object");
  Rules rules;
  SLUICE_ASSIGN_OR_RETURN(rules.begin_size, ReadSize(document, "beg_size"));
  SLUICE_ASSIGN_OR_RETURN(rules.end_size, ReadSize(document, "end_size"));
  SLUICE_ASSIGN_OR_RETURN(rules.block_size, ReadSize(document, "block_size"));
  SLUICE_ASSIGN_OR_RETURN(rules.min_size, ReadSize(document, "min_file_size_for_dl"));
  SLUICE_ASSIGN_OR_RETURN(const size_t padding, ReadSize(document, "padding_token"));
  SLUICE_ASSIGN_OR_RETURN(const size_t mid_size, ReadSize(document, "mid_size"));
  SLUICE_ASSIGN_OR_RETURN(const json* threshold,
                          ReadMember(document, "medium_confidence_threshold", json::value_t::number_float));
  rules.padding = static_cast<int32_t>(padding);
  rules.default_threshold = threshold->get<double>();
  if (mid_size != 0 || (document.contains("use_inputs_at_offsets") && document["use_inputs_at_offsets"] != false)) {
    return absl::InvalidArgumentError("config fields 'mid_size', 'use_inputs_at_offsets': not supported");
  }
  if (rules.begin_size >= rules.block_size || rules.end_size >= rules.block_size || rules.min_size < 1 ||
      rules.min_size > rules.begin_size || rules.block_size > 1 << 20) {
    return absl::InvalidArgumentError(
        "config fields 'beg_size', 'end_size', 'min_file_size_for_dl', 'block_size': unfit");
  }
  SLUICE_RETURN_IF_ERROR(ReadTables(document, rules));
  if (rules.labels.empty()) return absl::InvalidArgumentError("config field 'target_labels_space': is empty");
  return rules;
}

bool IsText(absl::string_view label) {
  return !std::binary_search(std::begin(kBinaryLabels), std::end(kBinaryLabels), label);
}

Verdict JudgeScores(const Rules& rules, std::span<const float> scores) {
  const auto best = static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  Verdict verdict;
  verdict.label = rules.labels[best];
  verdict.score = static_cast<double>(scores[best]);
  const auto overwritten = rules.overwrite.find(verdict.label);
  verdict.type = overwritten == rules.overwrite.end() ? verdict.label : overwritten->second;
  const auto threshold = rules.thresholds.find(verdict.label);
  if (verdict.score < (threshold == rules.thresholds.end() ? rules.default_threshold : threshold->second)) {
    verdict.type = IsText(verdict.type) ? "txt" : "unknown";
  }
  return verdict;
}

}  // namespace sluice::filetype
