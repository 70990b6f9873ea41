// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "op/order_spec.h"

namespace spdld::source {

// How often a fetch, or a call of a user's function, is retried, and after which pauses: they
// double, up to five seconds, and each is shortened at random by up to a half so that nodes do not
// come back in step. A value; any thread.
class RetryPauses {
 public:
  static constexpr std::chrono::nanoseconds kFirst = std::chrono::milliseconds(50);

  RetryPauses(RetrySpec retry, std::chrono::nanoseconds first_pause);

  int retries() const { return retries_; }
  // Before another attempt at `uri`, after `failures` that failed.
  std::chrono::nanoseconds pause(int failures, const std::string& uri) const;

 private:
  int retries_;
  std::chrono::nanoseconds first_pause_;
  std::uint64_t jitter_key_;
};

}  // namespace spdld::source
