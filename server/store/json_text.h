// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace spdld::store {

// A text for people of values that may hold names that are not UTF-8: their bytes are replaced.
inline std::string shown_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace spdld::store
