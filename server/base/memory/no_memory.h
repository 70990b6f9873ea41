// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spdld {

// Lack of memory is no fault of the data: where it occurs on an item's way from its source to its
// row, the Status has this code, which nothing else on that way uses. The row is then tried again
// alone; if that fails too, the job fails. The item is never replaced.
inline constexpr Code kNoMemory = Code::kAborted;

// "there is no memory for WHAT", or "... for the BYTES bytes of WHAT" where the number is known.
inline Status no_memory(std::string_view what, std::uint64_t bytes = 0) {
  std::string text = "there is no memory for ";
  if (bytes > 0) text += "the " + std::to_string(bytes) + " bytes of ";
  return Status(kNoMemory, text.append(what));
}

}  // namespace spdld
