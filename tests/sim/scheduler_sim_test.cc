// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Runs simulations of the scheduler cores and the gate. Without arguments: the fixed seeds, then random ones for a
// few seconds. The fault model is at the top of scenario.h.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "tests/sim/scenario.h"
#include "tests/sim/simulation.h"

namespace sluice::sim {
namespace {

constexpr uint64_t kFixedSeedCount = 120;
constexpr uint64_t kFloorSeedCount = 8;

struct Options {
  std::string program;
  bool one_seed = false;
  uint64_t seed = 0;
  bool floor = false;
  uint64_t runs = 0;
  int seconds = 3;
  int request_count = 0;
  bool verbose = false;
};

bool RunOne(const Options& options, uint64_t seed, bool floor) {
  const Scenario scenario = floor ? MakeFloorScenario(seed) : MakeScenario(seed, options.request_count);
  Simulation simulation(scenario);
  const bool passed = simulation.Run();
  if (options.verbose || !passed) {
    std::printf("%s\n", Describe(scenario).c_str());
    for (const RequestClass request_class : kRequestClasses) {
      const ClassTotals& totals = simulation.totals(request_class);
      std::printf("  %-8s submitted %lu refused %lu completed %lu expired %lu cancelled %lu failed %lu\n",
                  std::string(RequestClassName(request_class)).c_str(), totals.submitted, totals.refused,
                  totals.completed, totals.expired, totals.cancelled, totals.failed);
    }
    const gpu::GateCounters& gate = simulation.gate_counters();
    std::printf("  gate     granted %lu refused %lu owed %lu; %s of virtual time\n", gate.granted, gate.refused,
                gate.owed_grants, absl::FormatDuration(simulation.duration()).c_str());
  }
  if (!passed) {
    std::string replay = absl::StrCat(options.program, " --seed=", seed);
    if (floor) absl::StrAppend(&replay, " --floor");
    if (options.request_count > 0) absl::StrAppend(&replay, " --requests=", options.request_count);
    std::printf("FAILED with seed %lu %s\nreplay: %s\n", seed, simulation.failure().c_str(), replay.c_str());
  }
  return passed;
}

bool RunFixed(const Options& options) {
  for (uint64_t seed = 1; seed <= kFixedSeedCount; ++seed) {
    if (!RunOne(options, seed, false)) return false;
  }
  for (uint64_t seed = 1; seed <= kFloorSeedCount; ++seed) {
    if (!RunOne(options, seed, true)) return false;
  }
  std::printf("%lu fixed seeds and %lu of the floor passed\n", kFixedSeedCount, kFloorSeedCount);
  return true;
}

/// Until `runs` (0: any number) or the time is used up.
bool RunRandom(const Options& options) {
  std::random_device entropy;
  const uint64_t first = (uint64_t{entropy()} << 20) & 0xffff'ffff'ffff;
  std::printf("random seeds from %lu\n", first);
  const MonotonicClock clock;
  const Time until = clock.Now() + absl::Seconds(options.seconds);
  uint64_t count = 0;
  while ((options.runs == 0 || count < options.runs) && clock.Now() < until) {
    if (!RunOne(options, first + count, false)) return false;
    ++count;
  }
  std::printf("%lu random seeds passed\n", count);
  return true;
}

bool ParseArgument(absl::string_view argument, Options& options) {
  const auto number = [&](absl::string_view name, auto& value) {
    if (!absl::StartsWith(argument, name)) return false;
    return absl::SimpleAtoi(argument.substr(name.size()), &value);
  };
  if (number("--seed=", options.seed)) return options.one_seed = true;
  if (argument == "--floor") return options.floor = true;
  if (argument == "--verbose") return options.verbose = true;
  return number("--runs=", options.runs) || number("--seconds=", options.seconds) ||
         number("--requests=", options.request_count);
}

int Main(int argc, char** argv) {
  Options options{.program = argv[0]};
  bool runs_given = false;
  for (const absl::string_view argument : std::vector<absl::string_view>(argv + 1, argv + argc)) {
    runs_given = runs_given || absl::StartsWith(argument, "--runs=");
    if (!ParseArgument(argument, options)) {
      std::printf("usage: %s [--seed=N [--floor]] [--runs=N] [--seconds=S] [--requests=N] [--verbose]\n", argv[0]);
      return EXIT_FAILURE;
    }
  }
  bool passed = true;
  if (options.one_seed) {
    passed = RunOne(options, options.seed, options.floor);
  } else {
    passed = (runs_given || RunFixed(options)) && RunRandom(options);
  }
  std::printf(passed ? "PASSED\n" : "FAILED\n");
  return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace sluice::sim

int main(int argc, char** argv) { return sluice::sim::Main(argc, argv); }
