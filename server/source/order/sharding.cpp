// SPDX-License-Identifier: Apache-2.0
#include "source/order/sharding.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace spdld::source {

Sharding::Sharding(std::uint64_t items, Tail tail, Segment segment, std::uint64_t group)
    : items_(items), tail_(tail), segment_(segment), group_(std::max<std::uint64_t>(group, 1)) {
  SPDLD_CHECK(items > 0 && segment.base <= items && segment.num_shards > 0 && segment.batch > 0);
  const auto rows = static_cast<unsigned __int128>(segment.num_shards) * segment.batch;
  step_rows_ = rows > std::numeric_limits<std::uint64_t>::max()
                   ? std::numeric_limits<std::uint64_t>::max()
                   : static_cast<std::uint64_t>(rows);
  full_steps_ = (items - segment.base) / step_rows_;
}

std::uint64_t Sharding::end_step() const {
  const bool tail_step = tail_ != Tail::kDrop && (items_ - segment_.base) % step_rows_ != 0;
  return segment_.first_step + full_steps_ + (tail_step ? 1 : 0);
}

std::uint64_t Sharding::position_of(std::uint64_t step) const {
  SPDLD_CHECK(step >= segment_.first_step && step <= end_step());
  const std::uint64_t steps = step - segment_.first_step;
  return steps <= full_steps_ ? segment_.base + steps * step_rows_ : items_;
}

BatchRows Sharding::rows(std::uint64_t step, std::uint32_t shard) const {
  SPDLD_CHECK(step < end_step() && shard < segment_.num_shards);
  const std::uint64_t begin = position_of(step);
  if (step - segment_.first_step < full_steps_) {
    return {.first = begin + shard * segment_.batch,
            .rows = segment_.batch,
            .valid = segment_.batch,
            .padding_first = 0,
            .items = items_};
  }

  const std::uint64_t left = items_ - begin;
  if (tail_ == Tail::kPad) {
    const auto skipped = static_cast<unsigned __int128>(shard) * segment_.batch;
    const std::uint64_t before =
        skipped < left ? static_cast<std::uint64_t>(skipped) : left;  // rows of earlier shards
    return {
        .first = begin + before,
        .rows = segment_.batch,
        .valid = std::min(segment_.batch, left - before),
        .padding_first = skipped < left ? 0 : static_cast<std::uint64_t>((skipped - left) % items_),
        .items = items_};
  }
  const std::uint64_t groups = left / group_;
  const std::uint64_t share = groups / segment_.num_shards;
  const std::uint64_t larger = groups % segment_.num_shards;  // that many shards get one more
  const std::uint64_t valid = (share + (shard < larger ? 1 : 0)) * group_;
  return {.first = begin + (shard * share + std::min<std::uint64_t>(shard, larger)) * group_,
          .rows = std::max(valid, group_),
          .valid = valid,
          .padding_first = 0,
          .items = items_};
}

}  // namespace spdld::source
