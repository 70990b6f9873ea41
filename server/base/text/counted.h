// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spdld {

// "1 item", "3 items", "2 classes": `many` where an "s" is not enough.
inline std::string counted(std::uint64_t count, std::string_view one, std::string_view many = {}) {
  std::string text = std::to_string(count) + " ";
  if (count == 1) return text.append(one);
  return many.empty() ? text.append(one).append("s") : text.append(many);
}

}  // namespace spdld
