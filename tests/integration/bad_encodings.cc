// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/bad_input.h"

namespace sluice::testing {
namespace {

using grpc::StatusCode;
using Words = std::vector<std::string>;

constexpr char kNotValid[] = "not a valid ModelInferRequest: malformed ";

/// Bytes that are no message of the protocol; `field` is where reading ends.
BadInput Malformed(std::string what, std::string bytes, const std::string& field) {
  return {.what = std::move(what), .message = std::move(bytes), .words = {kNotValid + field}};
}

/// A right request and, behind it, bytes that spoil it.
BadInput Behind(std::string what, const std::string& bytes, const std::string& field) {
  return Malformed(std::move(what), GoodRequest().SerializeAsString() + bytes, field);
}

/// Well-formed, but it means something else than a right request.
BadInput Means(std::string what, std::string bytes, Words words, StatusCode code = StatusCode::INVALID_ARGUMENT) {
  return {.what = std::move(what), .message = std::move(bytes), .code = code, .words = std::move(words)};
}

std::string Repeated(const std::string& bytes, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += bytes;
  return all;
}

/// Field `tag` with this content.
std::string Nested(char tag, const std::string& content) {
  std::string out(1, tag);
  size_t size = content.size();
  for (; size >= 0x80; size >>= 7) out += static_cast<char>(size | 0x80);
  return out + static_cast<char>(size) + content;
}

// Tags of ModelInferRequest, all length-delimited, and of the messages in it.
constexpr char kName = '\x0a', kVersion = '\x12', kId = '\x1a', kParameters = '\x22', kInputs = '\x2a',
               kOutputs = '\x32', kRaw = '\x3a';
constexpr char kInputShape = '\x1a', kInputParameters = '\x22', kInputContents = '\x2a';

std::string Bytes(const char* text, size_t size) { return std::string(text, size); }

}  // namespace

BadInputs BadEncodings() {
  const std::string good = GoodRequest().SerializeAsString();
  BadInputs rows = {
      Malformed("one byte that promises more", "\xff", "tag"),
      Malformed("random text", "GET / HTTP/1.1\r\n\r\n", ""),
      Malformed("field number 0", Bytes("\0", 1), "field"),
      Malformed("field number 0 with a value", Bytes("\x02\x01x", 3), "field"),
      Malformed("tag of six bytes", Bytes("\x8a\x80\x80\x80\x80\x00\x01m", 8), "tag"),
      Malformed("tag that never ends", std::string(100, '\xff'), "tag"),
      Malformed("length of six bytes", Bytes("\x0a\x81\x80\x80\x80\x80\x00m", 8), "model_name"),
      Malformed("length near 2 GiB", "\x0a\xff\xff\xff\xff\x07", "model_name"),
      Malformed("length near 4 GiB", "\x0a\xff\xff\xff\xff\x0f", "model_name"),
      Malformed("length that is negative", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "model_name"),
      Malformed("length a byte too long",
                Bytes("\x0a\x03"
                      "ab",
                      4),
                "model_name"),
      Malformed("wire type 6", "\x0e", "field"),
      Malformed("wire type 7", "\x0f", "field"),
      Malformed("end of a group that never began", "\x0c", "field"),
      Malformed("group that never ends", "\x0b", "field"),
      Malformed("a thousand groups", std::string(1000, '\x0b'), "field"),
      Malformed("a megabyte of groups", std::string(1'000'000, '\x0b'), "field"),
      Malformed("group that another one ends", "\x0b\x14", "field"),
      Malformed("101 groups that all end", std::string(101, '\x7b') + std::string(101, '\x7c'), "field"),
      Behind("unknown varint of 11 bytes", "\x78\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "field"),
      Behind("unknown varint without an end", "\x78\x80", "field"),
      Behind("unknown fixed64 of 7 bytes",
             "\x79"
             "1234567",
             "field"),
      Behind("unknown fixed32 of 3 bytes",
             "\x7d"
             "123",
             "field"),
      Behind("unknown string that is cut",
             "\x7a\x05"
             "1234",
             "field"),
      Behind("model name is no UTF-8", Nested(kName, "\xc3\x28"), "model_name"),
      Behind("model name with a lone surrogate", Nested(kName, "\xed\xa0\x80"), "model_name"),
      Behind("model name with an overlong slash", Nested(kName, "\xc0\xaf"), "model_name"),
      Behind("model name above the last character", Nested(kName, "\xf4\x90\x80\x80"), "model_name"),
      Behind("model name ends inside a character", Nested(kName, "double\xe2\x82"), "model_name"),
      Behind("model version is no UTF-8", Nested(kVersion, "\xff"), "model_version"),
      Behind("id is no UTF-8", Nested(kId, "\xfe"), "id"),
      Behind("parameter key is no UTF-8", Nested(kParameters, Nested(kName, "\xff")), "parameters"),
      Behind("string parameter is no UTF-8", Nested(kParameters, Nested('\x12', Nested('\x1a', "\xff"))), "parameters"),
      Behind("parameter is cut", "\x22\x04\x0a\x01k", "parameters"),
      Behind("parameter's double is cut",
             Nested(kParameters, Nested('\x12',
                                        "\x21"
                                        "1234567")),
             "parameters"),
      Behind("input name is no UTF-8", Nested(kInputs, Nested(kName, "\xff")), "inputs.name"),
      Behind("data type is no UTF-8", Nested(kInputs, Nested(kVersion, "\xff")), "inputs.datatype"),
      Behind("packed shape is cut", Nested(kInputs, Nested(kInputShape, "\x01\x80")), "shape"),
      Behind("shape of 11 bytes", Nested(kInputs, "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "shape"),
      Behind("input parameter is cut", Nested(kInputs, "\x22\x05\x0a"), "parameters"),
      Behind("packed floats of 3 bytes", Nested(kInputs, Nested(kInputContents, Nested('\x32', "123"))),
             "inputs.contents"),
      Behind("packed doubles of 9 bytes", Nested(kInputs, Nested(kInputContents, Nested('\x3a', "123456789"))),
             "inputs.contents"),
      Behind("packed integers are cut", Nested(kInputs, Nested(kInputContents, Nested('\x12', "\x80"))),
             "inputs.contents"),
      Behind("bytes element is cut", Nested(kInputs, Nested(kInputContents, "\x42\x7f")), "inputs.contents"),
      Behind("output name is no UTF-8", Nested(kOutputs, Nested(kName, "\xff")), "outputs.name"),
      Behind("output with wire type 7", Nested(kOutputs, "\x0f"), "outputs"),
      Behind("input longer than the message", "\x2a\x7f", "inputs or outputs"),
      Behind("raw entry longer than the message", "\x3a\x7f", "raw_input_contents"),
      Malformed("message twice, cut", good + good.substr(0, good.size() - 1), ""),
      Means("no bytes at all", "", {"unknown model ''"}, StatusCode::NOT_FOUND),
      Means("unknown fields only", Bytes("\x78\x01\x7a\x01x", 5), {"unknown model ''"}, StatusCode::NOT_FOUND),
      Means("model name as a number", Bytes("\x08\x01", 2), {"unknown model ''"}, StatusCode::NOT_FOUND),
      Means("model name as a group", "\x0b\x0c", {"unknown model ''"}, StatusCode::NOT_FOUND),
      Means("model name twice", good + Nested(kName, "nobody"), {"unknown model 'nobody'"}, StatusCode::NOT_FOUND),
      Means("raw data as a number", good + "\x38\x01" + Nested(kRaw, ""), {"expected 1 entries", "got 2"}),
      Means("inputs as a number", Nested(kName, "double") + "\x28\x01", {"expected 1 inputs", "got none"}),
      Means("parameter without a key", good + Nested(kParameters, ""), {"parameter ''", "got no value"}),
      Means("parameter of unknown kind",
            good + Nested(kParameters, Nested(kName, "priority") + Nested('\x12', "\x30\x01")),
            {"parameter 'priority'", "got no value"}),
      Means("parameter whose last kind counts",
            good + Nested(kParameters, Nested(kName, "priority") + Nested('\x12', "\x10\x01\x08\x01")),
            {"parameter 'priority'", "got bool"}),
      Means("contents 65 times", Nested(kName, "double") + Nested(kInputs, Repeated(Nested(kInputContents, ""), 65)),
            {"more than 64 occurrences of contents"}),
      Means("the same parameter a thousand times",
            good + Repeated(Nested(kParameters, Nested(kName, "timeout") + Nested('\x12', Nested('\x1a', "x"))), 1000),
            {"parameter 'timeout'", "got string"}),
      Means(
          "input parameter of no kind",
          Nested(kName, "double") + Nested(kInputs, Nested(kName, "x") + Nested(kInputParameters, Nested(kName, "k"))),
          {"input 'x': parameter 'k'", "got no value"}),
  };
  // Cut between two fields a right request means less, cut inside one it is malformed.
  const size_t name_ends = 8, inputs_end = good.size() - 18;
  for (size_t size = 1; size < good.size(); ++size) {
    const char* const word = size == name_ends ? "missing 'x'" : size == inputs_end ? "has no data" : kNotValid;
    rows.push_back(Means("cut after " + std::to_string(size) + " bytes", good.substr(0, size), {word}));
  }
  return rows;
}

}  // namespace sluice::testing
