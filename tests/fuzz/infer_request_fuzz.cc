// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: the request parser takes exactly what protobuf takes, says the same about it, and reads nothing outside of it.
// Method: both parse the same bytes, ours in pieces. Over the parser's own bounds only it refuses.
#include <google/protobuf/stubs/logging.h>

#include "absl/strings/match.h"
#include "tests/fuzz/pieces.h"
#include "tests/unit/server/rpc/parsed_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sluice::testing::Require;
  static google::protobuf::LogSilencer quiet;  // it logs every string that is no UTF-8
  const sluice::testing::Pieces pieces({data, size});
  inference::ModelInferRequest theirs;
  const bool accepted = theirs.ParseFromString(pieces.message());
  sluice::rpc::ParsedRequest ours;
  const absl::Status status = sluice::rpc::ParseInferRequest(pieces.spans(), ours);
  Require(status.ok() || absl::IsInvalidArgument(status), "the error is not INVALID_ARGUMENT");
  const bool over_bounds = absl::StartsWith(status.message(), "the message has more than ") ||
                           absl::StrContains(status.message(), "--max-name-bytes");
  if (over_bounds) return 0;
  Require(status.ok() == accepted, accepted ? "only protobuf accepts it" : "only we accept it");
  if (accepted) {
    Require(sluice::rpc::Canonical(ours) == sluice::rpc::Canonical(std::move(theirs)), "the contents differ");
  }
  return 0;
}
