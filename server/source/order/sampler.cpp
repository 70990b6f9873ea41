// SPDX-License-Identifier: Apache-2.0
#include "source/order/sampler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace spdld::source {
namespace {

// What a draw is for is part of its key, so that no two uses see the same numbers.
constexpr std::uint64_t kGlobalKey = name_key("shuffle global");
constexpr std::uint64_t kBlockKey = name_key("shuffle block");
constexpr std::uint64_t kBlocksKey = name_key("order of blocks");
constexpr std::uint64_t kSubstituteKey = name_key("substitute");

constexpr std::uint64_t epoch_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t use) {
  return mix64(mix64(seed, use), epoch);
}

}  // namespace

Sampler::Sampler(std::uint64_t items, const Shuffle& shuffle, std::uint64_t seed,
                 std::shared_ptr<const Lengths> lengths)
    : Sampler(items, shuffle, seed, std::move(lengths), nullptr) {}

Result<Sampler> Sampler::counted(std::uint64_t items, const Shuffle& shuffle, std::uint64_t seed,
                                 std::shared_ptr<const Lengths> lengths, uid_t user) {
  ListingMemory::SharePtr memory;
  if (shuffle.bucket && lengths != nullptr) memory = lengths->share(user);
  if (memory != nullptr)
    SPDLD_TRY(memory->resize(BucketOrder::most_bytes(*shuffle.bucket, shuffle.repeat.places(items)))
                  .with_context("the windows of shuffle.global.bucket, which take less with a "
                                "smaller 'window'"));
  return Sampler(items, shuffle, seed, std::move(lengths), std::move(memory));
}

Sampler::Sampler(std::uint64_t items, const Shuffle& shuffle, std::uint64_t seed,
                 std::shared_ptr<const Lengths> lengths, ListingMemory::SharePtr memory)
    : items_(items), repeat_(shuffle.repeat), kind_(shuffle.kind), seed_(seed) {
  SPDLD_CHECK(items > 0 && repeat_.rows > 0);
  // Larger ones mean the same, and would overflow when multiplied.
  const std::uint64_t places = repeat_.places(items);
  block_ = std::clamp<std::uint64_t>(shuffle.block, 1, places);
  interleave_ = std::clamp<std::uint64_t>(shuffle.interleave, 1, (places + block_ - 1) / block_);
  if (kind_ != Shuffle::Kind::kGlobal || !shuffle.bucket) return;
  SPDLD_CHECK(lengths != nullptr && lengths->size() == items);
  bucket_ = std::make_shared<const BucketOrder>(*shuffle.bucket, seed, std::move(lengths),
                                                std::move(memory), places / items);
}

Sampler::Row Sampler::row(std::uint64_t epoch, std::uint64_t position) const {
  return Epoch(*this, epoch).row(position);
}

Sampler::Epoch::Epoch(const Sampler& sampler, std::uint64_t epoch)
    : sampler_(sampler),
      epoch_(epoch),
      key_(epoch_key(sampler.seed_, epoch,
                     sampler.kind_ == Shuffle::Kind::kBlock ? kBlockKey : kGlobalKey)),
      places_(sampler.repeat_.places(sampler.items_)),
      blocks_((places_ + sampler.block_ - 1) / sampler.block_),
      missing_(blocks_ * sampler.block_ - places_),
      order_(sampler.kind_ == Shuffle::Kind::kBlock
                 ? KeyedPermutation(blocks_, mix64(key_, kBlocksKey))
                 : KeyedPermutation(places_, key_)),
      short_slot_(sampler.kind_ == Shuffle::Kind::kBlock ? order_.inverse(blocks_ - 1) : 0) {}

Sampler::Row Sampler::Epoch::row(std::uint64_t position) {
  SPDLD_CHECK(position < sampler_.rows());
  const auto& [rows, adjacent] = sampler_.repeat_;
  if (rows == 1) return {.item = shuffled(position)};
  if (adjacent) return {.item = shuffled(position / rows), .repetition = position % rows};
  const std::uint64_t row = shuffled(position);
  return {.item = row / rows, .repetition = row % rows};
}

std::uint64_t Sampler::Epoch::shuffled(std::uint64_t place) {
  switch (sampler_.kind_) {
    case Shuffle::Kind::kNone: return place;
    case Shuffle::Kind::kGlobal:
      return order_(
          sampler_.bucket_ == nullptr ? place : sampler_.bucket_->position(epoch_, place, order_));
    case Shuffle::Kind::kBlock: return block_item(place);
  }
  return place;
}

std::uint64_t Sampler::Epoch::block_item(std::uint64_t position) {
  const std::uint64_t block = sampler_.block_;
  const std::uint64_t group_items = sampler_.interleave_ * block;
  // Every group holds as many items but two: the one with the listing's short block, and the last,
  // which holds the blocks that are left over.
  const std::uint64_t short_group = short_slot_ / sampler_.interleave_;
  const std::uint64_t short_group_end = (short_group + 1) * group_items - missing_;
  const std::uint64_t shifted = position < short_group_end ? position : position + missing_;
  if (shifted / group_items != group_.number) enter_group(shifted / group_items);

  // Where the group's permutation puts it, counted through the group's blocks one after another.
  std::uint64_t place = group_.mix(position - group_.begin);
  if (group_.number == short_group) {
    const std::uint64_t after_short = (short_slot_ - group_.first_slot + 1) * block - missing_;
    if (place >= after_short) place += missing_;
  }
  return order_(group_.first_slot + place / block) * block + place % block;
}

void Sampler::Epoch::enter_group(std::uint64_t number) {
  const std::uint64_t short_group = short_slot_ / sampler_.interleave_;
  const std::uint64_t first_slot = number * sampler_.interleave_;
  const std::uint64_t slots = std::min(sampler_.interleave_, blocks_ - first_slot);
  const std::uint64_t size = slots * sampler_.block_ - (number == short_group ? missing_ : 0);
  group_ = {.number = number,
            .first_slot = first_slot,
            .begin = first_slot * sampler_.block_ - (number > short_group ? missing_ : 0),
            .mix = KeyedPermutation(size, mix64(key_, number))};
}

std::uint64_t Sampler::substitute(std::uint64_t epoch, std::uint64_t position,
                                  std::uint32_t attempt) const {
  const std::uint64_t failed = item(epoch, position);
  if (items_ == 1) return failed;
  const std::uint64_t place = repeat_.adjacent ? position / repeat_.rows : position;
  KeyedRng rng(mix64(mix64(epoch_key(seed_, epoch, kSubstituteKey), place), attempt));
  const std::uint64_t other = rng.below(items_ - 1);
  return other < failed ? other : other + 1;
}

}  // namespace spdld::source
