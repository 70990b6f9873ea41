// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "op/order_spec.h"

namespace spdld::source {

// What decides which item stands at which position, over all epochs. A cursor is good for one order
// only.
struct Order {
  std::string listing_digest;  // Source::listing_digest()
  std::uint64_t items = 0;
  Shuffle shuffle;
  std::uint64_t seed = 0;
  std::string lengths_digest = {};  // Lengths::digest(), where the shuffle goes by lengths

  // 32 hex digits: 16 of the listing and N, 16 of the shuffle; of an order by length, 8 of the
  // shuffle and 8 of the lengths. The seed is not in it.
  std::string digest() const;
};

// An exact place in a job's data: before the first row of `step` in `epoch`, which begins at
// `position` of the epoch's order, whatever the world size and the batch size were. A plain value.
struct Cursor {
  std::string order;  // Order::digest()
  std::uint64_t items = 0;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::uint64_t step = 0;

  static Cursor at(const Order& order, std::uint64_t epoch, std::uint64_t position,
                   std::uint64_t step);

  // One line without spaces, "spdld1:ORDER:ITEMS:SEED:EPOCH:POSITION:STEP"; parse() takes nothing
  // else.
  std::string text() const;
  static Result<Cursor> parse(std::string_view text);

  friend bool operator==(const Cursor&, const Cursor&) = default;
};

// Whether `cursor` may be resumed on `current`; the error (kFailedPrecondition) names all that
// changed.
Status check(const Cursor& cursor, const Order& current);

}  // namespace spdld::source
