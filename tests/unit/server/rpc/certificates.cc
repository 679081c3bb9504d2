// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "certificates.h"

#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace sluice::rpc {
namespace {

using Memory = std::unique_ptr<BIO, int (*)(BIO*)>;

std::string Text(const Memory& memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return {data, static_cast<size_t>(size)};
}

std::string Pem(X509* certificate) {
  const Memory memory(BIO_new(BIO_s_mem()), &BIO_free);
  EXPECT_EQ(PEM_write_bio_X509(memory.get(), certificate), 1);
  return Text(memory);
}

std::string Pem(EVP_PKEY* key) {
  const Memory memory(BIO_new(BIO_s_mem()), &BIO_free);
  EXPECT_EQ(PEM_write_bio_PrivateKey(memory.get(), key, nullptr, nullptr, 0, nullptr, nullptr), 1);
  return Text(memory);
}

void Extend(X509* certificate, int extension, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, &context, extension, value);
  ASSERT_NE(made, nullptr) << value;
  X509_add_ext(certificate, made, -1);
  X509_EXTENSION_free(made);
}

X509* NewCertificate(const std::string& name, long serial, EVP_PKEY* key, X509* issuer) {
  constexpr long kDay = 86400;
  X509* const certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate), kDay);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer != nullptr ? issuer : certificate));
  X509_set_pubkey(certificate, key);
  return certificate;
}

}  // namespace

CertificateAuthority::CertificateAuthority(const std::string& name)
    : key_(EVP_EC_gen("P-256")), root_(NewCertificate(name, serial_, key_, nullptr)) {
  Extend(root_, NID_basic_constraints, "critical,CA:TRUE");
  EXPECT_GT(X509_sign(root_, key_, EVP_sha256()), 0);
  certificate_ = Pem(root_);
}

CertificateAuthority::~CertificateAuthority() {
  X509_free(root_);
  EVP_PKEY_free(key_);
}

Identity CertificateAuthority::Issue(const std::string& name) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = NewCertificate(name, ++serial_, key, root_);
  Extend(certificate, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  EXPECT_GT(X509_sign(certificate, key_, EVP_sha256()), 0);
  Identity identity{Pem(certificate), Pem(key)};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return identity;
}

}  // namespace sluice::rpc
