// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
// Runs simulations of the scheduler cores and the gate. Without arguments: the fixed seeds, then random ones for a
// few seconds. With --planted: that the checkers find each planted bug. The fault model is at the top of scenario.h.
#include <unistd.h>

#include <algorithm>
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
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "tests/sim/planted.h"
#include "tests/sim/scenario.h"
#include "tests/sim/simulation.h"

namespace sluice::sim {
namespace {

/// Seeds 1 to `count` of a kind.
struct FixedSeeds {
  ScenarioKind kind;
  uint64_t count;
};
constexpr FixedSeeds kFixedSeeds[] = {{ScenarioKind::kGeneral, 120},
                                      {ScenarioKind::kFloor, 8},
                                      {ScenarioKind::kBlocker, 20},
                                      {ScenarioKind::kOverload, 12}};
/// Seeds beyond those, which once failed.
struct FoundSeed {
  ScenarioKind kind;
  uint64_t seed;
};
constexpr FoundSeed kFoundSeeds[] = {
    {ScenarioKind::kBlocker, 45},   // An owed batch unit's turn ended before the standard unit in its way.
    {ScenarioKind::kOverload, 19},  // Goodput 0.02: nothing was learnt from executions cut short.
    {ScenarioKind::kOverload, 97},  // Goodput 0.57: admission without headroom.
};
/// A planted bug must be found by a seed up to this one.
constexpr uint64_t kPlantedSeedCount = 200;
/// Among many seeds one in this many is also run as each special kind.
constexpr uint64_t kSpecialKindEvery = 100;

/// Each planted bug, and the kind of scenario that must find it.
struct Hunt {
  Plant plant;
  ScenarioKind kind = ScenarioKind::kGeneral;
};
constexpr Hunt kHunts[] = {
    {Plant::kLostCompletion},
    {Plant::kWindowOffByOne},
    {Plant::kChunkWindowOffByOne},
    {Plant::kStarvedBatch, ScenarioKind::kFloor},
    {Plant::kLapsedTokenKept},
    {Plant::kLapsedTokenLeaked},
    {Plant::kAnsweredTwice},
    {Plant::kLateLimit},
    {Plant::kLateLimit, ScenarioKind::kBlocker},
    {Plant::kUnwantedGoesOn},
    {Plant::kUnwantedGoesOn, ScenarioKind::kBlocker},
    {Plant::kUngatedUnit},
    {Plant::kTokensIgnored},
    {Plant::kLostWakeup},
    {Plant::kOvertaking},
    {Plant::kShortPredictions, ScenarioKind::kOverload},
    {Plant::kCountedTwice},
};

struct Options {
  std::string program;
  uint64_t seed = 0, first = 0, runs = 0;
  bool one_seed = false, first_given = false, runs_given = false, planted = false;
  ScenarioKind kind = ScenarioKind::kGeneral;
  Plant plant = Plant::kNone;
  int seconds = 0;  ///< 0: no limit, or the default for random seeds.
  int request_count = 0;
  bool verbose = false;
};
constexpr int kDefaultSeconds = 3;

void PrintTotals(const Scenario& scenario, Simulation& simulation) {
  std::printf("%s\n", Describe(scenario).c_str());
  for (const RequestClass request_class : kRequestClasses) {
    const ClassTotals& totals = simulation.totals(request_class);
    std::printf("  %-8s submitted %lu refused %lu completed %lu expired %lu cancelled %lu failed %lu\n",
                std::string(RequestClassName(request_class)).c_str(), totals.submitted, totals.refused,
                totals.completed, totals.expired, totals.cancelled, totals.failed);
  }
  const gpu::GateCounters& gate = simulation.gate_counters();
  std::printf("  gate     granted %lu refused %lu owed %lu lapsed %lu; %s of virtual time\n", gate.granted,
              gate.refused, gate.owed_grants, gate.lapsed_tokens, absl::FormatDuration(simulation.duration()).c_str());
  if (simulation.goodput() > 0) std::printf("  goodput  %.3f of what the device can do\n", simulation.goodput());
}

std::string ReplayCommand(const Options& options, ScenarioKind kind, uint64_t seed) {
  std::string replay = absl::StrCat(options.program, " --seed=", seed);
  if (kind != ScenarioKind::kGeneral) absl::StrAppend(&replay, " --scenario=", ScenarioWord(kind));
  if (options.request_count > 0) absl::StrAppend(&replay, " --requests=", options.request_count);
  if (options.plant != Plant::kNone) absl::StrAppend(&replay, " --plant=", PlantWord(options.plant));
  return replay;
}

bool RunOne(const Options& options, ScenarioKind kind, uint64_t seed) {
  Scenario scenario = MakeScenarioOf(kind, seed, options.request_count);
  scenario.plant = options.plant;
  Simulation simulation(scenario);
  const bool passed = simulation.Run();
  if (options.verbose || !passed) PrintTotals(scenario, simulation);
  if (!passed) {
    std::printf("FAILED with seed %lu %s\nreplay: %s\n", seed, simulation.failure().c_str(),
                ReplayCommand(options, kind, seed).c_str());
  }
  return passed;
}

bool RunFixed(const Options& options) {
  for (const auto& [kind, count] : kFixedSeeds) {
    for (uint64_t seed = 1; seed <= count; ++seed) {
      if (!RunOne(options, kind, seed)) return false;
    }
    std::printf("%lu fixed seeds of scenario %s passed\n", count, std::string(ScenarioWord(kind)).c_str());
  }
  for (const auto& [kind, seed] : kFoundSeeds) {
    if (!RunOne(options, kind, seed)) return false;
  }
  return true;
}

/// A line that says how far it has come, if somebody watches.
class Progress {
 public:
  void Show(Time now, uint64_t count, uint64_t total) {
    if (!shows_ || now < next_) return;
    next_ = now + absl::Milliseconds(500);
    std::printf("\r%lu of %lu seeds ", count, total);
    std::fflush(stdout);
    shown_ = true;
  }
  ~Progress() {
    if (shown_) std::printf("\r\033[K");
  }

