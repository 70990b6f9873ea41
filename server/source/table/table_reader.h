// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "op/table_spec.h"
#include "source/bytes/read_some.h"
#include "source/item/columns.h"

namespace spdld::source {

// What read_descriptor() is to let through of a table's file.
inline constexpr std::uint64_t kMaxTableFile = std::uint64_t{4} << 30;

struct TableOptions {
  // The names that spec.label->classes stands for; none: those that the column has.
  std::optional<std::vector<std::string>> classes = {};
  // What the fields may take in memory together; what is beyond is kResourceExhausted.
  std::uint64_t max_bytes = std::uint64_t{4} << 30;
  ListingMemory::SharePtr memory = nullptr;       // asked while they grow; null: nobody is
  std::size_t first_read = std::size_t{1} << 20;  // see RecordBuffer
};

// What a table says of its items, one a row, in its order.
struct Table {
  // By the names of the fields: the uris, as texts that item_uri() gave; then the label, if there
  // is one, as int64; then the values.
  Columns columns;
  std::vector<std::string> classes;  // in the order of their numbers; empty: labels have no names
};

// spec.root, or else the directory that the table lies in.
std::string table_root(const TableSpec& spec);

// spec.format, or else what the file's name ends in.
Result<TableSpec::Format> table_format(const TableSpec& spec);

// Reads all of a table in one go. It has at least one row; each has all columns that are named. An
// error about its contents begins with "file:line:column: ", counting characters.
Result<Table> read_table(const TableSpec& spec, ReadSome read, const TableOptions& options = {});

}  // namespace spdld::source
