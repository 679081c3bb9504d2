// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/common/output.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/text_table.h"

namespace sluice::bench {
namespace {

std::string Cell(const nlohmann::ordered_json& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end() || found->is_null()) return "-";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_number_float()) return found->dump();
  const double value = found->get<double>();
  const int digits = std::abs(value) < 10 ? 3 : std::abs(value) < 1000 ? 1 : 0;
  return absl::StrFormat("%.*f", digits, value);
}

}  // namespace

std::string RenderTable(const std::vector<nlohmann::ordered_json>& rows) {
  std::vector<std::string> columns;
  for (const auto& row : rows) {
    for (const auto& [column, value] : row.items()) {
      if (std::find(columns.begin(), columns.end(), column) == columns.end()) columns.push_back(column);
    }
  }
  client::TextTable table(columns);
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& column : columns) cells.push_back(Cell(row, column));
    table.AddRow(std::move(cells));
  }
  return table.Render();
}

bool WriteJson(absl::string_view program, const std::string& path, const nlohmann::ordered_json& document, int indent) {
  if (path.empty()) return true;
  if (path == "-") {
    std::cout << document.dump(indent) << "\n";
    return true;
  }
  std::ofstream file(path);
  file << document.dump(indent) << "\n";
  if (file.flush()) return true;
  std::cerr << program << ": cannot write '" << path << "'\n";
  return false;
}

ProgressLine::ProgressLine(std::string name) : name_(std::move(name)), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (terminal_) std::cerr << "\r\x1b[K" << std::flush;
}

void ProgressLine::Say(absl::string_view what) {
  std::cerr << (terminal_ ? "\r\x1b[K" : "") << name_ << ": " << what << (terminal_ ? "" : "\n") << std::flush;
}

}  // namespace sluice::bench
