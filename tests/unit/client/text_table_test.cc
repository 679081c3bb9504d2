// SPDX-FileCopyrightText: The Sluice Authors
// SPDX-License-Identifier: Apache-2.0
#include "client/text_table.h"

#include <gtest/gtest.h>

namespace sluice::client {
namespace {

// Goal: columns line up, numbers to the right, and no cell can move the cursor. Method: a table with all of these.
TEST(TextTable, LinesUp) {
  TextTable table({"name", "n"});
  table.AddRow({"a", "1"});
  table.AddRow({"long\x1b", "1000*"});
  table.AddRow({"b"});
  EXPECT_EQ(table.Render(),
            "name   n\n"
            "a      1\n"
            "long?  1000*\n"
            "b\n");
  TextTable numbers({"n"});
  numbers.AddRow({"1"});
  numbers.AddRow({"1000*"});
  EXPECT_EQ(numbers.Render(), "    n\n    1\n1000*\n");
}

}  // namespace
}  // namespace sluice::client
