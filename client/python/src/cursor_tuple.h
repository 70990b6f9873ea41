// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "spdld/batch.h"

namespace spdld::python {

// A cursor as _state.py has it.
using CursorTuple = std::tuple<std::string, std::int64_t, std::uint64_t, std::uint64_t,
                               std::uint64_t, std::uint64_t, std::uint32_t, std::uint64_t>;

inline CursorTuple cursor_tuple(const Cursor& at) {
  return {at.order_digest, at.seed, at.epoch, at.position, at.step, at.run, at.branch, at.turn};
}

}  // namespace spdld::python
