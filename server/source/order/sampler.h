// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "op/order_spec.h"
#include "source/order/bucket_order.h"
#include "source/order/lengths.h"
#include "source/order/permutation.h"

namespace spdld::source {

// Which item stands at position p of epoch e: a pure function, the same on every machine, in O(1)
// memory but for what an order by length keeps. Immutable; any thread. items > 0.
//
// `none` is the listing's own order. `global` is a keyed permutation of all items. `block` cuts the
// listing into blocks, permutes the blocks, and mixes the items of each `interleave` neighbours
// among the permuted blocks with each other: a reader touches so many blocks at a time and no
// other. A block of 0 or an interleave of 0 counts as 1. A `bucket` puts items of like length next
// to each other. docs/decisions/0001-order.md says why.
//
// With `repeat`, the order is one of rows: of the items with all their rows, where these are
// adjacent, or else of all rows alike.
class Sampler {
 public:
  // `lengths`: of all items, where shuffle.bucket asks for them; else they do not matter. Copies
  // share the windows that an order by length keeps.
  Sampler(std::uint64_t items, const Shuffle& shuffle, std::uint64_t seed,
          std::shared_ptr<const Lengths> lengths = nullptr);
  // The same; what an order by length keeps counts for `user` where the lengths count:
  // kResourceExhausted if it has no room.
  static Result<Sampler> counted(std::uint64_t items, const Shuffle& shuffle, std::uint64_t seed,
                                 std::shared_ptr<const Lengths> lengths, uid_t user);

  // An epoch's order for many positions, of which neighbours share most of the work. One thread;
  // the sampler outlives it.
  class Epoch;

  struct Row {
    std::uint64_t item = 0;
    std::uint64_t repetition = 0;  // which of the item's rows

    friend bool operator==(const Row&, const Row&) = default;
  };

  std::uint64_t items() const { return items_; }
  // Of an epoch.
  std::uint64_t rows() const { return items_ * repeat_.rows; }
  // A bijection of [0, rows) to the rows for each epoch. position < rows(). With a bucket it may
  // throw std::bad_alloc, and may then be asked again.
  Row row(std::uint64_t epoch, std::uint64_t position) const;
  std::uint64_t item(std::uint64_t epoch, std::uint64_t position) const {
    return row(epoch, position).item;
  }
  // The item that takes the place of one that is not to be: the `attempt`-th (from 1) for this
  // position, whose repetition stays. Uniform over the items other than item(epoch, position),
  // drawn anew for each attempt, and the same for all adjacent rows of an item; the only item there
  // is when items() is 1.
  std::uint64_t substitute(std::uint64_t epoch, std::uint64_t position,
                           std::uint32_t attempt) const;

 private:
  Sampler(std::uint64_t items, const Shuffle& shuffle, std::uint64_t seed,
          std::shared_ptr<const Lengths> lengths, ListingMemory::SharePtr memory);

  std::uint64_t items_;
  Repeat repeat_;
  Shuffle::Kind kind_;
  std::uint64_t block_;
  std::uint64_t interleave_;
  std::uint64_t seed_;
  std::shared_ptr<const BucketOrder> bucket_;  // null without
};

class Sampler::Epoch {
 public:
  Epoch(const Sampler& sampler, std::uint64_t epoch);

  // As Sampler::row().
  Row row(std::uint64_t position);

 private:
  // `interleave` neighbours among the permuted blocks, whose items are mixed.
  struct Group {
    std::uint64_t number = ~std::uint64_t{0};
    std::uint64_t first_slot = 0;
    std::uint64_t begin = 0;  // its first position
    KeyedPermutation mix{1, 0};
  };

  // Which of all places stands at `place` of the epoch.
  std::uint64_t shuffled(std::uint64_t place);
  std::uint64_t block_item(std::uint64_t position);
  void enter_group(std::uint64_t number);

  const Sampler& sampler_;
  const std::uint64_t epoch_;
  const std::uint64_t key_;
  const std::uint64_t places_;
  const std::uint64_t blocks_;
  const std::uint64_t missing_;     // of the listing's last block, which may be short
  const KeyedPermutation order_;    // of all places, or of the blocks
  const std::uint64_t short_slot_;  // where that has the listing's last block
  Group group_;                     // the one that was asked for last
};

}  // namespace spdld::source
