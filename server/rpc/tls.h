// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/listen_options.h"

namespace sluice::rpc {

/// Credentials of a port with TLS 1.2 or 1.3. The files are looked at again every `reload_interval` (a second at
/// least); new connections use what is there then, existing ones go on. gRPC looks on a thread of its own. A pair that
/// does not match fails new connections until one that does is there: replace a folder or link, not file after file.
/// INVALID_ARGUMENT naming the file when it cannot be read, is not PEM, or the key is not the certificate's.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(const server::TlsFiles& files,
                                                                            absl::Duration reload_interval);

}  // namespace sluice::rpc
