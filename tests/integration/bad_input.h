// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "inference.pb.h"

namespace sluice::testing {

/// One call that must be refused: what goes over the wire, and what comes back.
struct BadInput {
  std::string what;
  std::string message;  ///< Of a ModelInferRequest, unless `method` says otherwise; need not be well-formed.
  grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
  std::vector<std::string> words = {};  ///< All of them are in the error message.
  std::string method = "/inference.GRPCInferenceService/ModelInfer";
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

using BadInputs = std::vector<BadInput>;

// The table, by what is wrong. The models they speak of are those of BadInputTest.
BadInputs BadNames();
BadInputs BadTensors();
BadInputs BadContents();
BadInputs BadParameters();
BadInputs BadEncodings();
BadInputs BadCalls();
/// With --shared-memory=system, a region "region" of 64 bytes, and its object, of as many bytes, at `key`.
BadInputs BadRegions(const std::string& key);

/// The server's limit of a message, for rows that are longer.
inline constexpr int64_t kMessageLimit = int64_t{1} << 20;

/// A right request to model "double": x FP32 [1,4].
inline inference::ModelInferRequest GoodRequest() {
  inference::ModelInferRequest request;
  request.set_model_name("double");
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.add_shape(1);
  input.add_shape(4);
  request.add_raw_input_contents(std::string(16, '\0'));
  return request;
}

/// A right request, spoilt in one way.
inline BadInput Spoilt(std::string what, const std::function<void(inference::ModelInferRequest&)>& spoil,
                       std::vector<std::string> words, grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT) {
  inference::ModelInferRequest request = GoodRequest();
  spoil(request);
  return {.what = std::move(what), .message = request.SerializeAsString(), .code = code, .words = std::move(words)};
}

}  // namespace sluice::testing
