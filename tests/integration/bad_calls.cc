// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "tests/integration/bad_input.h"

namespace sluice::testing {
namespace {

using grpc::StatusCode;
using Words = std::vector<std::string>;

constexpr char kService[] = "/inference.GRPCInferenceService/";

BadInput Call(std::string what, std::string method, std::string message, StatusCode code, Words words) {
  return {.what = std::move(what),
          .message = std::move(message),
          .code = code,
          .words = std::move(words),
          .method = std::move(method)};
}

/// A right request whose metadata say this, each under `key`.
BadInput Metadata(std::string what, const std::string& key, const std::vector<std::string>& values, Words words) {
  BadInput row{.what = std::move(what), .message = GoodRequest().SerializeAsString(), .words = std::move(words)};
  for (const std::string& value : values) row.metadata.emplace_back(key, value);
  return row;
}

BadInput NoMethod(std::string what, std::string path) {
  return Call(std::move(what), std::move(path), GoodRequest().SerializeAsString(), StatusCode::UNIMPLEMENTED, {});
}

/// The requests of these four have the same fields: name and version.
void AddModelMethods(BadInputs& rows) {
  const auto about = [](const std::string& name, const std::string& version) {
    inference::ModelReadyRequest request;
    request.set_name(name);
    request.set_version(version);
    return request.SerializeAsString();
  };
  for (const char* name : {"ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"}) {
    const std::string method = absl::StrCat(kService, name);
    const auto add = [&](const char* what, const std::string& message, StatusCode code, Words words) {
      rows.push_back(Call(absl::StrCat(name, ": ", what), method, message, code, std::move(words)));
    };
    add("unknown model", about("nobody", ""), StatusCode::NOT_FOUND, {"unknown model 'nobody'"});
    add("long model name", about(std::string(100'000, 'm'), ""), StatusCode::NOT_FOUND, {"mmm..."});
    add("unknown version", about("double", "2"), StatusCode::NOT_FOUND, {"unknown model 'double' version 2"});
    add("version is a word", about("double", "new"), StatusCode::INVALID_ARGUMENT, {"model_version", "'new'"});
    add("version below 0", about("double", "-1"), StatusCode::INVALID_ARGUMENT, {"model_version", "'-1'"});
    add("version that does not fit", about("double", std::string(30, '9')), StatusCode::INVALID_ARGUMENT, {"999"});
    // gRPC's own code and words for what its own parser refuses.
    add("no message", "\xff", StatusCode::INTERNAL, {"parse"});
    add("name is no UTF-8", "\x0a\x02\xc3\x28", StatusCode::INTERNAL, {"parse"});
    if (name != std::string("ModelStatistics")) {  // which takes no name as every model
      add("no name", "", StatusCode::NOT_FOUND, {"unknown model ''"});
    }
  }
}

}  // namespace

BadInputs BadCalls() {
  BadInputs rows = {
      Metadata("unknown class", "sluice-class", {"fast"}, {"sluice-class", "latency, standard or batch", "'fast'"}),
      Metadata("class in capitals", "sluice-class", {"LATENCY"}, {"sluice-class", "'LATENCY'"}),
      Metadata("no class", "sluice-class", {""}, {"sluice-class", "''"}),
      Metadata("two classes in one", "sluice-class", {"latency,batch"}, {"sluice-class", "'latency,batch'"}),
      Metadata("class twice", "sluice-class", {"latency", "batch"}, {"sluice-class is given more than once"}),
      Metadata("the same class twice", "sluice-class", {"batch", "batch"}, {"sluice-class is given more than once"}),
      Metadata("long class", "sluice-class", {std::string(4000, 'c')}, {"sluice-class", "ccc...'"}),
      Metadata("class three times, one of them unknown", "sluice-class", {"batch", "x", "batch"}, {"more than once"}),
      {.what = "more metadata than gRPC takes",
       .message = GoodRequest().SerializeAsString(),
       .code = StatusCode::RESOURCE_EXHAUSTED,
       .metadata = {{"x-large", std::string(20'000, 'x')}}},
      NoMethod("unknown method", absl::StrCat(kService, "Nothing")),
      NoMethod("method in small letters", absl::StrCat(kService, "modelinfer")),
      NoMethod("method goes on", absl::StrCat(kService, "ModelInfer/")),
      NoMethod("unknown service", "/inference.Nothing/ModelInfer"),
      NoMethod("service without a method", "/inference.GRPCInferenceService"),
      NoMethod("long method", absl::StrCat(kService, std::string(4000, 'm'))),
      NoMethod("shared memory of a device", absl::StrCat(kService, "CudaSharedMemoryStatus")),
      Call("shared memory of the system, which is off", absl::StrCat(kService, "SystemSharedMemoryStatus"), "",
           StatusCode::UNIMPLEMENTED, {"system shared memory is not served (--shared-memory=system)"}),
      Call("registering shared memory, which is off", absl::StrCat(kService, "SystemSharedMemoryRegister"), "",
           StatusCode::UNIMPLEMENTED, {"system shared memory is not served"}),
      Call("unregistering shared memory, which is off", absl::StrCat(kService, "SystemSharedMemoryUnregister"), "",
           StatusCode::UNIMPLEMENTED, {"system shared memory is not served"}),
      Call("message over the limit", absl::StrCat(kService, "ModelInfer"), std::string(kMessageLimit + 1, '\0'),
           StatusCode::RESOURCE_EXHAUSTED, {absl::StrCat(kMessageLimit + 1), absl::StrCat(kMessageLimit)}),
      Call("message over the limit to a small method", absl::StrCat(kService, "ServerLive"),
           std::string(kMessageLimit + 1, '\0'), StatusCode::RESOURCE_EXHAUSTED, {absl::StrCat(kMessageLimit)}),
      Call("ServerLive: no message", absl::StrCat(kService, "ServerLive"), "\xff", StatusCode::INTERNAL, {"parse"}),
      Call("ServerReady: no message", absl::StrCat(kService, "ServerReady"), "\x0b", StatusCode::INTERNAL, {"parse"}),
      Call("ServerMetadata: no message", absl::StrCat(kService, "ServerMetadata"), "\x0f", StatusCode::INTERNAL,
           {"parse"}),
      Call("health of an unknown service", "/grpc.health.v1.Health/Check", "\x0a\x06nobody", StatusCode::NOT_FOUND, {}),
      Call("health: no message", "/grpc.health.v1.Health/Check", "\x0a\x7f", StatusCode::INTERNAL, {"parse"}),
      Call("health: name is no UTF-8", "/grpc.health.v1.Health/Check", "\x0a\x01\xff", StatusCode::INTERNAL, {"parse"}),
  };
  AddModelMethods(rows);
  return rows;
}

}  // namespace sluice::testing
