// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spdld::engine {

// What becomes of rows that a stage rejects.
struct Rejection {
  bool replaces = true;  // another item takes the place; else the row stays, and is not valid
  std::string place;     // of the stage, file:line:col
  std::string stage;
};

}  // namespace spdld::engine
