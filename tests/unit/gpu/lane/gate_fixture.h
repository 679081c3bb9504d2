// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "base/clock.h"
#include "gpu/gate.h"

namespace sluice::gpu {

using absl::Microseconds;
using absl::Milliseconds;

inline constexpr RequestClass kStandard = RequestClass::kStandard;
inline constexpr RequestClass kBatch = RequestClass::kBatch;

inline Time At(int64_t microseconds) { return Time::FromNanoseconds(1'000'000'000 + microseconds * 1000); }

/// A gate with a latency-capable model, so that the window is 60 us.
class GateTest : public ::testing::Test {
 protected:
  GateTest() : GateTest(GateOptions()) {}
  explicit GateTest(const GateOptions& options) : gate_(options) {
    gate_.SetLatencyCapable(true);
    gate_.SetBatchPending(true, At(0));
  }
  bool Granted(Engine engine, RequestClass request_class, int64_t predicted_us, int64_t now_us) {
    return gate_.TryGrant(engine, request_class, Microseconds(predicted_us), At(now_us)).granted;
  }
  void Complete(Engine engine, RequestClass request_class, int64_t predicted_us, int64_t now_us) {
    gate_.Complete(engine, request_class, Microseconds(predicted_us), Microseconds(predicted_us), At(now_us));
  }

  Gate gate_;
};

class GateWithoutFloorTest : public GateTest {
 protected:
  static GateOptions Options() {
    GateOptions options;
    options.batch_min_share = 0;
    return options;
  }
  GateWithoutFloorTest() : GateTest(Options()) {}
};

}  // namespace sluice::gpu
