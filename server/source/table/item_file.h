// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/table_spec.h"
#include "source/bytes/read_some.h"
#include "source/file/access.h"
#include "source/file/source_options.h"
#include "source/item/columns.h"

namespace spdld::source {

// What a file says of a dataset's items: a row each, in their order.
struct ItemRows {
  Columns columns;  // the parts' uris first, as texts; then the values
  std::vector<std::string> classes;
  // The numbers that the file itself has for the classes; empty: it has none, or the same.
  std::vector<std::int64_t> category_ids;
};

// A file that lists items, such as a table, and how it is read.
struct ItemFile {
  std::string path;
  std::string root;                // what its uris are relative to
  std::string root_key;            // the YAML's name of that, for messages
  std::vector<std::string> parts;  // the fields whose bytes are files'
  // The fields that a row need not have; the column NAME_present tells which have one.
  std::set<std::string> optional;
  std::string class_field;      // whose values are class numbers; empty: there is none
  std::string key;              // all that the rows depend on but the file itself
  std::uint64_t max_bytes = 0;  // of the file
  // Adds to options.warnings what was left out.
  // Asks `memory` while the rows grow.
  std::function<Result<ItemRows>(ReadSome read, const Access& access, SourceOptions& options,
                                 const ListingMemory::SharePtr& memory)>
      read;
};

ItemFile item_file(const TableSpec& spec);
ItemFile item_file(const CocoSpec& spec);

}  // namespace spdld::source
