// SPDX-License-Identifier: Apache-2.0
#include "source/order/bucket_order.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace spdld::source {
namespace {

// What the draws are for is part of their key, as in sampler.cpp.
constexpr std::uint64_t kBucketKey = name_key("shuffle bucket");

std::uint64_t window_of(const Shuffle::Bucket& bucket) {
  return std::clamp<std::uint64_t>(bucket.window, 1, BucketOrder::kLargestWindow);
}

std::size_t most_kept(std::uint64_t window) {
  return std::clamp<std::size_t>(BucketOrder::kKeptBytes / (window * sizeof(std::uint32_t)),
                                 BucketOrder::kLeastWindows, BucketOrder::kMostWindows);
}

void shuffle(std::uint32_t* values, std::uint64_t count, KeyedRng& rng) {
  for (; count > 1; --count) std::swap(values[count - 1], values[rng.below(count)]);
}

}  // namespace

BucketOrder::BucketOrder(const Shuffle::Bucket& bucket, std::uint64_t seed,
                         std::shared_ptr<const Lengths> lengths, ListingMemory::SharePtr memory,
                         std::uint64_t rows_each)
    : window_(window_of(bucket)),
      run_(std::clamp<std::uint64_t>(bucket.run, 1, kLargestWindow)),
      seed_(seed),
      memory_(std::move(memory)),
      lengths_(std::move(lengths)),
      rows_each_(rows_each),
      rows_(lengths_ == nullptr ? 0 : lengths_->size() * rows_each),
      most_kept_(most_kept(window_)) {
  SPDLD_CHECK(rows_ > 0);
}

std::uint64_t BucketOrder::most_bytes(const Shuffle::Bucket& bucket, std::uint64_t rows) {
  const std::uint64_t window = window_of(bucket);
  // make() has all of a window twice: with its lengths, and as what is kept.
  const std::uint64_t making = sizeof(std::uint64_t) + sizeof(std::uint32_t);
  return std::min(window, rows) * (most_kept(window) * sizeof(std::uint32_t) + making);
}

std::uint64_t BucketOrder::position(std::uint64_t epoch, std::uint64_t place,
                                    const KeyedPermutation& order) const {
  SPDLD_CHECK(place < rows_);
  const Key key{epoch, place / window_};
  const std::shared_ptr<Window> window = this->window(key);
  if (!window->made.load(std::memory_order_acquire)) {  // with the release below
    MutexLock lock(window->making);
    if (!window->made.load(std::memory_order_relaxed)) {  // it was set under this mutex
      window->offsets = make(key, order);
      window->made.store(true, std::memory_order_release);
    }
  }
  return key.second * window_ + window->offsets[place % window_];
}

std::size_t BucketOrder::kept_windows() const {
  MutexLock lock(mutex_);
  return windows_.size();
}

std::shared_ptr<BucketOrder::Window> BucketOrder::window(const Key& key) const {
  std::shared_ptr<Window> oldest;  // freed without the mutex
  MutexLock lock(mutex_);
  if (const auto found = windows_.find(key); found != windows_.end()) {
    used_.splice(used_.begin(), used_, found->second.used);
    return found->second.window;
  }
  auto window = std::make_shared<Window>();
  used_.push_front(key);
  try {
    windows_.emplace(key, Kept{.window = window, .used = used_.begin()});
  } catch (...) {
    used_.pop_front();
    throw;
  }
  if (windows_.size() > most_kept_) {
    const auto last = windows_.find(used_.back());
    oldest = std::move(last->second.window);
    windows_.erase(last);
    used_.pop_back();
  }
  return window;
}

std::vector<std::uint32_t> BucketOrder::make(const Key& key, const KeyedPermutation& order) const {
  const auto& [epoch, window] = key;
  const std::uint64_t begin = window * window_;
  const std::uint64_t rows = std::min(window_, rows_ - begin);

  // Bits of floats that are not negative sort as the floats do. Rows of one length stay in the
  // order without lengths, which is a drawn one.
  std::vector<std::uint64_t> sorted(rows);
  for (std::uint64_t i = 0; i < rows; ++i) {
    const float length = (*lengths_)[order(begin + i) / rows_each_];
    sorted[i] = std::uint64_t{std::bit_cast<std::uint32_t>(length)} << 32 | i;
  }
  std::sort(sorted.begin(), sorted.end());

  // Runs begin at multiples of `run_` in the epoch, so that batches lie in them as long as their
  // size divides it. The window's first and last run may be cut off.
  const std::uint64_t first_run = begin / run_;
  std::vector<std::uint32_t> runs((begin + rows - 1) / run_ - first_run + 1);
  std::iota(runs.begin(), runs.end(), 0U);
  KeyedRng rng(mix64(mix64(mix64(seed_, kBucketKey), epoch), window));
  shuffle(runs.data(), runs.size(), rng);

  std::vector<std::uint32_t> offsets(rows);
  std::uint64_t next = 0;
  for (const std::uint32_t run : runs) {
    const std::uint64_t from = std::max((first_run + run) * run_, begin) - begin;
    const std::uint64_t to = std::min((first_run + run + 1) * run_ - begin, rows);
    for (std::uint64_t i = from; i < to; ++i)
      offsets[i] = static_cast<std::uint32_t>(sorted[next++]);
    shuffle(offsets.data() + from, to - from, rng);
  }
  return offsets;
}

}  // namespace spdld::source
