// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/polling_engine.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/log.h"

namespace sluice::rpc {
namespace {

constexpr char kVariable[] = "GRPC_POLL_STRATEGY";

}  // namespace

absl::Status ChoosePollingEngine(bool ports_apart) {
  const char* const found = std::getenv(kVariable);
  const absl::string_view value = found != nullptr ? found : "";
  if (value.empty()) {
    if (ports_apart) setenv(kVariable, "poll", 1);
    return absl::OkStatus();
  }
  if (value != "epoll1" && value != "poll" && value != "all") {
    return absl::InvalidArgumentError(
        absl::StrCat("environment ", kVariable, ": expected epoll1, poll or all, got '", value, "'"));
  }
  if (ports_apart && value != "poll") {
    Log(Severity::kWarning, "bytes of either port may hold up the other: only GRPC_POLL_STRATEGY=poll keeps them apart",
        {{"GRPC_POLL_STRATEGY", std::string(value)}});
  }
  return absl::OkStatus();
}

}  // namespace sluice::rpc
