// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/text_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace sluice::client {
namespace {

// A number, perhaps with a mark behind it, or "-" for a number that is missing.
bool LooksNumeric(const std::string& cell) {
  return !cell.empty() && cell.find_first_not_of("0123456789.-+*eE%") == std::string::npos;
}

}  // namespace

TextTable::TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void TextTable::AddRow(std::vector<std::string> cells) {
  cells.resize(rows_.front().size());
  for (std::string& cell : cells) {
    for (char& c : cell) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::Render() const {
  const size_t columns = rows_.front().size();
  std::vector<size_t> width(columns, 0);
  std::vector<bool> numeric(columns, rows_.size() > 1);
  for (size_t row = 0; row < rows_.size(); ++row) {
    for (size_t column = 0; column < columns; ++column) {
      width[column] = std::max(width[column], rows_[row][column].size());
      if (row > 0 && !LooksNumeric(rows_[row][column])) numeric[column] = false;
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t column = 0; column < columns; ++column) {
      if (column > 0) line += "  ";
      const std::string padding(width[column] - row[column].size(), ' ');
      line += numeric[column] ? padding + row[column] : row[column] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace sluice::client
