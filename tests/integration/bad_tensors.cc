// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/integration/bad_input.h"

namespace sluice::testing {
namespace {

using Request = inference::ModelInferRequest;
using Words = std::vector<std::string>;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

void SetShape(inference::ModelInferRequest::InferInputTensor& input, const std::vector<int64_t>& shape) {
  input.mutable_shape()->Assign(shape.begin(), shape.end());
}

BadInput Type(std::string what, const std::string& datatype, Words words) {
  words.push_back("input 'x': expected datatype FP32");
  return Spoilt(
      std::move(what), [&](Request& r) { r.mutable_inputs(0)->set_datatype(datatype); }, std::move(words));
}

BadInput Dimensions(std::string what, const std::vector<int64_t>& shape, Words words) {
  words.push_back("input 'x'");
  return Spoilt(
      std::move(what), [&](Request& r) { SetShape(*r.mutable_inputs(0), shape); }, std::move(words));
}

BadInput Raw(std::string what, const std::vector<std::string>& entries, Words words) {
  return Spoilt(
      std::move(what),
      [&](Request& r) {
        r.clear_raw_input_contents();
        for (const std::string& entry : entries) r.add_raw_input_contents(entry);
      },
      std::move(words));
}

/// To model "sum", whose inputs a and b must agree.
BadInput Sum(std::string what, const std::vector<int64_t>& a, const std::vector<int64_t>& b,
             const std::vector<size_t>& bytes, Words words) {
  return Spoilt(
      std::move(what),
      [&](Request& r) {
        r.set_model_name("sum");
        *r.add_inputs() = r.inputs(0);
        r.mutable_inputs(0)->set_name("a");
        r.mutable_inputs(1)->set_name("b");
        SetShape(*r.mutable_inputs(0), a);
        SetShape(*r.mutable_inputs(1), b);
        r.clear_raw_input_contents();
        for (const size_t size : bytes) r.add_raw_input_contents(std::string(size, '\0'));
      },
      std::move(words));
}

}  // namespace

BadInputs BadTensors() {
  return {
      Type("another type", "INT32", {"got INT32"}),
      Type("a type of the same size", "UINT32", {"got UINT32"}),
      Type("bytes", "BYTES", {"got BYTES"}),
      Type("unknown type", "FLOAT", {"got 'FLOAT'"}),
      Type("type of config.pbtxt", "TYPE_FP32", {"got 'TYPE_FP32'"}),
      Type("type in small letters", "fp32", {"got 'fp32'"}),
      Type("no type", "", {"got ''"}),
      Type("long type", std::string(4096, 'F'), {"FFF...'"}),
      Type("type goes on after a NUL", std::string("FP32\0", 5), {"FP32\\000"}),
      Dimensions("no shape", {}, {"expected shape [-1,4]", "got []"}),
      Dimensions("one dimension", {4}, {"expected shape [-1,4]", "got [4]"}),
      Dimensions("three dimensions", {1, 4, 1}, {"expected shape [-1,4]", "got [1,4,1]"}),
      Dimensions("33 dimensions", std::vector<int64_t>(33, 1), {"expected shape [-1,4]"}),
      Dimensions("64 dimensions", std::vector<int64_t>(64, 1), {"expected shape [-1,4]"}),
      Spoilt("65 dimensions", [](Request& r) { SetShape(*r.mutable_inputs(0), std::vector<int64_t>(65, 1)); },
             {"more than 64 dimensions"}),
      Spoilt("a million dimensions",
             [](Request& r) { SetShape(*r.mutable_inputs(0), std::vector<int64_t>(1'000'000, 1)); },
             {"more than 64 dimensions"}),
      Dimensions("wrong dimension", {1, 5}, {"got [1,5]"}),
      Dimensions("dimensions swapped", {4, 1}, {"got [4,1]"}),
      Dimensions("open dimension", {1, -1}, {"0 or more", "[1,-1]"}),
      Dimensions("open batch", {-1, 4}, {"0 or more", "[-1,4]"}),
      Dimensions("two negative dimensions", {-1, -4}, {"0 or more", "[-1,-4]"}),
      Dimensions("smallest dimension", {kMin, 4}, {"0 or more"}),
      Dimensions("no rows", {0, 4}, {"batch size of 1 to 8", "got 0"}),
      Dimensions("no columns", {1, 0}, {"got [1,0]"}),
      Dimensions("a row too many", {9, 4}, {"batch size of 1 to 8", "got 9"}),
      Dimensions("2^31 rows", {int64_t{1} << 31, 4}, {"batch size of 1 to 8", "got 2147483648"}),
      Dimensions("product that overflows", {kMax, 4}, {"too many elements"}),
      Dimensions("product that overflows to 0", {int64_t{1} << 62, 4}, {"too many elements"}),
      Dimensions("product that overflows to the right size", {(int64_t{1} << 62) + 1, 4}, {"too many elements"}),
      Dimensions("product that overflows slowly", {65536, 65536, 65536, 65536}, {"too many elements"}),
      Dimensions("product that a 0 hides", {kMax, kMax, 0}, {"too many elements"}),
      Dimensions("elements that fit, bytes that do not", {kMax / 4, 4}, {"batch size of 1 to 8"}),
      Raw("3 bytes", {"abc"}, {"input 'x': expected 16 bytes for shape [1,4] of FP32, got 3"}),
      Raw("a byte too few", {std::string(15, 'a')}, {"input 'x': expected 16 bytes", "got 15"}),
      Raw("a byte too many", {std::string(17, 'a')}, {"input 'x': expected 16 bytes", "got 17"}),
      Raw("twice the bytes", {std::string(32, 'a')}, {"input 'x': expected 16 bytes", "got 32"}),
      Raw("an empty entry", {""}, {"input 'x': expected 16 bytes", "got 0"}),
      Raw("no data at all", {}, {"input 'x': has no data"}),
      Raw("an entry too many", {std::string(16, 'a'), "more"}, {"expected 1 entries in raw_input_contents", "got 2"}),
      Raw("an empty entry too many", {std::string(16, 'a'), ""}, {"expected 1 entries", "got 2"}),
      Raw("1,024 entries", std::vector<std::string>(1024), {"expected 1 entries", "got 1024"}),
      Raw("1,025 entries", std::vector<std::string>(1025), {"more than 1024 entries in raw_input_contents"}),
      Spoilt("1,025 inputs",
             [](Request& r) {
               for (int i = 0; i < 1024; ++i) r.add_inputs();
             },
             {"more than 1024 inputs"}),
      Spoilt("1,025 outputs",
             [](Request& r) {
               for (int i = 0; i < 1025; ++i) r.add_outputs();
             },
             {"more than 1024 outputs"}),
      Sum("batches that differ", {1, 4}, {2, 4}, {16, 32},
          {"input 'b': expected batch size 1 as input 'a' has, got 2"}),
      Sum("one batch is 0", {1, 4}, {0, 4}, {16, 0}, {"input 'b'", "got 0"}),
      Sum("both batches too large", {9, 4}, {9, 4}, {144, 144}, {"batch size of 1 to 8", "got 9"}),
      Sum("a raw entry too few", {1, 4}, {1, 4}, {16}, {"expected 2 entries in raw_input_contents", "got 1"}),
      Sum("bytes of the other input", {1, 4}, {1, 4}, {0, 32}, {"input 'a': expected 16 bytes", "got 0"}),
      Sum("second input is wrong", {2, 4}, {2, 4}, {32, 16}, {"input 'b': expected 32 bytes", "got 16"}),
      Sum("second shape is wrong", {1, 4}, {1, 3}, {16, 12}, {"input 'b': expected shape [-1,4], got [1,3]"}),
  };
}

}  // namespace sluice::testing
