// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/infer_parser.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "inference.pb.h"
#include "parsed_message.h"

namespace sluice::rpc {
namespace {

using Random = std::mt19937_64;

size_t Below(Random& random, size_t limit) { return limit == 0 ? 0 : random() % limit; }

/// The message in chunks, each in memory of exactly its size, so that a read past one is seen by AddressSanitizer.
class Chunks {
 public:
  Chunks(const std::string& message, Random& random, bool one_chunk) {
    size_t begin = 0;
    while (begin < message.size()) {
      size_t length = message.size() - begin;
      if (!one_chunk) length = std::min(length, Below(random, Below(random, 4) == 0 ? 200 : 6));
      storage_.push_back(std::make_unique<std::byte[]>(length));
      std::memcpy(storage_.back().get(), message.data() + begin, length);
      spans_.emplace_back(storage_.back().get(), length);
      begin += length;
    }
  }
  std::span<const Bytes> spans() const { return spans_; }

 private:
  std::vector<std::unique_ptr<std::byte[]>> storage_;
  std::vector<Bytes> spans_;
};

std::string RandomText(Random& random) {
  static const std::string kTexts[] = {"x",
                                       "",
                                       "name",
                                       "priority",
                                       "timeout",
                                       "stra\xc3\x9f\x65",
                                       "\xf0\x9f\x98\x80",
                                       std::string("nul\0nul", 7),
                                       "a longer name that is not stored inline in a string"};
  return kTexts[Below(random, std::size(kTexts))];
}

inference::InferParameter RandomParameter(Random& random) {
  inference::InferParameter parameter;
  switch (Below(random, 6)) {
    case 0:
      parameter.set_bool_param(Below(random, 2) == 1);
      break;
    case 1:
      parameter.set_int64_param(static_cast<int64_t>(random()) >> Below(random, 64));
      break;
    case 2:
      parameter.set_string_param(RandomText(random));
      break;
    case 3:
      parameter.set_double_param(static_cast<double>(random()));
      break;
    case 4:
      parameter.set_uint64_param(random() >> Below(random, 64));
      break;
    default:
      break;  // none of them
  }
  return parameter;
}

void FillContents(Random& random, inference::InferTensorContents& contents) {
  const size_t count = Below(random, 5);
  const size_t field = Below(random, 9);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t value = random() >> Below(random, 64);
    if (field == 0) contents.add_bool_contents(value % 2 == 1);
    if (field == 1) contents.add_int_contents(static_cast<int32_t>(value));
    if (field == 2) contents.add_int64_contents(static_cast<int64_t>(value));
    if (field == 3) contents.add_uint_contents(static_cast<uint32_t>(value));
    if (field == 4) contents.add_uint64_contents(value);
    if (field == 5) contents.add_fp32_contents(static_cast<float>(value));
    if (field == 6) contents.add_fp64_contents(static_cast<double>(value));
    if (field == 7) contents.add_bytes_contents(std::string(value % 40, '\xff'));
    if (field == 8 && i > 0) contents.add_fp32_contents(1);  // two fields at once
    if (field == 8) contents.add_int_contents(1);
  }
}

inference::ModelInferRequest RandomRequest(Random& random) {
  inference::ModelInferRequest request;
  request.set_model_name(RandomText(random));
  if (Below(random, 2) == 0) request.set_model_version("3");
  if (Below(random, 2) == 0) request.set_id(RandomText(random));
  for (size_t i = Below(random, 4); i > 0; --i) {
    (*request.mutable_parameters())[RandomText(random)] = RandomParameter(random);
  }
  for (size_t i = Below(random, 4); i > 0; --i) {
    auto& input = *request.add_inputs();
    input.set_name(RandomText(random));
    input.set_datatype("FP32");
    for (size_t d = Below(random, 5); d > 0; --d) input.add_shape(static_cast<int64_t>(random()) >> Below(random, 64));
    if (Below(random, 3) == 0) (*input.mutable_parameters())[RandomText(random)] = RandomParameter(random);
    if (Below(random, 2) == 0) FillContents(random, *input.mutable_contents());
  }
  for (size_t i = Below(random, 3); i > 0; --i) {
    auto& output = *request.add_outputs();
    output.set_name(RandomText(random));
    if (Below(random, 3) == 0) (*output.mutable_parameters())[RandomText(random)] = RandomParameter(random);
  }
  for (size_t i = Below(random, 4); i > 0; --i) request.add_raw_input_contents(std::string(Below(random, 300), 'r'));
  return request;
}

void AppendVarint(uint64_t value, std::string& out, Random& random) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  if (Below(random, 8) == 0) {  // longer than it need be, which is legal
    out += static_cast<char>(value | 0x80);
    value = 0;
  }
  out += static_cast<char>(value);
}

