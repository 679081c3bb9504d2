// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "gpu/gate.h"
#include "tests/unit/gpu/lane/gate_fixture.h"

namespace sluice::gpu {
namespace {

/// A gate of 15 us of handover and a window of 60, without a floor.
class GateHandoverTest : public ::testing::Test {
 protected:
  static GateOptions Options() {
    GateOptions options;
    options.batch_min_share = 0;
    options.handover = Microseconds(15);
    return options;
  }
  GateHandoverTest() { gate_.SetLatencyCapable(true); }
  bool Granted(Engine engine, int64_t predicted_us, int64_t now_us) {
    return gate_.TryGrant(engine, kBatch, Microseconds(predicted_us), At(now_us)).granted;
  }

  Gate gate_{Options()};
};

TEST_F(GateHandoverTest, SuccessorOfALongUnitIsGrantedShortlyBeforeItsEnd) {
  // Goal: units that do not fit into the window together follow each other without a pause, and what is in flight is
  // never predicted to take longer than the handover and one unit.
  // Method: ask before, at and after the moment when 15 of 50 us are left; the second one runs from the end of the
  // first.
  EXPECT_TRUE(Granted(Engine::kCompute, 50, 0));
  EXPECT_FALSE(Granted(Engine::kCompute, 50, 34));
  EXPECT_TRUE(Granted(Engine::kCompute, 50, 35));
  EXPECT_FALSE(Granted(Engine::kCompute, 50, 49));
  gate_.Complete(Engine::kCompute, kBatch, Microseconds(50), Microseconds(52), At(52));
  EXPECT_FALSE(Granted(Engine::kCompute, 50, 52 + 34));
  EXPECT_TRUE(Granted(Engine::kCompute, 50, 52 + 35));
}

TEST_F(GateHandoverTest, LongUnitFollowsTwoThatRunAtOnce) {
  // Goal: a long unit follows two others, which run at once on two streams, before either is seen to end; a short one,
  // of which the window takes several, does not, and nothing follows three, however long they are overdue. Method: 15
  // us are left of two units of 60 and 46 us, by the time that has passed since the second was granted.
  EXPECT_TRUE(Granted(Engine::kCompute, 60, 0));
  EXPECT_TRUE(Granted(Engine::kCompute, 46, 45));
  EXPECT_FALSE(Granted(Engine::kCompute, 46, 45 + 90));
  EXPECT_FALSE(Granted(Engine::kCompute, 45, 45 + 91));
  EXPECT_TRUE(Granted(Engine::kCompute, 46, 45 + 91));
  EXPECT_FALSE(Granted(Engine::kCompute, 46, 1'000'000));
}

TEST_F(GateHandoverTest, TokensComeBeforeTheHandover) {
  // Goal: rule 1 holds for a successor too. Method: a token that will be ready before the successor would be over, and
  // one that is on the device.
  EXPECT_TRUE(Granted(Engine::kCompute, 50, 0));
  const GateToken token = gate_.Announce(At(30), At(90));
  EXPECT_FALSE(Granted(Engine::kCompute, 50, 40));
  gate_.EnterDevice(token);
  EXPECT_FALSE(Granted(Engine::kCompute, 5, 45));
  gate_.Release(token, true);
  EXPECT_TRUE(Granted(Engine::kCompute, 50, 46));
}

TEST_F(GateHandoverTest, CopiesHaveNone) {
  // Goal: the copy engines' window counts chunks and nothing else. Method: a third one, long after the first two.
  EXPECT_TRUE(Granted(Engine::kHostToDevice, 20, 0));
  EXPECT_TRUE(Granted(Engine::kHostToDevice, 20, 0));
  EXPECT_FALSE(Granted(Engine::kHostToDevice, 20, 1'000));
}

}  // namespace
}  // namespace sluice::gpu
