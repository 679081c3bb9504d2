// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Goal: the small types everything stands on do what their headers say. Method: direct calls; threads only for Wakeup.
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/data_type.h"
#include "base/log.h"
#include "base/log_filter.h"
#include "base/moving_average.h"
#include "base/mutex.h"
#include "base/request_class.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "base/wakeup.h"

namespace sluice {
namespace {

TEST(Time, SaturatesInsteadOfWrapping) {
  EXPECT_EQ(Time::Infinite() + absl::Seconds(1), Time::Infinite());
  EXPECT_EQ(Time::Infinite() - absl::Seconds(1), Time::Infinite());
  EXPECT_EQ(Time::FromNanoseconds(5) + absl::InfiniteDuration(), Time::Infinite());
  EXPECT_EQ(Time::FromNanoseconds(INT64_MAX - 5) + absl::Seconds(1), Time::Infinite());
  EXPECT_EQ(Time::Infinite() - Time::FromNanoseconds(3), absl::InfiniteDuration());
  EXPECT_EQ(Time::FromNanoseconds(2000) - Time::FromNanoseconds(500), absl::Nanoseconds(1500));
  EXPECT_LT(Time::FromNanoseconds(1), Time::Infinite());
}

TEST(MonotonicClock, NeverGoesBack) {
  const MonotonicClock clock;
  Time last = clock.Now();
  for (int i = 0; i < 1000; ++i) {
    const Time now = clock.Now();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(Log, WritesOnlySeveritiesThatAreOn) {
  EXPECT_TRUE(IsLogged(Severity::kInfo));
  SetLogged(Severity::kInfo, false);
  ::testing::internal::CaptureStderr();
  Log(Severity::kInfo, "left out");
  Log(Severity::kWarning, "written");
  const std::string text = ::testing::internal::GetCapturedStderr();
  SetLogged(Severity::kInfo, true);
  EXPECT_EQ(text.find("left out"), std::string::npos);
  EXPECT_NE(text.find("written"), std::string::npos);
}

TEST(Log, InputCannotForgeALine) {
  EXPECT_EQ(FormatLogLine(Severity::kInfo, "model ready", {{"model", "resnet50"}, {"count", 3}, {"ok", true}}),
            "INFO model ready model=resnet50 count=3 ok=true");
  EXPECT_EQ(FormatLogLine(Severity::kError, "bad", {{"name", "a\nERROR b=\"c\""}}),
            "ERROR bad name=\"a\\nERROR b=\\\"c\\\"\"");
  EXPECT_EQ(FormatLogLine(Severity::kWarning, "bad", {{"empty", ""}, {"space", "a b"}}),
            "WARNING bad empty=\"\" space=\"a b\"");
}

TEST(RequestClass, NamesRoundTripAndUnknownWordsAreRefused) {
  for (const RequestClass request_class : kRequestClasses) {
    EXPECT_EQ(ParseRequestClass(RequestClassName(request_class)), request_class);
  }
  EXPECT_EQ(ParseRequestClass("Latency"), std::nullopt);
  EXPECT_EQ(ParseRequestClass(""), std::nullopt);
}

TEST(DataType, WireNamesRoundTrip) {
  for (const DataTypeFacts& facts : kDataTypes) {
    EXPECT_EQ(ParseWireName(WireName(facts.type)), facts.type);
    EXPECT_EQ(ElementBytes(facts.type), facts.element_bytes);
  }
  EXPECT_EQ(ParseWireName("FLOAT"), std::nullopt);
  EXPECT_EQ(ElementBytes(DataType::kInvalid), 0u);
}

TEST(MovingAverage, FollowsItsSamples) {
  MovingAverage average;
  EXPECT_EQ(average.value(), absl::ZeroDuration());
  average.Add(absl::Microseconds(80));
  EXPECT_EQ(average.value(), absl::Microseconds(80));
  average.Add(absl::Microseconds(160));
  EXPECT_EQ(average.value(), absl::Microseconds(90));
  for (int i = 0; i < 100; ++i) average.Add(absl::Microseconds(10));
  EXPECT_NEAR(absl::ToDoubleMicroseconds(average.value()), 10.0, 0.1);
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  SLUICE_ASSIGN_OR_RETURN(const int half, Half(value));
  SLUICE_RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(StatusMacros, ReturnTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(7).status(), absl::InvalidArgumentError("odd"));
  EXPECT_EQ(Quarter(6).status(), absl::InvalidArgumentError("odd"));
}

TEST(Wakeup, KeepsANotifyThatCameFirstAndTimesOut) {
  Wakeup wakeup;
  const MonotonicClock clock;
  EXPECT_FALSE(wakeup.WaitUntil(clock.Now()));
  wakeup.Notify();
  wakeup.Notify();
  EXPECT_TRUE(wakeup.WaitUntil(Time::Infinite()));
  EXPECT_FALSE(wakeup.WaitUntil(clock.Now()));
}

TEST(Wakeup, EveryPublishedChangeIsSeen) {
  // Method: one thread publishes 1..n and notifies; the other must reach n without a timeout.
  constexpr int kChanges = 20000;
  Wakeup wakeup;
  std::atomic<int> published = 0;
  Thread publisher("publisher", [&] {
    for (int i = 1; i <= kChanges; ++i) {
      published.store(i, std::memory_order_relaxed);
      wakeup.Notify();
    }
  });
  while (published.load(std::memory_order_relaxed) < kChanges) wakeup.WaitUntil(Time::Infinite());
  publisher.Join();
  EXPECT_EQ(published.load(), kChanges);
}

TEST(CondVar, WakesTheWaiterAndHonoursItsDeadline) {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  const MonotonicClock clock;
  {
    MutexLock lock(mutex);
    EXPECT_FALSE(changed.WaitUntil(mutex, clock.Now()));
  }
  Thread setter("setter", [&] {
    MutexLock lock(mutex);
    ready = true;
    changed.NotifyAll();
  });
  MutexLock lock(mutex);
  while (!ready) changed.Wait(mutex);
  EXPECT_TRUE(ready);
}

}  // namespace
}  // namespace sluice
