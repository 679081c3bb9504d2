// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "base/clock.h"
#include "gpu/device.h"
#include "tests/support/faulty_device.h"

// Fault model: see tests/support/faulty_device.h. A sweep runs a scenario once for each device call that it makes, each
// time with that call failing, and once more for each with the device lost at it.
namespace sluice::gpu {

/// The two host devices: unified memory, and copiers, where copies are real.
enum class HostKind { kUnified, kCopiers };
std::unique_ptr<FaultyDevice> MakeFaultyHost(HostKind kind, const Clock& clock);

/// Runs the scenario on a fresh device and drops all it made. Returns its first error; checks its own results.
using Scenario = std::function<absl::Status(FaultyDevice& device)>;

/// For every k: the k-th call fails; the scenario returns that error (or has its full result, which it checks: waits
/// and queries may be repeated, and a failed destroy is nobody's error); nothing made on the device is left; and the
/// scenario then succeeds on the same device.
void SweepFailures(HostKind kind, const Scenario& scenario);

/// For every k: the device is lost at the k-th call; the scenario ends, with UNAVAILABLE or its full result; nothing is
/// left; the device stays lost.
void SweepLosses(HostKind kind, const Scenario& scenario);

}  // namespace sluice::gpu
