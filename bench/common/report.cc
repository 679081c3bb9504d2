// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/common/report.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::bench {
bool CaseReport::Within() const {
  return submitted_ == answered_ &&
         std::all_of(verdicts_.begin(), verdicts_.end(), [](const Verdict& verdict) { return verdict.Within(); });
}

std::string CaseReport::ToText() const {
  std::map<int, std::vector<nlohmann::ordered_json>> tables;
  for (const auto& [table, row] : rows_) tables[table].push_back(row);
  std::string text = absl::StrCat("== ", name_, "\n");
  for (const auto& [number, rows] : tables) absl::StrAppend(&text, number == 0 ? "" : "\n", RenderTable(rows));
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

}  // namespace sluice::bench
