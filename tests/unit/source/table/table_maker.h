// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "source/table/table_reader.h"
#include "tests/unit/source/read_of.h"

namespace spdld::source {

// A table with the items' files in the column `path`.
inline TableSpec table_spec(const std::string& file = "/data/t.csv") {
  return {.file = file, .uris = {{.field = "image", .column = "path"}}};
}

inline TableSpec spec_with_values(const std::string& file,
                                  const std::vector<TableSpec::Value>& values) {
  TableSpec spec = table_spec(file);
  spec.values = values;
  return spec;
}

inline TableSpec spec_with_label(const std::string& file, const std::string& column = "label") {
  TableSpec spec = table_spec(file);
  spec.label = TableSpec::Label{.column = column};
  return spec;
}

inline std::string table_error(const TableSpec& spec, const std::string& text,
                               const TableOptions& options = {}) {
  const Result<Table> table = read_table(spec, read_of(text), options);
  if (!table) return table.error().message();
  ADD_FAILURE() << "no error for: " << text.substr(0, 200);
  return "";
}

// All of a column, whose type must be that of T.
template <typename T>
std::vector<T> column_of(const Columns& columns, const std::string& name) {
  std::vector<T> all;
  const auto column = columns.find(name);
  if (!column) {
    ADD_FAILURE() << "no column " << name;
    return all;
  }
  for (std::uint64_t row = 0; row < columns.rows(); ++row) {
    const Value value = columns.value(row, *column);
    if constexpr (std::is_same_v<T, std::string>) {
      all.emplace_back(std::get<std::string_view>(value));
    } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
      const auto list = std::get<std::span<const std::int64_t>>(value);
      all.emplace_back(list.begin(), list.end());
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      const auto list = std::get<std::span<const double>>(value);
      all.emplace_back(list.begin(), list.end());
    } else {
      all.push_back(std::get<T>(value));
    }
  }
  return all;
}

}  // namespace spdld::source
