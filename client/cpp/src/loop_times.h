// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

#include "spdld/wire.h"
#include "waiting.h"

namespace spdld::client {

// Where the time of a loop goes that calls next(): into waits for batches, and between a batch and
// the next call, into work of its own. A plain value of Stream's, for one thread at a time; `now`
// is read by its owner, once a call.
class LoopTimes {
 public:
  // next() is called; no batch is ready, and it waits; it returns or throws.
  void asks(SteadyTime now);
  void waits_now();
  void is_answered(SteadyTime now, bool with_batch);

  std::uint64_t waits() const { return waits_; }
  // Without the wait that is going on, and with it.
  std::chrono::nanoseconds waited() const { return waited_; }
  std::chrono::nanoseconds waited(SteadyTime now) const;
  std::chrono::nanoseconds between() const { return between_; }
  // Of those that are over, as wire::WaitedFrame has them.
  const std::array<std::uint64_t, wire::kWaitLengths>& by_length() const { return by_length_; }

 private:
  SteadyTime asked_{};
  std::optional<SteadyTime> given_;  // a batch; none: next() is being called, or gave none
  bool waiting_ = false;
  std::uint64_t waits_ = 0;
  std::chrono::nanoseconds waited_{0};
  std::chrono::nanoseconds between_{0};
  std::array<std::uint64_t, wire::kWaitLengths> by_length_{};
};

}  // namespace spdld::client
