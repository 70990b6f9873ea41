// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "source/bytes/file_bytes.h"
#include "source/item/item_bytes.h"

namespace spdld::source {

// One part of an item, open: offsets count from its first byte, wherever in its file that lies.
class PartBytes : public FileBytes {
 public:
  // Of the file that the part lies in, as it is now; none: that cannot be told.
  virtual std::optional<ItemStamp> stamp() const = 0;
};

}  // namespace spdld::source
