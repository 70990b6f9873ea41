// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "source/item/item_bytes.h"
#include "source/item/part_bytes.h"

namespace spdld::source {

// What becomes of a range of a file that has an index.
enum class Likeness {
  kSame,     // the file is what the index saw
  kOther,    // it is not
  kUnknown,  // its size and time of change are, and its content has to be compared
};

// What is known of a file without reading it, whose stamp is `now`. `how`, for kOther: in what way
// it differs, as not_as_listed() takes it.
Likeness likeness(const ExpectedContent& expected, const ItemStamp& now, std::string& how);

// Compares the content of `part`, which is open, with the index, and remembers what has come out
// for as long as the file's stamp tells any change; `clock_ns` is the wall clock now. kDataLoss: it
// differs, and the message is as `how` above; kUnavailable: it changed meanwhile; other errors are
// those of reading it. Blocks.
Status compare_content(const ExpectedContent& expected, PartBytes& part, std::int64_t clock_ns);

}  // namespace spdld::source
