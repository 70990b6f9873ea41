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
// start again from 0, as often as it takes.
struct BatchRows {
  std::uint64_t first = 0;
  std::uint64_t rows = 0;                   // all rows, padding included
  std::uint64_t valid = 0;                  // rows that count
  std::uint64_t padding_first = 0;          // position of row `valid`
  std::uint64_t items = ~std::uint64_t{0};  // where padding wraps around

  std::uint64_t position(std::uint64_t row) const {
    return row < valid ? first + row : (padding_first + (row - valid)) % items;
  }
  friend bool operator==(const BatchRows&, const BatchRows&) = default;
};

// Cuts an epoch into steps and shards. Every shard has the same number of steps. Immutable; any
// thread.
//
// With n shards of B rows, step s and shard k own positions [base + (s - s0)·n·B + k·B, … + B).
// What does not fill a step is left out (drop), filled up with padding (pad), or dealt out in
// shards of ceil and floor rows, of which an empty one gets one row of padding (keep). With
// `group`, keep deals out so many rows together, which makes ceil and floor groups of them.
class Sharding {
 public:
  // items > 0, segment.base <= items, segment.num_shards > 0, segment.batch > 0. A group of 0
  // counts as 1; others divide items, segment.base and segment.batch.
  Sharding(std::uint64_t items, Tail tail, Segment segment, std::uint64_t group = 0);

  const Segment& segment() const { return segment_; }
  // Steps are [segment().first_step, end_step()). No steps are left when they are equal: the
  // segment begins at the epoch's end or, with drop, too close to it.
  std::uint64_t end_step() const;
  // step in that range, shard < num_shards.
  BatchRows rows(std::uint64_t step, std::uint32_t shard) const;
  // The position at which `step` begins over all shards; step <= end_step(). That of end_step() is
  // where the epoch's last row was taken from, plus one: items, but for drop.
  std::uint64_t position_of(std::uint64_t step) const;

 private:
  std::uint64_t items_;
  Tail tail_;
  Segment segment_;
  std::uint64_t group_;
  std::uint64_t full_steps_ = 0;  // without padding and of full size
  std::uint64_t step_rows_ = 0;   // of all shards; items_ at most when full_steps_ > 0
};

}  // namespace spdld::source
