// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace spdld::source {

// The bytes' XXH3 of 128 bits: 32 hex digits. Stands in users' cursors and in file names.
std::string digest_text(std::string_view bytes);

}  // namespace spdld::source
