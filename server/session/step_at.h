// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

namespace spdld::session {

// A place among a job's steps.
struct StepAt {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;

  friend auto operator<=>(const StepAt&, const StepAt&) = default;
};

}  // namespace spdld::session
