// SPDX-License-Identifier: Apache-2.0
#include "loop_times.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace spdld::client {
namespace {

std::size_t length_of(std::chrono::nanoseconds wait) {
  const auto is_shorter = [](std::uint64_t bound_ms, std::chrono::nanoseconds than) {
    return std::chrono::milliseconds(bound_ms) < than;
  };
  const auto* const bound = std::lower_bound(std::begin(wire::kWaitBoundsMs),
                                             std::end(wire::kWaitBoundsMs), wait, is_shorter);
  return static_cast<std::size_t>(bound - std::begin(wire::kWaitBoundsMs));
}

}  // namespace

void LoopTimes::asks(SteadyTime now) {
  asked_ = now;
  if (given_) between_ += now - *std::exchange(given_, std::nullopt);
}

void LoopTimes::waits_now() {
  waiting_ = true;
  ++waits_;
}

void LoopTimes::is_answered(SteadyTime now, bool with_batch) {
  if (std::exchange(waiting_, false)) {
    waited_ += now - asked_;
    ++by_length_[length_of(now - asked_)];
  }
  if (with_batch) given_ = now;
}

std::chrono::nanoseconds LoopTimes::waited(SteadyTime now) const {
  return waiting_ ? waited_ + (now - asked_) : waited_;
}

}  // namespace spdld::client
