// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "op/order_spec.h"

namespace spdld::source {

// Which item stands at position p of epoch e: a pure function in O(1) memory, the same on every
// machine. Immutable; any thread. items > 0.
class Sampler {
 public:
  Sampler(std::uint64_t items, Shuffle shuffle, std::uint64_t seed);

  std::uint64_t items() const { return items_; }
  // A bijection of [0, items) for each epoch. position < items.
  std::uint64_t item(std::uint64_t epoch, std::uint64_t position) const;
  // The item that takes the place of one that failed: the `attempt`-th (from 1) for this position.
  std::uint64_t substitute(std::uint64_t epoch, std::uint64_t position,
                           std::uint32_t attempt) const;

 private:
  std::uint64_t items_;
  Shuffle shuffle_;
  std::uint64_t seed_;
};

}  // namespace spdld::source
