// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ctl/show/preview_grid.h"

namespace spdld::ctl {

inline std::array<int, 3> pixel(const Picture& picture, std::uint32_t x, std::uint32_t y) {
  const std::uint8_t* at = &picture.rgb[(std::size_t{y} * picture.width + x) * 3];
  return {at[0], at[1], at[2]};
}

}  // namespace spdld::ctl
