// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/execution/serving.h"
#include "server/metrics/metrics.h"
#include "server/rpc/rpc_observer.h"

namespace sluice::server {

/// Counts each ModelInfer call once, when it is answered. Threads: any; no lock on the way.
class CallMetrics final : public rpc::RpcObserver {
 public:
  CallMetrics(metrics::Metrics& metrics, const Serving& serving) : metrics_(metrics), serving_(serving) {}

  void OnReceived() override {}
  void OnAccepted(const InferRequest&) override {}
  void OnAnswered(const rpc::AnsweredCall& call) override;
  void OnWritten(RequestClass, absl::Duration, bool) override {}

 private:
  metrics::Metrics& metrics_;
  const Serving& serving_;
};

}  // namespace sluice::server
