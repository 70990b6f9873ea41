// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "op/order_spec.h"

namespace spdld::source {

// Beside a job's seed, all that decides which item stands at which position. A cursor is good for
// one order only. A plain value.
struct Order {
  std::string listing_digest;  // Source::listing_digest()
  std::uint64_t items = 0;
  Shuffle shuffle;
  std::string lengths_digest = {};  // Lengths::digest(), where the shuffle goes by lengths

  // 32 hex digits: 16 of the listing and N, 16 of the shuffle; of an order by length, 8 of the
  // shuffle and 8 of the lengths.
  std::string digest() const;
};

// A position that was saved, of the order that it was saved in. A plain value.
struct Cursor {
  std::string order;  // Order::digest()
  std::uint64_t items = 0;
  std::uint64_t position = 0;
};

// Whether `cursor` may be resumed on `current`; the error (kFailedPrecondition) names all that
// changed.
Status check(const Cursor& cursor, const Order& current);

}  // namespace spdld::source
