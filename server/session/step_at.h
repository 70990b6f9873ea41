// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace spdld::session {

// A place among a job's steps.
struct StepAt {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;

  friend auto operator<=>(const StepAt&, const StepAt&) = default;
};

// "epoch 2, step 17"
inline std::string place_text(StepAt at) {
  return "epoch " + std::to_string(at.epoch) + ", step " + std::to_string(at.step);
}

}  // namespace spdld::session
