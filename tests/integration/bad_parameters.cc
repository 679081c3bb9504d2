// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/integration/bad_input.h"

namespace sluice::testing {
namespace {

using Parameter = inference::InferParameter;
using Request = inference::ModelInferRequest;
using Words = std::vector<std::string>;
using grpc::StatusCode;

enum class Place { kRequest, kInput, kOutput };

struct Kind {
  const char* name;
  void (*set)(Parameter&);
};

/// The values are ones that no parameter takes as neutral.
constexpr Kind kKinds[] = {
    {"no value", [](Parameter&) {}},
    {"bool", [](Parameter& p) { p.set_bool_param(true); }},
    {"int64", [](Parameter& p) { p.set_int64_param(1); }},
    {"string", [](Parameter& p) { p.set_string_param("1"); }},
    {"double", [](Parameter& p) { p.set_double_param(1); }},
    {"uint64", [](Parameter& p) { p.set_uint64_param(1); }},
};

BadInput With(std::string what, Place place, const std::string& key, const std::function<void(Parameter&)>& set,
              Words words, StatusCode code = StatusCode::INVALID_ARGUMENT) {
  return Spoilt(
      std::move(what),
      [&](Request& r) {
        if (place == Place::kOutput) r.add_outputs()->set_name("y");
        auto& parameters = place == Place::kRequest ? *r.mutable_parameters()
                           : place == Place::kInput ? *r.mutable_inputs(0)->mutable_parameters()
                                                    : *r.mutable_outputs(0)->mutable_parameters();
        set(parameters[key]);
      },
      std::move(words), code);
}

BadInput Number(std::string what, const std::string& key, int64_t value, Words words,
                StatusCode code = StatusCode::INVALID_ARGUMENT) {
  return With(
      std::move(what), Place::kRequest, key, [value](Parameter& p) { p.set_int64_param(value); }, std::move(words),
      code);
}

/// One row for each kind that the request's parameter `key` does not take.
void AddWrongKinds(BadInputs& rows, const std::string& key, const Words& right) {
  for (const Kind& kind : kKinds) {
    if (std::find(right.begin(), right.end(), kind.name) != right.end()) continue;
    rows.push_back(With(absl::StrCat(key, ": ", kind.name), Place::kRequest, key, kind.set,
                        {absl::StrCat("parameter '", key, "': expected ", right[0]), absl::StrCat("got ", kind.name)}));
  }
}

/// One row for each kind at all: the parameter is not taken, whatever it says.
void AddEveryKind(BadInputs& rows, Place place, const std::string& key, const std::string& word, StatusCode code) {
  const char* const where = place == Place::kRequest ? "" : place == Place::kInput ? "input 'x': " : "output 'y': ";
  for (const Kind& kind : kKinds) {
    rows.push_back(With(absl::StrCat(where, key, ": ", kind.name), place, key, kind.set,
                        {absl::StrCat(where, "parameter '", key, "'"), word}, code));
  }
}

}  // namespace

BadInputs BadParameters() {
  BadInputs rows = {
      Number("priority below 0", "priority", -1, {"'priority': expected 0 or more, got -1"}),
      Number("smallest priority", "priority", INT64_MIN, {"'priority': expected 0 or more, got -9223372036854775808"}),
      Number("timeout below 0", "timeout", -5, {"'timeout': expected 0 or more microseconds, got -5"}),
      Number("smallest timeout", "timeout", INT64_MIN, {"'timeout': expected 0 or more microseconds"}),
      Number("a sequence", "sequence_id", 7, {"'sequence_id': sequences are not served"}, StatusCode::UNIMPLEMENTED),
      With(
          "a sequence by name", Place::kRequest, "sequence_id", [](Parameter& p) { p.set_string_param("s"); },
          {"'sequence_id': sequences are not served"}, StatusCode::UNIMPLEMENTED),
      With(
          "start of a sequence", Place::kRequest, "sequence_start", [](Parameter& p) { p.set_bool_param(true); },
          {"'sequence_start': sequences are not served"}, StatusCode::UNIMPLEMENTED),
      With(
          "end of a sequence", Place::kRequest, "sequence_end", [](Parameter& p) { p.set_bool_param(true); },
          {"'sequence_end': sequences are not served"}, StatusCode::UNIMPLEMENTED),
      Number("reserved name", "headers", 1, {"'headers': the name is reserved"}),
      Number("another reserved name", "binary_data_output", 1, {"'binary_data_output': the name is reserved"}),
      Number("the response's own flag", "triton_final_response", 1, {"'triton_final_response' is not known"}),
      Number("the response's own class", "sluice_class", 1, {"'sluice_class' is not known"}),
      Number("long name", "triton_" + std::string(4000, 'n'), 1, {"nnn...' is not known"}),
      Number("line break in a name", "triton_a\nb", 1, {"'triton_a\\nb' is not known"}),
      Spoilt("257 parameters",
             [](Request& r) {
               for (int i = 0; i < 257; ++i) (*r.mutable_parameters())[absl::StrCat(i)].set_bool_param(true);
             },
             {"more than 256 parameters"}),
      Spoilt("257 parameters of an input",
             [](Request& r) {
               auto& parameters = *r.mutable_inputs(0)->mutable_parameters();
               for (int i = 0; i < 257; ++i) parameters[absl::StrCat(i)].set_bool_param(true);
             },
             {"more than 256 parameters"}),
      Spoilt("one right, one wrong",
             [](Request& r) {
               (*r.mutable_parameters())["priority"].set_uint64_param(1);
               (*r.mutable_parameters())["timeout"].set_string_param("1s");
             },
             {"parameter 'timeout': expected int64 (microseconds), got string"}),
  };
  AddWrongKinds(rows, "priority", {"int64 or uint64", "int64", "uint64"});
  AddWrongKinds(rows, "timeout", {"int64 (microseconds)", "int64"});
  AddWrongKinds(rows, "sequence_id", {"int64 or string", "int64", "string"});
  for (const char* flag : {"sequence_start", "sequence_end", "triton_enable_empty_final_response", "sluice_timings"}) {
    AddWrongKinds(rows, flag, {"bool"});
  }
  AddWrongKinds(rows, "mine", {"bool, int64, string or double", "bool", "int64", "string", "double"});
  for (const Place place : {Place::kRequest, Place::kInput, Place::kOutput}) {
    AddEveryKind(rows, place, "triton_speed", "is not known", StatusCode::INVALID_ARGUMENT);
  }
  for (const Place place : {Place::kInput, Place::kOutput}) {
    for (const char* key : {"shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"}) {
      AddEveryKind(rows, place, key, "shared memory is not served", StatusCode::UNIMPLEMENTED);
    }
  }
  AddEveryKind(rows, Place::kOutput, "classification", "is not served", StatusCode::UNIMPLEMENTED);
  return rows;
}

}  // namespace sluice::testing
