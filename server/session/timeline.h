// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "op/order_spec.h"
#include "source/sharding.h"

namespace spdld::session {

// A place among a job's steps.
struct StepAt {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;

  friend auto operator<=>(const StepAt&, const StepAt&) = default;
};

// Which rows each step of a job has, through resizes and resumed positions: the cut of every epoch
// into steps and shards. A plain value; each feed has a copy, so that what one shard has begun is
// never cut anew under it.
class Timeline {
 public:
  // A new cut from here on: the rest of the epoch, and all later epochs, go to this many shards.
  struct Cut {
    StepAt from;
    std::uint64_t position = 0;  // at which `from` begins
    std::uint32_t num_shards = 1;

    friend bool operator==(const Cut&, const Cut&) = default;
  };

  Timeline(std::uint64_t items, Tail tail, std::uint64_t batch, std::uint32_t num_shards)
      : items_(items), tail_(tail), batch_(batch), num_shards_(num_shards) {}

  // The cut from `cut.from` on; what was said of later steps is forgotten.
  void cut(const Cut& cut);

  // Whether a job can go on at `at` from `position`: what a cursor or an older record says.
  Status check(StepAt at, std::uint64_t position) const;
  // Goes on so: by a cut of its own if `position` is not where this timeline has that step begin.
  // What check() takes.
  void resume(StepAt at, std::uint64_t position);
  // The same for all the shards that there are in the end: resizes that came after `at` are not
  // lived through again.
  void redeal(StepAt at, std::uint64_t position);

  // The cut that holds `at`. Its steps may end before at.step.
  source::Sharding sharding(StepAt at) const;
  // One behind the epoch's last step.
  std::uint64_t end_step(std::uint64_t epoch) const;
  // Steps of a whole epoch on as many shards as there are in the end.
  std::uint64_t steps_per_epoch() const;
  std::uint32_t first_num_shards() const { return num_shards_; }
  std::uint32_t num_shards() const { return cuts_.empty() ? num_shards_ : cuts_.back().num_shards; }
  std::uint64_t items() const { return items_; }
  const std::vector<Cut>& cuts() const { return cuts_; }

 private:
  std::uint64_t items_;
  Tail tail_;
  std::uint64_t batch_;
  std::uint32_t num_shards_;
  std::vector<Cut> cuts_;  // by `from`
};

}  // namespace spdld::session
