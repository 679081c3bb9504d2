// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/bad_input.h"

namespace sluice::testing {
namespace {

using Request = inference::ModelInferRequest;
using grpc::StatusCode;

BadInput Model(std::string what, const std::string& name, const std::string& shown) {
  return Spoilt(
      std::move(what), [&](Request& r) { r.set_model_name(name); }, {"unknown model", shown}, StatusCode::NOT_FOUND);
}

BadInput Version(std::string what, const std::string& version, std::vector<std::string> words,
                 StatusCode code = StatusCode::INVALID_ARGUMENT) {
  return Spoilt(
      std::move(what), [&](Request& r) { r.set_model_version(version); }, std::move(words), code);
}

BadInput InputName(std::string what, const std::string& name, std::vector<std::string> words) {
  return Spoilt(
      std::move(what), [&](Request& r) { r.mutable_inputs(0)->set_name(name); }, std::move(words));
}

BadInput Outputs(std::string what, const std::vector<std::string>& names, std::vector<std::string> words) {
  return Spoilt(
      std::move(what),
      [&](Request& r) {
        for (const std::string& name : names) r.add_outputs()->set_name(name);
      },
      std::move(words));
}

/// An error whose message must carry the request's id, as far as that can be shown.
BadInput Id(std::string what, const std::string& id, const std::string& shown) {
  return Spoilt(
      std::move(what),
      [&](Request& r) {
        r.set_id(id);
        r.set_model_name("nobody");
      },
      {shown, "unknown model 'nobody'"}, StatusCode::NOT_FOUND);
}

void AddInput(Request& request, const std::string& name) {
  *request.add_inputs() = request.inputs(0);
  request.mutable_inputs(request.inputs_size() - 1)->set_name(name);
  request.add_raw_input_contents(request.raw_input_contents(0));
}

}  // namespace

BadInputs BadNames() {
  return {
      Model("unknown model", "nobody", "'nobody'"),
      Model("no model name", "", "''"),
      Model("long model name", std::string(4096, 'm'), "mmm..."),
      Spoilt("model name over the bound", [](Request& r) { r.set_model_name(std::string(4097, 'm')); },
             {"model_name: expected at most 4096 bytes", "got 4097"}),
      Model("path as model name", "../double", "'../double'"),
      Model("absolute path as model name", "/etc/passwd", "'/etc/passwd'"),
      Model("name of another case", "Double", "'Double'"),
      Model("name with a space behind it", "double ", "'double '"),
      Model("NUL in model name", std::string("do\0uble", 7), "do\\x00uble"),
      Model("quote in model name", "do\"uble", "do\\\"uble"),
      Model("line break in model name", "double\nlevel=info", "double\\nlevel=info"),
      Model("colour codes in model name", "\x1b[31mred", "\\x1b[31mred"),
      Version("unknown version", "2", {"unknown model 'double' version 2"}, StatusCode::NOT_FOUND),
      Version("version 0", "0", {"unknown model 'double' version 0"}, StatusCode::NOT_FOUND),
      Version("largest version", "9223372036854775807", {"version 9223372036854775807"}, StatusCode::NOT_FOUND),
      Version("version is a word", "new", {"model_version", "number", "'new'"}),
      Version("negative version", "-1", {"model_version", "'-1'"}),
      Version("version that does not fit", "9223372036854775808", {"model_version", "9223372036854775808"}),
      Version("version with a tail", "1x", {"model_version", "'1x'"}),
      Version("version with a fraction", "1.0", {"model_version", "'1.0'"}),
      Version("version in hexadecimal", "0x1", {"model_version", "'0x1'"}),
      Version("long version", std::string(4096, '1'), {"model_version", "111..."}),
      InputName("unknown input", "y", {"unknown input 'y'", "expected 'x'"}),
      InputName("no input name", "", {"unknown input ''", "expected 'x'"}),
      InputName("input name of another case", "X", {"unknown input 'X'"}),
      InputName("input name goes on after a NUL", std::string("x\0y", 3), {"unknown input"}),
      InputName("input name at the bound", std::string(4096, 'x'), {"unknown input 'xxx", "..."}),
      InputName("input name of a megabyte", std::string(1'000'000, 'x'),
                {"expected at most 4096 bytes", "got 1000000"}),
      Spoilt("no input",
             [](Request& r) {
               r.clear_inputs();
               r.clear_raw_input_contents();
             },
             {"expected 1 inputs", "got none", "missing 'x'"}),
      Spoilt("one input of two",
             [](Request& r) {
               r.set_model_name("sum");
               r.mutable_inputs(0)->set_name("a");
             },
             {"expected 2 inputs", "got 'a'", "missing 'b'"}),
      Spoilt("input twice", [](Request& r) { AddInput(r, "x"); }, {"input 'x' is given more than once"}),
      Spoilt("extra input", [](Request& r) { AddInput(r, "z"); }, {"unknown input 'z'", "got 'x', 'z'"}),
      Spoilt("too many names to list",
             [](Request& r) {
               for (int i = 0; i < 500; ++i) AddInput(r, "z" + std::to_string(i));
             },
             {"unknown input 'z0'", "more"}),
      Outputs("unknown output", {"logits"}, {"unknown output 'logits'", "'y'"}),
      Outputs("no output name", {""}, {"unknown output ''"}),
      Outputs("an input as output", {"x"}, {"unknown output 'x'"}),
      Outputs("output twice", {"y", "y"}, {"output 'y' is asked for more than once"}),
      Outputs("right and wrong output", {"y", "z"}, {"unknown output 'z'"}),
      Id("id", "number 7", "[request id: number 7]"),
      Id("id with a line break", "a\nb", "[request id: a\\nb]"),
      Id("long id", std::string(4096, 'i'), "iii...]"),
      Spoilt("id over the bound", [](Request& r) { r.set_id(std::string(4097, 'i')); },
             {"id: expected at most 4096 bytes", "got 4097"}),
  };
}

}  // namespace sluice::testing
