// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "base/clock.h"

namespace spdld {

// How much of the making of a row is decoding, as the field's worker tells: what remains is the
// other stages'. One thread's.
class DecodeTimer {
 public:
  explicit DecodeTimer(const Clock& clock) : clock_(clock) {}

  std::chrono::nanoseconds spent() const { return spent_; }

  // A part of the decoding, from its making to its end; none is counted where there is no timer.
  class Part {
   public:
    explicit Part(DecodeTimer* timer) : Part(timer, 1) {}
    ~Part() {
      if (timer_ != nullptr) timer_->spent_ += sign_ * (timer_->clock_.now() - begun_);
    }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   protected:
    Part(DecodeTimer* timer, int sign) : timer_(timer), sign_(sign) {
      if (timer_ != nullptr) begun_ = timer_->clock_.now();
    }

   private:
    DecodeTimer* const timer_;
    const int sign_;
    std::chrono::nanoseconds begun_{0};
  };

  // Other work, in the midst of a Part.
  class Pause : public Part {
   public:
    explicit Pause(DecodeTimer* timer) : Part(timer, -1) {}
  };

 private:
  const Clock& clock_;
  std::chrono::nanoseconds spent_{0};
};

}  // namespace spdld
