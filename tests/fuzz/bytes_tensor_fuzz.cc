// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: a BYTES tensor is accepted exactly when its lengths add up, however the message cut it. Method: a walk over the
// joined bytes says what is right.
#include "server/rpc/tensor_checks.h"
#include "tests/fuzz/pieces.h"

namespace {

/// How many elements there are, when they end where the bytes end; -1 otherwise.
int64_t CountElements(const std::string& bytes) {
  int64_t count = 0;
  for (size_t at = 0; at < bytes.size(); ++count) {
    uint32_t length = 0;
    if (bytes.size() - at < sizeof(length)) return -1;
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    at += sizeof(length);
    if (bytes.size() - at < length) return -1;
    at += length;
  }
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The message's last byte is the count that a shape would ask for.
  const sluice::testing::Pieces pieces({data, size > 0 ? size - 1 : 0});
  const int64_t asked = size > 0 ? data[size - 1] : 0;
  const int64_t count = CountElements(pieces.message());
  std::vector<sluice::server::Bytes> filled;
  for (const sluice::server::Bytes& piece : pieces.spans()) {
    if (!piece.empty()) filled.push_back(piece);
  }
  for (const int64_t elements : {asked, count, int64_t{0}, INT64_MAX}) {
    if (elements < 0) continue;
    const absl::Status status = sluice::rpc::CheckBytesElements(filled, elements);
    sluice::testing::Require(status.ok() == (elements == count), "lengths that add up, or do not");
    sluice::testing::Require(status.ok() || absl::IsInvalidArgument(status), "the error is not INVALID_ARGUMENT");
  }
  return 0;
}
