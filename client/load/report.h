// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "client/load/load_run.h"
#include "client/load/summary.h"
#include "nlohmann/json_fwd.hpp"

namespace sluice::client {

/// The machine that made the load: it limits what can be measured.
struct MachineInfo {
  int usable_cores = 0;
  std::string cpu_model;
};
MachineInfo ReadMachineInfo();

/// The tables and the ratios as text, for a person.
std::string TextReport(const LoadOptions& options, const MachineInfo& machine, const std::vector<PhaseResult>& phases,
                       const LoadSummary& summary);

/// The same and more, for a program. Times are in milliseconds and end in _ms; absent values are null.
nlohmann::json JsonReport(const LoadOptions& options, const MachineInfo& machine,
                          const std::vector<PhaseResult>& phases, const LoadSummary& summary);

}  // namespace sluice::client