/// Fields at random, known and unknown numbers with any wire type, nested to some depth; mostly well-formed.
std::string RandomFields(Random& random, int depth) {
  std::string out;
  for (size_t i = Below(random, 5); i > 0; --i) {
    const uint64_t field = Below(random, 10) == 0 ? random() % 600'000'000 : Below(random, 10);
    const uint64_t type = Below(random, 20) == 0 ? 6 : Below(random, 6);
    AppendVarint(field << 3 | type, out, random);
    if (type == 0) AppendVarint(random() >> Below(random, 64), out, random);
    if (type == 1) out += std::string(8, '\x01');
    if (type == 2) {
      const std::string nested =
          depth > 0 && Below(random, 3) > 0 ? RandomFields(random, depth - 1) : RandomText(random);
      AppendVarint(nested.size(), out, random);
      out += nested;
    }
    if (type == 3) {
      if (depth > 0) out += RandomFields(random, depth - 1);
      AppendVarint((Below(random, 10) == 0 ? field + 1 : field) << 3 | 4, out, random);
    }
    if (type == 5) out += std::string(4, '\x02');
  }
  return out;
}

std::string Mutate(std::string message, Random& random) {
  for (size_t i = Below(random, 4); i > 0 && !message.empty(); --i) {
    const size_t at = Below(random, message.size());
    switch (Below(random, 6)) {
      case 0:
        message[at] = static_cast<char>(random());
        break;
      case 1:
        message[at] = static_cast<char>(message[at] ^ (1 << Below(random, 8)));
        break;
      case 2:
        message.resize(at);
        break;
      case 3:
        message.insert(at, 1, static_cast<char>(random()));
        break;
      case 4:
        message.erase(at, 1 + Below(random, 4));
        break;
      default:
        message.insert(at, message.substr(Below(random, message.size()), Below(random, 20)));
        break;
    }
  }
  return message;
}

/// Returns whether protobuf took the message. Over our own bounds only we refuse; callers stay under them.
bool Compare(const std::string& message, Random& random, bool one_chunk) {
  inference::ModelInferRequest theirs;
  const bool accepted = theirs.ParseFromString(message);
  const Chunks chunks(message, random, one_chunk);
  ParsedRequest ours;
  const absl::Status status = ParseInferRequest(chunks.spans(), ours);
  EXPECT_EQ(status.ok(), accepted) << status << " for " << absl::CHexEscape(message);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
  if (status.ok() && accepted) {
    EXPECT_EQ(Canonical(ours), Canonical(theirs));
  }
  if (testing::Test::HasFailure()) ADD_FAILURE() << "message: " << absl::CHexEscape(message);
  return accepted;
}

constexpr uint64_t kSeed = 20;

