// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/text/printable.h"

namespace spdld::media {

// How a file begins, for the message that says that it is not what was expected.
inline std::string seen_bytes(std::string_view file) {
  return "\"" + printable(file.substr(0, 16)) + "\"";
}

}  // namespace spdld::media
