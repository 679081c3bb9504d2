// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace sluice::client {

/// Lines up cells in columns, numbers to the right. Not thread-safe.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  /// Missing cells are empty; cells beyond the header are dropped.
  void AddRow(std::vector<std::string> cells);
  /// The whole table, each line ended by a newline. Control characters in cells are shown as '?'.
  std::string Render() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // The first is the header.
};

}  // namespace sluice::client