 private:
  const bool shows_ = isatty(STDOUT_FILENO) != 0;
  bool shown_ = false;
  Time next_;
};

/// Seeds from `first` on, until `runs` (0: any number) or the time (0: any) is used up.
bool RunMany(const Options& options, uint64_t first, int seconds) {
  const MonotonicClock clock;
  const Time start = clock.Now();
  const Time until = seconds > 0 ? start + absl::Seconds(seconds) : Time::Infinite();
  uint64_t count = 0;
  {
    Progress progress;
    for (; options.runs == 0 || count < options.runs; ++count) {
      const Time now = clock.Now();
      if (now >= until) break;
      if (options.runs > 0) progress.Show(now, count, options.runs);
      const uint64_t seed = first + count;
      if (!RunOne(options, options.kind, seed)) return false;
      if (options.kind != ScenarioKind::kGeneral || count % kSpecialKindEvery != 0) continue;
      for (const ScenarioKind kind : {ScenarioKind::kFloor, ScenarioKind::kBlocker, ScenarioKind::kOverload}) {
        if (options.runs > 0 && !RunOne(options, kind, seed)) return false;
      }
    }
  }
  std::printf("%lu seeds from %lu passed in %.0f s\n", count, first, absl::ToDoubleSeconds(clock.Now() - start));
  return true;
}

uint64_t RandomSeed() {
  std::random_device entropy;
  return (uint64_t{entropy()} << 20) & 0xffff'ffff'ffff;
}

/// Each planted bug must be found; says by which seed and which check.
bool RunPlanted(Options options) {
  bool found_all = true;
  for (const Hunt& hunt : kHunts) {
    bool found = false;
    const std::string name(PlantWord(hunt.plant)), kind(ScenarioWord(hunt.kind));
    for (uint64_t seed = 1; !found && seed <= kPlantedSeedCount; ++seed) {
      Scenario scenario = MakeScenarioOf(hunt.kind, seed, options.request_count);
      scenario.plant = hunt.plant;
      Simulation simulation(scenario);
      found = !simulation.Run();
      if (found) {
        std::printf("%-23s %-8s seed %3lu: %s\n", name.c_str(), kind.c_str(), seed, simulation.failure().c_str());
      }
    }
    if (!found) std::printf("%-23s %-8s NOT FOUND in %lu seeds\n", name.c_str(), kind.c_str(), kPlantedSeedCount);
    found_all = found_all && found;
  }
  return found_all;
}

constexpr char kUsage[] =
    "usage: %s [--seed=N | --first=N --runs=N | --runs=N | --planted] [--seconds=S] [--scenario=WORD]\n"
    "          [--plant=NAME] [--requests=N] [--verbose]\n"
    "  --seed=N         this seed\n"
    "  --first=N        seeds from this one on; --runs=N: how many (random ones without --first)\n"
    "  --planted        each planted bug must be found\n"
    "  --seconds=S      no new seed after this time\n"
    "  --scenario=WORD  general, floor, blocker or overload\n"
    "  --plant=NAME     with this bug, which should be found: ";

void PrintUsage(const char* program) {
  std::printf(kUsage, program);
  for (const PlantName& each : kPlants) {
    std::printf("\n    %-23s %s", std::string(each.name).c_str(), std::string(each.what).c_str());
  }
  std::printf("\n");
}

bool ParseWord(absl::string_view argument, Options& options) {
  if (absl::ConsumePrefix(&argument, "--scenario=")) {
    const auto word = std::find(kScenarioWords.begin(), kScenarioWords.end(), argument);
    options.kind = static_cast<ScenarioKind>(word - kScenarioWords.begin());
    return word != kScenarioWords.end();
  }
  if (absl::ConsumePrefix(&argument, "--plant=")) {
    options.plant = PlantOf(argument).value_or(Plant::kNone);
    return options.plant != Plant::kNone;
  }
  return false;
}

bool ParseArgument(absl::string_view argument, Options& options) {
  const auto number = [&](absl::string_view name, auto& value) {
    if (!absl::StartsWith(argument, name)) return false;
    return absl::SimpleAtoi(argument.substr(name.size()), &value);
  };
  if (number("--seed=", options.seed)) return options.one_seed = true;
  if (number("--first=", options.first)) return options.first_given = true;
  if (number("--runs=", options.runs)) return options.runs_given = true;
  if (argument == "--planted") return options.planted = true;
  if (argument == "--verbose") return options.verbose = true;
  return number("--seconds=", options.seconds) || number("--requests=", options.request_count) ||
         ParseWord(argument, options);
}

bool Run(const Options& options) {
  if (options.planted) return RunPlanted(options);
  if (options.one_seed) return RunOne(options, options.kind, options.seed);
  if (options.first_given) return RunMany(options, options.first, options.seconds);
  if (options.runs_given) return RunMany(options, RandomSeed(), options.seconds);
  return RunFixed(options) && RunMany(options, RandomSeed(), options.seconds > 0 ? options.seconds : kDefaultSeconds);
}

int Main(int argc, char** argv) {
  Options options{.program = argv[0]};
  for (const absl::string_view argument : std::vector<absl::string_view>(argv + 1, argv + argc)) {
    if (!ParseArgument(argument, options)) {
      PrintUsage(argv[0]);
      return argument == "--help" ? EXIT_SUCCESS : 2;
    }
  }
  const bool passed = Run(options);
  std::printf(passed ? "PASSED\n" : "FAILED\n");
  return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace sluice::sim

int main(int argc, char** argv) { return sluice::sim::Main(argc, argv); }
