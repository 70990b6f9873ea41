// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace spdld::stream {

// Measures the part of the time in which something stands still. Guarded by its owner.
class StallClock {
 public:
  explicit StallClock(const Clock& clock) : clock_(clock), watched_since_(clock.now()) {}

  bool running() const { return since_.has_value(); }
  void start() { since_ = clock_.now(); }
  void stop() {
    if (since_) stalled_ += clock_.now() - *std::exchange(since_, std::nullopt);
  }
  // Whether it ran for more than a fifth of the time since the last call.
  bool was_long() {
    const auto now = clock_.now();
    if (since_) stalled_ += now - *std::exchange(since_, now);
    const auto watched = now - std::exchange(watched_since_, now);
    return std::exchange(stalled_, std::chrono::nanoseconds(0)) * 5 > watched;
  }

 private:
  const Clock& clock_;
  std::optional<std::chrono::nanoseconds> since_;
  std::chrono::nanoseconds stalled_{0};
  std::chrono::nanoseconds watched_since_;
};

}  // namespace spdld::stream
