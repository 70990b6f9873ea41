// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "source/item/columns.h"
#include "source/item/item_bytes.h"

namespace spdld::source {

// What was read of a table, and which content of its file that was.
struct KeptColumns {
  Columns columns;
  std::vector<std::int64_t> category_ids = {};  // as ItemRows has them
  ItemStamp file = {};
};

// Keeps a table's columns in a file, so that what was applied can be opened again. Little-endian
// (source/bytes/binary.h):
//
//   "SPDLCOL1"                      the format's name and version
//   u64, i64                        the table's size in bytes and mtime in ns
//   u64 n, n × i64                  category ids
//   Columns::write()
//   u64                             XXH3 of all before
//
// Replaces `path` as a whole or not at all; it is on the disk on return.
Status save_columns(const KeptColumns& table, const std::string& path);
// kNotFound: there is none; kDataLoss: there is something else.
Result<KeptColumns> load_columns(const std::string& path);

}  // namespace spdld::source
