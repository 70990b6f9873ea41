// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace spdld::testing {

// Stands still but for what a test adds. Thread-safe.
class HandClock final : public Clock {
 public:
  std::chrono::nanoseconds now() const override { return std::chrono::nanoseconds(now_ns_.load()); }
  std::chrono::system_clock::time_point wall() const override { return {}; }
  void advance(std::chrono::nanoseconds by) { now_ns_ += by.count(); }

 private:
  std::atomic<std::int64_t> now_ns_{0};
};

// The system's clock, ahead by what a test adds. Thread-safe.
class AheadClock final : public Clock {
 public:
  std::chrono::nanoseconds now() const override { return real_.now() + ahead(); }
  std::chrono::system_clock::time_point wall() const override {
    return real_.wall() + std::chrono::duration_cast<std::chrono::system_clock::duration>(ahead());
  }
  void advance(std::chrono::nanoseconds by) { ahead_ns_ += by.count(); }

 private:
  std::chrono::nanoseconds ahead() const { return std::chrono::nanoseconds(ahead_ns_.load()); }

  SystemClock real_;
  std::atomic<std::int64_t> ahead_ns_{0};
};

}  // namespace spdld::testing
