// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "absl/strings/str_cat.h"
#include "tests/integration/bad_input.h"

namespace sluice::testing {
namespace {

using Request = inference::ModelInferRequest;
using Contents = inference::InferTensorContents;
using Words = std::vector<std::string>;

struct ContentsField {
  const char* name;
  void (*add)(Contents&);
};

constexpr ContentsField kFields[] = {
    {"bool_contents", [](Contents& c) { c.add_bool_contents(true); }},
    {"int_contents", [](Contents& c) { c.add_int_contents(1); }},
    {"int64_contents", [](Contents& c) { c.add_int64_contents(1); }},
    {"uint_contents", [](Contents& c) { c.add_uint_contents(1); }},
    {"uint64_contents", [](Contents& c) { c.add_uint64_contents(1); }},
    {"fp32_contents", [](Contents& c) { c.add_fp32_contents(1); }},
    {"fp64_contents", [](Contents& c) { c.add_fp64_contents(1); }},
    {"bytes_contents", [](Contents& c) { c.add_bytes_contents("1"); }},
};

struct TypedModel {
  const char* datatype;
  const char* field;  ///< The one that carries it; nothing for FP16, which has none.
};

constexpr TypedModel kModels[] = {
    {"BOOL", "bool_contents"},   {"INT8", "int_contents"}, {"UINT8", "uint_contents"}, {"INT32", "int_contents"},
    {"INT64", "int64_contents"}, {"FP16", nullptr},        {"FP32", "fp32_contents"},  {"FP64", "fp64_contents"},
};

/// To the model whose input x [N,4] is of this type, with typed contents.
BadInput Typed(std::string what, const std::string& datatype, const std::function<void(Contents&)>& fill, Words words) {
  words.push_back("input 'x'");
  return Spoilt(
      std::move(what),
      [&](Request& r) {
        r.set_model_name("of_" + datatype);
        r.clear_raw_input_contents();
        r.mutable_inputs(0)->set_datatype(datatype);
        fill(*r.mutable_inputs(0)->mutable_contents());
      },
      std::move(words));
}

std::function<void(Contents&)> Times(int count, const ContentsField& field) {
  return [count, add = field.add](Contents& contents) {
    for (int i = 0; i < count; ++i) add(contents);
  };
}

/// Every field against every type that it does not carry, alone and beside the right one; every count that is not 4.
void AddFieldsOfEveryType(BadInputs& rows) {
  for (const TypedModel& model : kModels) {
    for (const ContentsField& field : kFields) {
      const std::string name = absl::StrCat(model.datatype, " in ", field.name);
      if (model.field == nullptr) {
        rows.push_back(Typed(name, model.datatype, Times(4, field), {"FP16 has no field in contents"}));
      } else if (model.field != std::string(field.name)) {
        const Words words = {absl::StrCat("expected only ", model.field), absl::StrCat("elements in ", field.name)};
        rows.push_back(Typed(name, model.datatype, Times(4, field), words));
      } else {
        for (const int count : {0, 3, 5}) {
          rows.push_back(Typed(absl::StrCat(count, " times ", name), model.datatype, Times(count, field),
                               {absl::StrCat("expected 4 elements in ", field.name, ", got ", count)}));
        }
      }
    }
  }
}

BadInput Range(const std::string& datatype, int64_t value) {
  const auto fill = [&](Contents& contents) {
    for (int i = 0; i < 4; ++i) {
      if (datatype[0] == 'U') {
        contents.add_uint_contents(static_cast<uint32_t>(i == 3 ? value : 0));
      } else {
        contents.add_int_contents(static_cast<int32_t>(i == 3 ? value : 0));
      }
    }
  };
  return Typed(absl::StrCat(value, " as ", datatype), datatype, fill,
               {absl::StrCat("value ", value), absl::StrCat("does not fit ", datatype)});
}

}  // namespace

BadInputs BadContents() {
  BadInputs rows = {
      Range("INT8", 128),
      Range("INT8", -129),
      Range("INT8", INT32_MAX),
      Range("INT8", INT32_MIN),
      Range("UINT8", 256),
      Range("UINT8", UINT32_MAX),
      Typed("the right field and another", "FP32",
            [](Contents& c) {
              for (int i = 0; i < 4; ++i) c.add_fp32_contents(1);
              c.add_int64_contents(1);
            },
            {"expected only fp32_contents", "elements in int64_contents"}),
      Typed("a million elements", "BOOL", [](Contents& c) { c.mutable_bool_contents()->Resize(1'000'000, true); },
            {"expected 4 elements in bool_contents, got 1000000"}),
      Spoilt("raw and typed", [](Request& r) { r.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1); },
             {"input 'x'", "contents while raw_input_contents is not empty"}),
      Spoilt("raw and empty contents", [](Request& r) { r.mutable_inputs(0)->mutable_contents(); },
             {"input 'x'", "contents while raw_input_contents is not empty"}),
      Spoilt("one input raw, one typed",
             [](Request& r) {
               r.set_model_name("sum");
               *r.add_inputs() = r.inputs(0);
               r.mutable_inputs(0)->set_name("a");
               r.mutable_inputs(1)->set_name("b");
               for (int i = 0; i < 4; ++i) r.mutable_inputs(1)->mutable_contents()->add_fp32_contents(1);
             },
             {"input 'b'", "contents while raw_input_contents is not empty"}),
      Spoilt("one input typed, one without data",
             [](Request& r) {
               r.set_model_name("sum");
               r.clear_raw_input_contents();
               *r.add_inputs() = r.inputs(0);
               r.mutable_inputs(0)->set_name("a");
               r.mutable_inputs(1)->set_name("b");
               for (int i = 0; i < 4; ++i) r.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
             },
             {"input 'b': has no data in raw_input_contents or contents"}),
  };
  AddFieldsOfEveryType(rows);
  return rows;
}

}  // namespace sluice::testing
