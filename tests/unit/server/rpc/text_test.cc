// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/rpc/grpc_status.h"
#include "server/rpc/quote.h"

namespace sluice::rpc {
namespace {

using testing::HasSubstr;
using testing::Not;

// Goal: names from clients cannot break a message. Method: control characters, invalid UTF-8, long names, and
// characters cut in the middle.
TEST(Quote, EscapesAndCuts) {
  EXPECT_EQ(Quote("x"), "'x'");
  EXPECT_EQ(Quote(""), "''");
  EXPECT_EQ(Quote(absl::string_view("a\0b\n", 4)), "'a\\000b\\n'");
  EXPECT_EQ(Quote("\xff"), "'\\xff'");
  EXPECT_EQ(Quote("stra\xc3\x9f\x65"), "'stra\xc3\x9f\x65'");
  EXPECT_EQ(Quote(std::string(1 << 20, 'n')), "'" + std::string(64, 'n') + "...'");
  EXPECT_EQ(Quote(std::string(63, 'n') + "\xc3\x9f"), "'" + std::string(63, 'n') + "...'");
}

// Goal: the last filter before the wire. Method: bytes that no header may hold.
TEST(Quote, Printable) {
  EXPECT_EQ(Printable(absl::string_view("a\0\x7f\xff\xc3\x9f\n", 7), 100), "a???\xc3\x9f?");
  EXPECT_EQ(Printable("abcdef", 3), "abc");
  EXPECT_EQ(Printable("ab\xc3\x9f", 3), "ab");
}

// Goal: UTF-8 as protobuf defines it. Method: the borders of each length, and what lies just outside them.
TEST(Quote, Utf8) {
  for (const absl::string_view good : {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                                       "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "12345678\xc2\x80", "123456789"}) {
    EXPECT_TRUE(IsValidUtf8(good)) << good;
  }
  for (const absl::string_view bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xe2\x82", "1234567\x80", "12345678\xff"}) {
    EXPECT_FALSE(IsValidUtf8(bad)) << bad;
  }
}

// Goal: code by code, and a bounded, printable message. Method: every code, then a message of 1 MB with a NUL.
TEST(GrpcStatus, MapsCodesAndCutsMessages) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status = ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "why"));
    EXPECT_EQ(static_cast<int>(status.error_code()), code);
    EXPECT_EQ(status.error_message(), "why");
  }
  std::string huge(1 << 20, 'm');
  huge[0] = '\0';
  const grpc::Status cut = ToGrpcStatus(absl::InternalError(huge));
  EXPECT_EQ(cut.error_message().size(), kMaxMessageBytes);
  EXPECT_EQ(cut.error_message()[0], '?');
}

// Goal: the retry hint survives the request id's prefix and only numbers pass. Method: set, prefix, read; then junk.
TEST(GrpcStatus, RetryPushbackAndRequestId) {
  absl::Status full = absl::UnavailableError("Exceeds maximum queue size");
  EXPECT_EQ(RetryPushback(full), std::nullopt);
  SetRetryPushback(full, absl::Milliseconds(250));
  const absl::Status prefixed = WithRequestId(full, std::string(100, 'i') + "\n");
  EXPECT_EQ(RetryPushback(prefixed), "250");
  EXPECT_THAT(std::string(prefixed.message()), HasSubstr("[request id: " + std::string(64, 'i') + "...] Exceeds"));
  EXPECT_EQ(WithRequestId(full, "").message(), full.message());
  EXPECT_TRUE(WithRequestId(absl::OkStatus(), "7").ok());
  full.SetPayload(kRetryPushbackUrl, absl::Cord("soon\r\n"));
  EXPECT_EQ(RetryPushback(full), std::nullopt);
}

}  // namespace
}  // namespace sluice::rpc
