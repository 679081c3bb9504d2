// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "inference.pb.h"
#include "server/infer_request.h"
#include "server/rpc/call_environment.h"

namespace sluice::rpc {

/// The answers of all methods but ModelInfer, from what the backend says now. Any thread; never block.
absl::Status AnswerServerLive(const server::InferenceBackend& backend, const inference::ServerLiveRequest& request,
                              inference::ServerLiveResponse& response);
absl::Status AnswerServerReady(const server::InferenceBackend& backend, const inference::ServerReadyRequest& request,
                               inference::ServerReadyResponse& response);
/// An unknown model is an error, not "not ready".
absl::Status AnswerModelReady(const server::InferenceBackend& backend, const inference::ModelReadyRequest& request,
                              inference::ModelReadyResponse& response);
absl::Status AnswerServerMetadata(const server::InferenceBackend& backend,
                                  const inference::ServerMetadataRequest& request,
                                  inference::ServerMetadataResponse& response);
absl::Status AnswerModelMetadata(const server::InferenceBackend& backend,
                                 const inference::ModelMetadataRequest& request,
                                 inference::ModelMetadataResponse& response);
absl::Status AnswerModelConfig(const server::InferenceBackend& backend, const inference::ModelConfigRequest& request,
                               inference::ModelConfigResponse& response);
absl::Status AnswerModelStatistics(const server::InferenceBackend& backend,
                                   const inference::ModelStatisticsRequest& request,
                                   inference::ModelStatisticsResponse& response);

/// Arms `count` calls of each of these methods.
void ArmModelCalls(CallEnvironment& environment, int count);

}  // namespace sluice::rpc
