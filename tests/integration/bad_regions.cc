// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/integration/bad_input.h"

namespace sluice::testing {
namespace {

using Request = inference::ModelInferRequest;
using Words = std::vector<std::string>;
using grpc::StatusCode;

constexpr char kService[] = "/inference.GRPCInferenceService/";
constexpr char kRegion[] = "shared_memory_region";
constexpr char kSize[] = "shared_memory_byte_size";
constexpr char kOffset[] = "shared_memory_offset";

template <class Tensor>
void SetPlace(Tensor& tensor, const std::string& region, int64_t byte_size, int64_t offset) {
  auto& parameters = *tensor.mutable_parameters();
  parameters[kRegion].set_string_param(region);
  parameters[kSize].set_int64_param(byte_size);
  parameters[kOffset].set_int64_param(offset);
}

/// A right request whose input x, or output y, is in the region, spoilt in one way; twice.
void AddBoth(BadInputs& rows, const std::string& what,
             const std::function<void(google::protobuf::Map<std::string, inference::InferParameter>&)>& spoil,
             const std::string& words, StatusCode code = StatusCode::INVALID_ARGUMENT) {
  rows.push_back(Spoilt(
      absl::StrCat("input, ", what),
      [&](Request& r) {
        r.clear_raw_input_contents();
        SetPlace(*r.mutable_inputs(0), "region", 16, 0);
        spoil(*r.mutable_inputs(0)->mutable_parameters());
      },
      {"input 'x': ", words}, code));
  rows.push_back(Spoilt(
      absl::StrCat("output, ", what),
      [&](Request& r) {
        r.add_outputs()->set_name("y");
        SetPlace(*r.mutable_outputs(0), "region", 16, 0);
        spoil(*r.mutable_outputs(0)->mutable_parameters());
      },
      {"output 'y': ", words}, code));
}

void AddPlaces(BadInputs& rows) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  AddBoth(
      rows, "unknown region", [](auto& p) { p[kRegion].set_string_param("nobody's"); },
      "Unable to find shared memory region: 'nobody's'", StatusCode::NOT_FOUND);
  AddBoth(
      rows, "region without a name", [](auto& p) { p[kRegion].set_string_param(""); },
      "Unable to find shared memory region: ''", StatusCode::NOT_FOUND);
  AddBoth(
      rows, "region with a long name", [](auto& p) { p[kRegion].set_string_param(std::string(100'000, 'r')); },
      "Unable to find shared memory region: 'rrr", StatusCode::NOT_FOUND);
  AddBoth(
      rows, "line break in the region", [](auto& p) { p[kRegion].set_string_param("a\nb"); }, "'a?b'",
      StatusCode::NOT_FOUND);
  AddBoth(
      rows, "region as a number", [](auto& p) { p[kRegion].set_int64_param(1); },
      "parameter 'shared_memory_region': expected string, got int64");
  AddBoth(
      rows, "size as uint64", [](auto& p) { p[kSize].set_uint64_param(16); },
      "parameter 'shared_memory_byte_size': expected int64 (bytes), got uint64");
  AddBoth(
      rows, "offset as text", [](auto& p) { p[kOffset].set_string_param("0"); },
      "parameter 'shared_memory_offset': expected int64 (bytes), got string");
  AddBoth(
      rows, "offset without a value", [](auto& p) { p[kOffset].clear_int64_param(); },
      "parameter 'shared_memory_offset': expected int64 (bytes), got no value");
  AddBoth(
      rows, "no size", [](auto& p) { p.erase(kSize); },
      "parameter 'shared_memory_region': expected 'shared_memory_byte_size' beside it, got none");
  AddBoth(
      rows, "no region", [](auto& p) { p.erase(kRegion); },
      "parameter 'shared_memory_byte_size': expected 'shared_memory_region' beside it, got none");
  AddBoth(
      rows, "offset alone",
      [](auto& p) {
        p.erase(kRegion);
        p.erase(kSize);
      },
      "parameter 'shared_memory_offset': expected 'shared_memory_region' beside it, got none");
  AddBoth(
      rows, "size below 0", [](auto& p) { p[kSize].set_int64_param(-16); },
      "parameter 'shared_memory_byte_size': expected 0 or more bytes, got -16");
  AddBoth(
      rows, "smallest offset", [](auto& p) { p[kOffset].set_int64_param(INT64_MIN); },
      "'shared_memory_offset': expected 0 or more bytes, got -9223372036854775808");
  AddBoth(
      rows, "past the region's end", [](auto& p) { p[kOffset].set_int64_param(49); },
      "expected shared_memory_offset + shared_memory_byte_size of at most 64, got 49 + 16");
  AddBoth(
      rows, "larger than the region", [](auto& p) { p[kSize].set_int64_param(65); }, "at most 64, got 0 + 65");
  AddBoth(
      rows, "largest offset", [](auto& p) { p[kOffset].set_int64_param(kMost); }, "got 9223372036854775807 + 16");
  AddBoth(
      rows, "largest of both",
      [](auto& p) {
        p[kOffset].set_int64_param(kMost);
        p[kSize].set_int64_param(kMost);
      },
      "got 9223372036854775807 + 9223372036854775807");
  AddBoth(
      rows, "unknown parameter", [](auto& p) { p["shared_memory_key"].set_string_param("/key"); },
      "parameter 'shared_memory_key' is not known");
}

/// A right request with its input in the region, spoilt in one way.
BadInput InRegion(std::string what, const std::function<void(Request&)>& spoil, Words words,
                  StatusCode code = StatusCode::INVALID_ARGUMENT) {
  return Spoilt(
      std::move(what),
      [&](Request& r) {
        r.clear_raw_input_contents();
        SetPlace(*r.mutable_inputs(0), "region", 16, 0);
        spoil(r);
      },
      std::move(words), code);
}

BadInput Register(std::string what, const std::string& name, const std::string& key, uint64_t offset,
                  uint64_t byte_size, Words words, StatusCode code = StatusCode::INVALID_ARGUMENT) {
  inference::SystemSharedMemoryRegisterRequest request;
  request.set_name(name);
  request.set_key(key);
  request.set_offset(offset);
  request.set_byte_size(byte_size);
  return {.what = absl::StrCat("register: ", what),
          .message = request.SerializeAsString(),
          .code = code,
          .words = std::move(words),
          .method = absl::StrCat(kService, "SystemSharedMemoryRegister")};
}

void AddRegistrations(BadInputs& rows, const std::string& key) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const BadInput more[] = {
      Register("no name", "", key, 0, 1, {"name: expected 1 to 4096 bytes (--max-name-bytes), got 0"}),
      Register("long name", std::string(4097, 'n'), key, 0, 1, {"name: expected 1 to 4096 bytes", "got 4097"}),
      Register("name that is taken", "region", key, 0, 1, {"shared memory region 'region' already in manager"},
               StatusCode::ALREADY_EXISTS),
      Register("no key", "r", "", 0, 1, {"key: expected '/'", "got ''"}),
      Register("key without a slash", "r", key.substr(1), 0, 1, {"key: expected '/' and 1 to 255 bytes"}),
      Register("key with two slashes", "r", key + "/x", 0, 1, {"without another '/'"}),
      Register("key that leads elsewhere", "r", "/../../etc/passwd", 0, 1, {"key: expected", "'/../../etc/passwd'"}),
      Register("key with a zero byte", "r", key + std::string("\0x", 2), 0, 1, {"key: expected '/'"}),
      Register("line break in the key", "r", "/a\nb", 0, 1, {"'/a?b'"}, StatusCode::NOT_FOUND),
      Register("long key", "r", "/" + std::string(256, 'k'), 0, 1, {"1 to 255 bytes"}),
      Register("no such object", "r", key + "_none", 0, 1, {"Unable to open shared memory region: '" + key},
               StatusCode::NOT_FOUND),
      Register("the folder itself", "r", "/.", 0, 1, {"Unable to open shared memory region: '/.'"}),
      Register("no bytes", "r", key, 0, 0, {"byte_size: expected 1 or more, got 0"}),
      Register("a byte too many", "r", key, 0, 65, {"offset + byte_size of at most 64", "got 0 + 65"}),
      Register("offset at the end", "r", key, 64, 1, {"got 64 + 1"}),
      Register("largest offset", "r", key, kMost, 1, {"got 18446744073709551615 + 1"}),
      Register("largest size", "r", key, 1, kMost, {"got 1 + 18446744073709551615"}),
      Register("more bytes than are allowed", "r", key, 0, 4096,
               {"at most 4096 bytes of all regions (--max-shared-memory-bytes), got 4096 beside 64"},
               StatusCode::RESOURCE_EXHAUSTED),
  };
  rows.insert(rows.end(), std::begin(more), std::end(more));
  for (const char* name : {"SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister"}) {
    rows.push_back({.what = absl::StrCat(name, ": no message"),
                    .message = "\xff",
                    .code = StatusCode::INTERNAL,
                    .words = {"parse"},
                    .method = absl::StrCat(kService, name)});
  }
  rows.push_back({.what = "status of an unknown region",
                  .message = "\x0a\x06nobody",
                  .code = StatusCode::NOT_FOUND,
                  .words = {"Unable to find system shared memory region: 'nobody'"},
                  .method = absl::StrCat(kService, "SystemSharedMemoryStatus")});
}

}  // namespace

BadInputs BadRegions(const std::string& key) {
  BadInputs rows = {
      InRegion("raw data beside a region", [](Request& r) { r.add_raw_input_contents(std::string(16, 'x')); },
               {"expected 0 entries in raw_input_contents, one per input outside shared memory, got 1"}),
      InRegion("contents beside a region",
               [](Request& r) { r.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1); },
               {"input 'x': has contents beside parameter 'shared_memory_region'"}),
      InRegion("size of fewer elements",
               [](Request& r) { (*r.mutable_inputs(0)->mutable_parameters())[kSize].set_int64_param(12); },
               {"input 'x': expected 16 bytes for shape [1,4] of FP32, got 12 in shared_memory_byte_size"}),
      InRegion("size of more elements",
               [](Request& r) { (*r.mutable_inputs(0)->mutable_parameters())[kSize].set_int64_param(20); },
               {"input 'x': expected 16 bytes for shape [1,4] of FP32, got 20 in shared_memory_byte_size"}),
      InRegion("wrong datatype in a region", [](Request& r) { r.mutable_inputs(0)->set_datatype("BYTES"); },
               {"input 'x': expected datatype FP32, got BYTES"}),
      InRegion(
          "output that does not fit",
          [](Request& r) {
            r.add_outputs()->set_name("y");
            SetPlace(*r.mutable_outputs(0), "region", 15, 16);
          },
          {"shared memory size specified with the request for output 'y' (15 bytes) should be at least 16 bytes to "
           "hold the results"}),
      InRegion("one of two inputs has no data",
               [](Request& r) {
                 r.set_model_name("sum");
                 r.mutable_inputs(0)->set_name("a");
                 auto& b = *r.add_inputs();
                 b = r.inputs(0);
                 b.set_name("b");
                 b.clear_parameters();
               },
               {"input 'b': has no data in raw_input_contents or contents"}),
      {.what = "shared memory of a device, with that of the system on",
       .message = "",
       .code = StatusCode::UNIMPLEMENTED,
       .method = absl::StrCat(kService, "CudaSharedMemoryRegister")},
  };
  AddPlaces(rows);
  AddRegistrations(rows, key);
  return rows;
}

}  // namespace sluice::testing
