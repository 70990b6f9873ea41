// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <string>

namespace spdld::job {

// A place among a job's steps.
struct StepAt {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;

  friend auto operator<=>(const StepAt&, const StepAt&) = default;
};

// Behind every step of a job.
inline constexpr StepAt kNever{.epoch = std::numeric_limits<std::uint64_t>::max(), .step = 0};

// "epoch 2, step 17"
inline std::string place_text(StepAt at) {
  return "epoch " + std::to_string(at.epoch) + ", step " + std::to_string(at.step);
}

}  // namespace spdld::job
