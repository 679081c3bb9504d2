// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/pipeline/report.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "absl/strings/str_cat.h"
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
  return absl::StrFormat(std::abs(value) < 10 ? "%.3f" : std::abs(value) < 1000 ? "%.1f" : "%.0f", value);
}

std::string Table(const std::vector<nlohmann::ordered_json>& rows) {
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

}  // namespace

bool CaseReport::Within() const {
  return submitted_ == answered_ &&
         std::all_of(verdicts_.begin(), verdicts_.end(), [](const Verdict& verdict) { return verdict.Within(); });
}

std::string CaseReport::ToText() const {
  std::map<int, std::vector<nlohmann::ordered_json>> tables;
  for (const auto& [table, row] : rows_) tables[table].push_back(row);
  std::string text = absl::StrCat("== ", name_, "\n");
  for (const auto& [number, rows] : tables) absl::StrAppend(&text, number == 0 ? "" : "\n", Table(rows));
  for (const std::string& note : notes_) absl::StrAppend(&text, note, "\n");
  for (const Verdict& verdict : verdicts_) {
    absl::StrAppend(&text, absl::StrFormat("target: %s %.3f, %s %.3f: %s\n", verdict.what, verdict.value,
                                           verdict.at_most ? "at most" : "at least", verdict.limit,
                                           !verdict.judged    ? "not judged here"
                                           : verdict.Within() ? "within"
                                                              : "OVER"));
  }
  absl::StrAppend(&text, "requests: ", submitted_, " sent, ", answered_, " answered\n");
  return text;
}

nlohmann::ordered_json CaseReport::ToJson() const {
  nlohmann::ordered_json verdicts = nlohmann::ordered_json::array();
  for (const Verdict& verdict : verdicts_) {
    verdicts.push_back({{"what", verdict.what},
                        {"value", verdict.value},
                        {verdict.at_most ? "at_most" : "at_least", verdict.limit},
                        {"judged", verdict.judged},
                        {"within", verdict.Within()}});
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& [table, row] : rows_) rows.push_back(row);
  return {{"case", name_},       {"within", Within()}, {"submitted", submitted_}, {"answered", answered_},
          {"targets", verdicts}, {"rows", rows},       {"notes", notes_}};
}

ProgressLine::ProgressLine(std::string name) : name_(std::move(name)), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (terminal_) std::cerr << "\r\x1b[K" << std::flush;
}

void ProgressLine::Say(absl::string_view what) {
  std::cerr << (terminal_ ? "\r\x1b[K" : "") << "pipeline: " << name_ << ": " << what << (terminal_ ? "" : "\n")
            << std::flush;
}

}  // namespace sluice::bench
