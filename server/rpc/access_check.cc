// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/access_check.h"

#include <openssl/crypto.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::rpc {
namespace {

bool IsSecret(absl::string_view given, const std::string& secret) {
  const bool same_size = given.size() == secret.size();
  const char* const compared = same_size ? given.data() : secret.data();
  return (CRYPTO_memcmp(compared, secret.data(), secret.size()) == 0) & same_size;
}

}  // namespace

absl::Status CheckAccess(const server::ProtocolAccess& access, server::Protocol protocol,
                         const grpc::ServerContextBase& context) {
  const auto index = static_cast<size_t>(protocol);
  const std::optional<server::RequiredHeader>& required = access[index];
  if (!required.has_value()) return absl::OkStatus();
  const auto [first, last] = context.client_metadata().equal_range(required->name);
  bool allowed = false;
  for (auto header = first; header != last; ++header) {
    allowed |= IsSecret(absl::string_view(header->second.data(), header->second.size()), required->value);
  }
  if (allowed) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the protocol ", server::kProtocolNames[index], " is restricted: the call lacks its header"));
}

}  // namespace sluice::rpc
