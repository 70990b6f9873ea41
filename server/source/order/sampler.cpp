// SPDX-License-Identifier: Apache-2.0
#include "source/order/sampler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "source/order/permutation.h"

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
    SPDLD_TRY(memory->resize(BucketOrder::most_bytes(*shuffle.bucket, items))
                  .with_context("the windows of shuffle.global.bucket, which take less with a "
                                "smaller 'window'"));
  return Sampler(items, shuffle, seed, std::move(lengths), std::move(memory));
}

Sampler::Sampler(std::uint64_t items, const Shuffle& shuffle, std::uint64_t seed,
                 std::shared_ptr<const Lengths> lengths, ListingMemory::SharePtr memory)
    : items_(items), kind_(shuffle.kind), seed_(seed) {
  SPDLD_CHECK(items > 0);
  // Larger ones mean the same, and would overflow when multiplied.
  block_ = std::clamp<std::uint64_t>(shuffle.block, 1, items);
  interleave_ = std::clamp<std::uint64_t>(shuffle.interleave, 1, (items + block_ - 1) / block_);
  if (kind_ != Shuffle::Kind::kGlobal || !shuffle.bucket) return;
  SPDLD_CHECK(lengths != nullptr && lengths->size() == items);
  bucket_ = std::make_shared<const BucketOrder>(*shuffle.bucket, seed, std::move(lengths),
                                                std::move(memory));
}

std::uint64_t Sampler::item(std::uint64_t epoch, std::uint64_t position) const {
  SPDLD_CHECK(position < items_);
  switch (kind_) {
    case Shuffle::Kind::kNone: return position;
    case Shuffle::Kind::kGlobal: {
      const KeyedPermutation order(items_, epoch_key(seed_, epoch, kGlobalKey));
      return order(bucket_ == nullptr ? position : bucket_->position(epoch, position, order));
    }
    case Shuffle::Kind::kBlock: return block_item(epoch_key(seed_, epoch, kBlockKey), position);
  }
  return position;
}

std::uint64_t Sampler::block_item(std::uint64_t key, std::uint64_t position) const {
  const std::uint64_t block = block_;
  const std::uint64_t interleave = interleave_;
  const std::uint64_t blocks = (items_ + block - 1) / block;
  const std::uint64_t last_size = items_ - (blocks - 1) * block;
  const std::uint64_t missing = block - last_size;
  const KeyedPermutation order(blocks, mix64(key, kBlocksKey));

  // Every group holds interleave * block items but two: the one with the listing's short block, and
  // the last, which holds the blocks that are left over.
  const std::uint64_t short_slot = order.inverse(blocks - 1);
  const std::uint64_t short_group = short_slot / interleave;
  const std::uint64_t short_group_end = (short_group + 1) * interleave * block - missing;
  const std::uint64_t shifted = position < short_group_end ? position : position + missing;
  const std::uint64_t group = shifted / (interleave * block);
  const std::uint64_t first_slot = group * interleave;
  const std::uint64_t slots = std::min(interleave, blocks - first_slot);
  const std::uint64_t begin = first_slot * block - (group > short_group ? missing : 0);
  const std::uint64_t size = slots * block - (group == short_group ? missing : 0);

  // Where the group's permutation puts it, counted through the group's blocks one after another.
  std::uint64_t place = KeyedPermutation(size, mix64(key, group))(position - begin);
  if (group == short_group) {
    const std::uint64_t after_short = (short_slot - first_slot) * block + last_size;
    if (place >= after_short) place += missing;
  }
  return order(first_slot + place / block) * block + place % block;
}

std::uint64_t Sampler::substitute(std::uint64_t epoch, std::uint64_t position,
                                  std::uint32_t attempt) const {
  const std::uint64_t failed = item(epoch, position);
  if (items_ == 1) return failed;
  KeyedRng rng(mix64(mix64(epoch_key(seed_, epoch, kSubstituteKey), position), attempt));
  const std::uint64_t other = rng.below(items_ - 1);
  return other < failed ? other : other + 1;
}

}  // namespace spdld::source
