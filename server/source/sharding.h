// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "op/order_spec.h"

namespace spdld::source {

// The part of an epoch that one world size and one batch size cut up: from step `first_step`, which
// begins at position `base`, to the epoch's end. A whole epoch has base = first_step = 0; a resized
// or resumed job goes on in a new segment, and its steps count on.
struct Segment {
  std::uint64_t base = 0;
  std::uint64_t first_step = 0;
  std::uint32_t num_shards = 1;
  std::uint64_t batch = 1;  // rows a shard

  friend bool operator==(const Segment&, const Segment&) = default;
};

// The rows of one batch: positions first, first + 1, …; row i ≥ valid is padding, at positions that
// start again from 0.
struct BatchRows {
  std::uint64_t first = 0;
  std::uint64_t rows = 0;           // all rows, padding included
  std::uint64_t valid = 0;          // rows that count
  std::uint64_t padding_first = 0;  // position of row `valid`

  std::uint64_t position(std::uint64_t row) const {
    return row < valid ? first + row : padding_first + (row - valid);
  }
  friend bool operator==(const BatchRows&, const BatchRows&) = default;
};

// Cuts an epoch into steps and shards. Every shard has the same number of steps. Immutable; any
// thread.
class Sharding {
 public:
  Sharding(std::uint64_t items, Tail tail, Segment segment);

  const Segment& segment() const { return segment_; }
  // Steps are [segment().first_step, end_step()).
  std::uint64_t end_step() const;
  // step in that range, shard < num_shards.
  BatchRows rows(std::uint64_t step, std::uint32_t shard) const;
  // The position at which `step` begins over all shards; step <= end_step().
  std::uint64_t position_of(std::uint64_t step) const;

 private:
  std::uint64_t items_;
  Tail tail_;
  Segment segment_;
};

}  // namespace spdld::source
