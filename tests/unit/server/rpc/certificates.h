// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "openssl/types.h"

namespace sluice::rpc {

/// A certificate and its key in PEM form.
struct Identity {
  std::string certificate;
  std::string key;
};

/// A root that signs certificates for localhost, made anew for each test, with elliptic-curve keys. Valid for a day
/// before and after now.
class CertificateAuthority {
 public:
  explicit CertificateAuthority(const std::string& name);
  ~CertificateAuthority();

  /// In PEM form.
  const std::string& certificate() const { return certificate_; }
  /// For a server at localhost or 127.0.0.1, or a client of that name.
  Identity Issue(const std::string& name);

 private:
  EVP_PKEY* const key_;
  X509* const root_;
  std::string certificate_;
  long serial_ = 1;
};

}  // namespace sluice::rpc