// Goal: our parser and protobuf's agree on every message. Method: generated messages, whole, mutated, concatenated and
// with random fields, cut into chunks at random places; same verdict, same contents. Replay with the printed seed.
TEST(InferParser, AgreesWithProtobuf) {
  int accepted = 0;
  int refused = 0;
  for (uint64_t seed = kSeed; seed < kSeed + 30'000 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    std::string message = RandomRequest(random).SerializeAsString();
    const size_t kind = Below(random, 5);
    if (kind == 1) message = Mutate(message, random);
    if (kind == 2) message += RandomRequest(random).SerializeAsString();
    if (kind == 3) message += RandomFields(random, 5);
    if (kind == 4) message = Mutate(RandomFields(random, 6), random);
    (Compare(message, random, Below(random, 8) == 0) ? accepted : refused)++;
  }
  // Both verdicts must have been tried, or the test says nothing.
  EXPECT_GT(accepted, 8'000);
  EXPECT_GT(refused, 3'000);
}

// Goal: the encodings that a generator does not make. Method: by hand, each compared with protobuf.
TEST(InferParser, HandmadeEncodings) {
  Random random(kSeed);
  const auto group = [](int depth) { return std::string(depth, '\x7b') + std::string(depth, '\x7c'); };
  const std::string messages[] = {
      "",
      std::string("\0", 1),
      std::string("\x0a\x01m\x0a\x01n", 6),             // the last one wins
      std::string("\x8a\x00\x01m", 4),                  // overlong tag
      std::string("\x8a\x80\x80\x80\x00\x01m", 7),      // tag of five bytes
      std::string("\x8a\x80\x80\x80\x80\x00\x01m", 8),  // tag of six bytes
      std::string("\x0a\x81\x80\x80\x80\x00m", 7),      // length of five bytes
      std::string("\x0a\x81\x80\x80\x80\x80\x00m", 8),  // length of six bytes
      std::string("\x0a\xff\xff\xff\xff\x0f", 6),       // length near 4 GiB
      std::string("\x0a\xff\xff\xff\xff\x07", 6),       // length near 2 GiB
      std::string("\x08\x01", 2),                       // model_name as a varint: unknown
      std::string("\x0d\x01\x02\x03\x04", 5),           // as fixed32
      std::string("\x0a\x02\xc0\x80", 4),               // invalid UTF-8
      std::string("\x2a\x04\x18\x01\x18\x02", 6),       // shape, unpacked
      std::string("\x2a\x04\x1a\x02\x01\x02", 6),       // shape, packed
      std::string("\x2a\x04\x1a\x02\x01\x80", 6),       // packed, last one truncated
      std::string("\x2a\x0d\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\x00", 15),
      std::string("\x2a\x0c\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 14),  // 11 bytes
      std::string("\x2a\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 13),      // bits above the 64th
      std::string("\x2a\x06\x2a\x04\x10\x05\x10\x06", 8),                           // int_contents, unpacked
      std::string("\x2a\x0a\x2a\x08\x12\x02\x05\x06\x10\x07\x12\x00", 12),          // both ways
      std::string("\x2a\x07\x2a\x05\x32\x03\x00\x00\x00", 9),                       // packed floats of 3 bytes
      std::string("\x2a\x08\x2a\x02\x10\x05\x2a\x02\x10\x06", 10),                  // contents twice: merged
      std::string("\x22\x00", 2),                                                   // parameter without key and value
      std::string("\x22\x02\x12\x00", 4),                                           // without key
      std::string("\x22\x07\x12\x02\x10\x01\x0a\x01k", 9),                          // value before key
      std::string("\x22\x0b\x0a\x01k\x12\x02\x10\x01\x12\x02\x20\x00", 13),
      std::string("\x22\x05\x0a\x01k\x12\x00\x22\x07\x0a\x01k\x12\x02\x08\x01", 16),  // same key twice
      std::string("\x22\x06\x0a\x01k\x12\x02\x08", 8),                                // truncated
      std::string("\x7c", 1),                                                         // end without start
      std::string("\x7b\x84\x01", 3),                                                 // end of another group
      std::string("\x7e", 1),
      std::string("\x07", 1),
      group(99),
      group(100),
      group(101),
      std::string(150, '\x7b'),
  };
  for (const std::string& message : messages) {
    SCOPED_TRACE(absl::CHexEscape(message));
    Compare(message, random, false);
    Compare(message, random, true);
  }
}

// Goal: depth is counted from the message down, as protobuf does. Method: groups at the limit inside each nested
// message.
TEST(InferParser, DepthInsideNestedMessages) {
  Random random(kSeed);
  for (int depth = 94; depth <= 101; ++depth) {
    const std::string groups = std::string(depth, '\x7b') + std::string(depth, '\x7c');
    const auto wrap = [&random](char tag, const std::string& content) {
      std::string out(1, tag);
      AppendVarint(content.size(), out, random);
      return out + content;
    };
    SCOPED_TRACE(depth);
    Compare(wrap('\x2a', groups), random, false);
    Compare(wrap('\x32', groups), random, false);
    Compare(wrap('\x2a', wrap('\x2a', groups)), random, false);
    Compare(wrap('\x22', groups), random, false);
    Compare(wrap('\x22', wrap('\x12', groups)), random, false);
    Compare(wrap('\x2a', wrap('\x22', wrap('\x12', groups))), random, false);
  }
}

absl::Status ParseWhole(const inference::ModelInferRequest& message, const server::ParseLimits& limits) {
  Random random(kSeed);
  const Chunks chunks(message.SerializeAsString(), random, true);
  ParsedRequest request;
  return ParseInferRequest(chunks.spans(), request, limits);
}

// Goal: a small message cannot make us allocate much, and the bounds are those given. Method: as many as each bound
// allows, then one more, with the default bounds and with small ones.
TEST(InferParser, Bounds) {
  const server::ParseLimits small = {.tensors = 2, .dimensions = 3, .parameters = 4};
  for (const server::ParseLimits& limits : {server::ParseLimits(), small}) {
    inference::ModelInferRequest inputs, outputs, raw, shape, parameters;
    for (size_t i = 0; i < limits.tensors; ++i) {
      inputs.add_inputs();
      outputs.add_outputs();
      raw.add_raw_input_contents("");
    }
    auto& input = *shape.add_inputs();
    for (size_t i = 0; i < limits.dimensions; ++i) input.add_shape(1);
    for (size_t i = 0; i < limits.parameters; ++i) (*parameters.mutable_parameters())[absl::StrCat(i)];
    for (const auto& message : {inputs, outputs, raw, shape, parameters}) EXPECT_TRUE(ParseWhole(message, limits).ok());
    inputs.add_inputs();
    outputs.add_outputs();
    raw.add_raw_input_contents("");
    input.add_shape(1);
    (*parameters.mutable_parameters())["one more"];
    for (const auto& message : {inputs, outputs, raw, shape, parameters}) {
      EXPECT_TRUE(absl::IsInvalidArgument(ParseWhole(message, limits)));
    }
  }
}

// Goal: no name is longer than its bound, and the error says which. Method: each of them at the bound, then one byte
// over.
TEST(InferParser, BoundOfNames) {
  const server::ParseLimits limits = {.name_bytes = 20};
  using Set = void (*)(inference::ModelInferRequest&, const std::string&);
  const std::vector<std::pair<std::string, Set>> table = {
      {"model_name", [](auto& message, const auto& text) { message.set_model_name(text); }},
      {"model_version", [](auto& message, const auto& text) { message.set_model_version(text); }},
      {"id", [](auto& message, const auto& text) { message.set_id(text); }},
      {"inputs.name", [](auto& message, const auto& text) { message.add_inputs()->set_name(text); }},
      {"inputs.datatype", [](auto& message, const auto& text) { message.add_inputs()->set_datatype(text); }},
      {"outputs.name", [](auto& message, const auto& text) { message.add_outputs()->set_name(text); }},
      {"parameters", [](auto& message, const auto& text) { (*message.mutable_parameters())[text]; }},
  };
  for (const auto& [field, set] : table) {
    inference::ModelInferRequest fits, too_long;
    set(fits, std::string(20, 'n'));
    set(too_long, std::string(21, 'n'));
    EXPECT_TRUE(ParseWhole(fits, limits).ok()) << field;
    const absl::Status refused = ParseWhole(too_long, limits);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << field;
    EXPECT_EQ(refused.message(), absl::StrCat(field, ": expected at most 20 bytes (--max-name-bytes), got 21"));
  }
}

// Goal: tensor bytes stay where they are. Method: the pieces point into the chunk.
TEST(InferParser, RawContentsAreNotCopied) {
  inference::ModelInferRequest message;
  message.add_raw_input_contents(std::string(1000, 'r'));
  Random random(kSeed);
  const Chunks chunks(message.SerializeAsString(), random, true);
  ParsedRequest request;
  ASSERT_TRUE(ParseInferRequest(chunks.spans(), request).ok());
  ASSERT_EQ(request.raw_inputs.size(), 1u);
  ASSERT_EQ(request.raw_inputs[0].size(), 1u);
  const Bytes chunk = chunks.spans()[0];
  EXPECT_EQ(request.raw_inputs[0][0].data(), chunk.data() + chunk.size() - 1000);
}

}  // namespace
}  // namespace sluice::rpc
