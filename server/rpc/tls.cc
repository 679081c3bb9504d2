// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sluice::rpc {
namespace {

/// The error OpenSSL noted last on this thread; forgets all of them.
absl::Status Refuse(absl::string_view what, const std::string& file) {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " '", file, "': ", reason == nullptr ? "cannot be used" : reason));
}

/// Instead of asking at the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*context*/) { return 0; }

/// gRPC would notice none of this until the first handshake.
absl::Status CheckFiles(const server::TlsFiles& files) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for TLS");
  SSL_CTX_set_default_passwd_cb(context.get(), &NoPassphrase);
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1) {
    return Refuse("--grpc-server-cert: expected a PEM file with a certificate, got", files.certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    return Refuse("--grpc-server-key: expected a PEM file with the certificate's key, without a passphrase, got",
                  files.key);
  }
  if (!files.root_certificates.empty() &&
      SSL_CTX_load_verify_locations(context.get(), files.root_certificates.c_str(), nullptr) != 1) {
    return Refuse("--grpc-root-cert: expected a PEM file with certificates, got", files.root_certificates);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(const server::TlsFiles& files,
                                                                            absl::Duration reload_interval) {
  SLUICE_RETURN_IF_ERROR(CheckFiles(files));
  const auto seconds = static_cast<unsigned int>(std::max<int64_t>(1, absl::ToInt64Seconds(reload_interval)));
  const bool mutual = !files.root_certificates.empty();
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(files.key, files.certificate,
                                                                           files.root_certificates, seconds));
  options.watch_identity_key_cert_pairs();
  if (mutual) options.watch_root_certs();
  options.set_cert_request_type(mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                       : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace sluice::rpc
