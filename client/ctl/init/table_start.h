// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace spdld::ctl {

// What a table begins with.
struct TableStart {
  struct Column {
    std::string name;
    // Of the rows that have it: of CSV texts, none of which is empty; of JSON Lines what they are,
    // but null.
    std::vector<nlohmann::ordered_json> cells;
  };
  std::vector<Column> columns;
  std::size_t rows = 0;
  std::uint64_t about_rows = 0;  // in the whole table, as the first ones are long
  bool whole = false;            // there are no more rows

  bool is_in_each_row(const Column& column) const { return column.cells.size() == rows; }
};

// The first rows of a CSV or TSV file, whose first line names the columns, or of JSON Lines, by the
// ending of `path`. Throws Failure (kWrongUsage), which names the file: it cannot be read, or has
// no row.
TableStart read_table_start(const std::string& path);

}  // namespace spdld::ctl
