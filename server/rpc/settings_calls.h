// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "inference.pb.h"
#include "server/infer_request.h"

namespace sluice::rpc {

/// The log's settings under Triton's names, after those of the request were set: all of them or, with INVALID_ARGUMENT
/// naming the setting, none. log_info, log_warning and log_error turn the lines of a severity on and off for the whole
/// process; the others have one value. Any thread; never blocks.
absl::Status AnswerLogSettings(const server::InferenceBackend& backend, const inference::LogSettingsRequest& request,
                               inference::LogSettingsResponse& response);

/// As above for traces: trace_level is OFF, since a timeline is recorded by asking for it (`sluice trace`) and never to
/// a file of the server's. An unknown model is an error.
absl::Status AnswerTraceSetting(const server::InferenceBackend& backend, const inference::TraceSettingRequest& request,
                                inference::TraceSettingResponse& response);

}  // namespace sluice::rpc
