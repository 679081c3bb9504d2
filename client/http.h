// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice::client {

struct HttpAnswer {
  int status = 0;    ///< 200, 404, ...
  std::string body;  ///< Whole: as long as Content-Length said.
};

struct HttpOptions {
  absl::Duration connect_timeout = absl::Seconds(5);   ///< Of each address a name stands for.
  absl::Duration silence_timeout = absl::Seconds(30);  ///< Longest time without a byte.
  size_t most_bytes = size_t{1} << 30;                 ///< Of the answer.
};

/// One GET over HTTP/1.1, without TLS, redirects or chunks: enough for a server's metrics port. `address` is host:port,
/// `path` begins with '/'. Blocks the caller. INVALID_ARGUMENT for an address that is none; UNAVAILABLE when nothing
/// answers there; DEADLINE_EXCEEDED when it falls silent; DATA_LOSS for an answer that is not HTTP, ends too early or
/// is too long.
absl::StatusOr<HttpAnswer> HttpGet(const std::string& address, const std::string& path, const HttpOptions& options);

}  // namespace sluice::client
