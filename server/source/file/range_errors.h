// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "source/item/item_bytes.h"

namespace spdld::source {

// What an open or a read that failed means to the row that asked. Values; any thread.
struct RangeError {
  bool is_transient = false;  // the same may work later
  Status status;
};

// `what` failed with `err` on `path`, where `range` lies. `why`: what the disk says of the cause;
// empty: no more than `err`.
RangeError range_error(int err, const char* what, const std::string& path, const FileRange& range,
                       const std::string& why = {});

// The file at `path` is not what the listing saw, or changes while it is read: `how` follows the
// path in the message.
Status not_as_listed(const std::string& path, const FileRange& range, const std::string& how);
// Such a `how`: " has changed since it was indexed: 10240 bytes of 2026-01-31 12:00:00 then, ...".
std::string changed_text(const ItemStamp& listed, const ItemStamp& now);

}  // namespace spdld::source
