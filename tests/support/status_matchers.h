// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {
namespace status_matchers_internal {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <class T>
const absl::Status& GetStatus(const absl::StatusOr<T>& value) {
  return value.status();
}

/// OK or not, for a Status or StatusOr. A failure prints the status.
struct IsOkMatcher {
  using is_gtest_matcher = void;
  template <class T>
  bool MatchAndExplain(const T& value, ::testing::MatchResultListener* listener) const {
    if (value.ok()) return true;
    *listener << "which is " << GetStatus(value).ToString();
    return false;
  }
  void DescribeTo(std::ostream* out) const { *out << "is OK"; }
  void DescribeNegationTo(std::ostream* out) const { *out << "is not OK"; }
};

/// Code and message of a Status or StatusOr.
struct StatusIsMatcher {
  using is_gtest_matcher = void;
  template <class T>
  bool MatchAndExplain(const T& value, ::testing::MatchResultListener* listener) const {
    const absl::Status& status = GetStatus(value);
    *listener << "which is " << status.ToString();
    return status.code() == code && message.Matches(std::string(status.message()));
  }
  void DescribeTo(std::ostream* out) const {
    *out << "has code " << absl::StatusCodeToString(code) << " and a message that ";
    message.DescribeTo(out);
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "does not have code " << absl::StatusCodeToString(code) << " or has a message that ";
    message.DescribeNegationTo(out);
  }

  absl::StatusCode code;
  ::testing::Matcher<const std::string&> message;
};

/// The value of an OK StatusOr.
template <class Inner>
struct IsOkAndHoldsMatcher {
  using is_gtest_matcher = void;
  template <class T>
  bool MatchAndExplain(const absl::StatusOr<T>& value, ::testing::MatchResultListener* listener) const {
    if (!value.ok()) {
      *listener << "which is " << value.status().ToString();
      return false;
    }
    return ::testing::SafeMatcherCast<const T&>(inner).MatchAndExplain(*value, listener);
  }
  void DescribeTo(std::ostream* out) const { *out << "is OK and holds the expected value"; }
  void DescribeNegationTo(std::ostream* out) const { *out << "is not OK or holds another value"; }

  Inner inner;
};

}  // namespace status_matchers_internal

/// EXPECT_THAT(status_or_status_or_value, IsOk()).
inline status_matchers_internal::IsOkMatcher IsOk() { return {}; }

/// EXPECT_THAT(F(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("model"))).
inline status_matchers_internal::StatusIsMatcher StatusIs(
    absl::StatusCode code, ::testing::Matcher<const std::string&> message = ::testing::_) {
  return {code, std::move(message)};
}

/// EXPECT_THAT(F(), IsOkAndHolds(5)).
template <class Inner>
status_matchers_internal::IsOkAndHoldsMatcher<std::decay_t<Inner>> IsOkAndHolds(Inner&& inner) {
  return {std::forward<Inner>(inner)};
}

}  // namespace sluice

// protobuf's and gRPC's own test headers use these names too; ours win where both are included.
#undef EXPECT_OK
#undef ASSERT_OK
#undef ASSERT_OK_AND_ASSIGN
#define EXPECT_OK(expression) EXPECT_THAT(expression, ::sluice::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT(expression, ::sluice::IsOk())

#define SLUICE_TEST_CONCAT_INNER_(a, b) a##b
#define SLUICE_TEST_CONCAT_(a, b) SLUICE_TEST_CONCAT_INNER_(a, b)
#define SLUICE_ASSERT_OK_AND_ASSIGN_IMPL_(variable, declaration, expression) \
  auto variable = (expression);                                              \
  ASSERT_THAT(variable, ::sluice::IsOk());                                   \
  declaration = *std::move(variable)
/// `ASSERT_OK_AND_ASSIGN(auto x, F());` binds x to F()'s value or ends the test. Only in functions that return void.
#define ASSERT_OK_AND_ASSIGN(declaration, expression) \
  SLUICE_ASSERT_OK_AND_ASSIGN_IMPL_(SLUICE_TEST_CONCAT_(status_or_, __LINE__), declaration, expression)
