// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace spdld {

// Time as the daemon sees it; tests put a hand-wound one in its place. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::nanoseconds now() const = 0;  // monotonic
  virtual std::chrono::system_clock::time_point wall() const = 0;
};

class SystemClock final : public Clock {
 public:
  std::chrono::nanoseconds now() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
  std::chrono::system_clock::time_point wall() const override {
    return std::chrono::system_clock::now();
  }
};

inline double in_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::uint64_t unix_ms();  // now, as the system's clock has it

// CPU time that the calling thread has used so far.
std::chrono::nanoseconds thread_cpu_time();

}  // namespace spdld
