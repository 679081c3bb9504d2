// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/repository_calls.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "server/repository_control.h"
#include "server/rpc/deferred_call.h"
#include "server/rpc/quote.h"

namespace sluice::rpc {
namespace {

using inference::ModelRepositoryParameter;

using IndexCall = DeferredCall<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>;
using LoadCall = DeferredCall<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>;
using UnloadCall = DeferredCall<inference::RepositoryModelUnloadRequest, inference::RepositoryModelUnloadResponse>;

/// As the protocol spells it; nothing for a model that nobody asked for.
const char* StateWord(server::ModelState state) {
  switch (state) {
    case server::ModelState::kNone:
      return "";
    case server::ModelState::kLoading:
      return "LOADING";
    case server::ModelState::kReady:
      return "READY";
    case server::ModelState::kUnloading:
      return "UNLOADING";
    case server::ModelState::kUnavailable:
      return "UNAVAILABLE";
  }
  return "";
}

const char* TypeWord(const ModelRepositoryParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case ModelRepositoryParameter::kBoolParam:
      return "bool_param";
    case ModelRepositoryParameter::kInt64Param:
      return "int64_param";
    case ModelRepositoryParameter::kStringParam:
      return "string_param";
    case ModelRepositoryParameter::kBytesParam:
      return "bytes_param";
    case ModelRepositoryParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return "nothing";
}

absl::Status WrongType(absl::string_view key, absl::string_view expected, const ModelRepositoryParameter& parameter) {
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", Quote(key), ": expected ", expected, ", got ", TypeWord(parameter)));
}

template <class Request>
absl::Status CheckModel(const Request& request) {
  if (!request.repository_name().empty()) {
    return absl::UnimplementedError(
        absl::StrCat("repository_name: expected nothing, since this server has one model repository, got ",
                     Quote(request.repository_name())));
  }
  if (request.model_name().empty()) return absl::InvalidArgumentError("model_name: expected a model, got nothing");
  return absl::OkStatus();
}

/// What came with a load; files are moved out of the request.
absl::StatusOr<server::GivenModel> TakeGiven(inference::RepositoryModelLoadRequest& request) {
  SLUICE_RETURN_IF_ERROR(CheckModel(request));
  server::GivenModel given;
  for (auto& [key, parameter] : *request.mutable_parameters()) {
    absl::string_view path = key;
    if (key == "config") {
      if (!parameter.has_string_param()) return WrongType(key, "string_param (JSON)", parameter);
      given.config = parameter.string_param();
    } else if (absl::ConsumePrefix(&path, "file:")) {
      if (!parameter.has_bytes_param()) return WrongType(key, "bytes_param", parameter);
      given.files[std::string(path)] = std::move(*parameter.mutable_bytes_param());
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", Quote(key), ": expected 'config' or 'file:<version>/<file>'"));
    }
  }
  // Nothing says how files without their folder's config are meant, which it may have or not.
  if (!given.files.empty() && !given.config.has_value()) {
    return absl::InvalidArgumentError("parameter 'config': expected a config (JSON) beside 'file:...', got nothing");
  }
  return given;
}

absl::Status CheckUnload(const inference::RepositoryModelUnloadRequest& request) {
  SLUICE_RETURN_IF_ERROR(CheckModel(request));
  for (const auto& [key, parameter] : request.parameters()) {
    if (key != "unload_dependents") {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", Quote(key), ": expected 'unload_dependents', and no other"));
    }
    // No model here depends on another, so either value is obeyed.
    if (!parameter.has_bool_param()) return WrongType(key, "bool_param", parameter);
  }
  return absl::OkStatus();
}

void BeginIndex(server::InferenceBackend& backend, inference::RepositoryIndexRequest& request,
                const std::shared_ptr<IndexCall>& call) {
  backend.ReadIndex(request.repository_name(), request.ready(),
                    [call](absl::StatusOr<std::vector<server::ModelIndexEntry>> index) {
                      if (!index.ok()) {
                        call->Answer(index.status());
                        return;
                      }
                      inference::RepositoryIndexResponse response;
                      for (const server::ModelIndexEntry& entry : *index) {
                        auto& model = *response.add_models();
                        model.set_name(entry.name);
                        model.set_version(entry.version);
                        model.set_state(StateWord(entry.state));
                        // Reasons may quote a file's bytes, which protobuf would refuse to send.
                        model.set_reason(Printable(entry.reason, kMaxMessageBytes));
                      }
                      call->Answer(absl::OkStatus(), response);
                    });
}

void BeginLoad(server::InferenceBackend& backend, inference::RepositoryModelLoadRequest& request,
               const std::shared_ptr<LoadCall>& call) {
  absl::StatusOr<server::GivenModel> given = TakeGiven(request);
  if (!given.ok()) {
    call->Answer(given.status());
    return;
  }
  backend.LoadModel(request.model_name(), *std::move(given), call->abandoned(),
                    [call](const absl::Status& outcome) { call->Answer(outcome); });
}

void BeginUnload(server::InferenceBackend& backend, inference::RepositoryModelUnloadRequest& request,
                 const std::shared_ptr<UnloadCall>& call) {
  if (const absl::Status status = CheckUnload(request); !status.ok()) {
    call->Answer(status);
    return;
  }
  backend.UnloadModel(request.model_name(), call->abandoned(),
                      [call](const absl::Status& outcome) { call->Answer(outcome); });
}

}  // namespace

// The generated Request... methods differ by name only, which no template can bind.
#define SLUICE_ARM_METHOD(Call, name, begin)                                                                        \
  Call::Arm(environment, {[](CallEnvironment& env, grpc::ServerContext* context, inference::name##Request* request, \
                             Call::Writer* writer, void* tag) {                                                     \
                            env.infer_service.Request##name(context, request, writer, env.queue.get(),              \
                                                            env.queue.get(), tag);                                  \
                          },                                                                                        \
                          &begin})

void ArmRepositoryCalls(CallEnvironment& environment, int count) {
  for (int i = 0; i < count; ++i) {
    SLUICE_ARM_METHOD(IndexCall, RepositoryIndex, BeginIndex);
    SLUICE_ARM_METHOD(LoadCall, RepositoryModelLoad, BeginLoad);
    SLUICE_ARM_METHOD(UnloadCall, RepositoryModelUnload, BeginUnload);
  }
}

#undef SLUICE_ARM_METHOD

}  // namespace sluice::rpc
