// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "job/step_at.h"

// What the texts in the store have in common.
namespace spdld::store {

// What `read` makes of a text. It throws json's exceptions for a text that is not what it should
// be; they become DATA_LOSS.
template <typename Read>
auto parsed(const std::string& text, const Read& read) -> Result<decltype(read(nlohmann::json()))> {
  try {
    return read(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& broken) {
    return error(Code::kDataLoss, broken.what());
  }
}

// A text of what may hold names that are no UTF-8: for people, not to be read back byte by byte.
inline std::string shown_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

inline nlohmann::json step_json(job::StepAt at) { return {at.epoch, at.step}; }

inline job::StepAt step_of(const nlohmann::json& value) {
  return {value.at(0).get<std::uint64_t>(), value.at(1).get<std::uint64_t>()};
}

}  // namespace spdld::store
