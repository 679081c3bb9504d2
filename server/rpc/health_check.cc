// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/health_check.h"

#include <grpcpp/create_channel.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "health.grpc.pb.h"

namespace sluice::rpc {

bool CheckHealth(int grpc_port) {
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", grpc_port), grpc::InsecureChannelCredentials());
  const auto stub = grpc::health::v1::Health::NewStub(channel);
  grpc::ClientContext context;
  // A monotonic deadline: the wall clock may be stepped.
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(2, GPR_TIMESPAN)));
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = stub->Check(&context, {}, &response);
  const bool serving = status.ok() && response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  std::printf("%s\n", serving ? "ready" : status.ok() ? "not ready" : status.error_message().c_str());
  return serving;
}

}  // namespace sluice::rpc
