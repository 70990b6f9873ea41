// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "op/order_spec.h"
#include "source/order/lengths.h"
#include "source/order/permutation.h"

namespace spdld::source {

// Puts rows of like length next to each other. The epoch's positions are cut into windows of
// `window`, and each window into runs: the positions [i * run, (i + 1) * run), or as much of them
// as the window has. A window's rows, sorted by length, fill one run after the other, whose order
// is drawn; within a run the rows are mixed. So a batch whose rows lie in one run needs little
// padding, and every item stays in the window in which the order without lengths has it.
//
// A pure function of (seed, epoch, lengths); what is kept of it is a cache. Any thread: the windows
// that were used last are kept, each made once by the first thread that asks for one of its
// positions, while other threads that ask for the same window wait and those that ask for another
// one do not. Owned by the samplers of one order.
class BucketOrder {
 public:
  // The windows that are kept take up to so many bytes, or are kLeastWindows.
  static constexpr std::size_t kKeptBytes = std::size_t{2} << 20;
  static constexpr std::size_t kLeastWindows = 4;
  static constexpr std::size_t kMostWindows = 1024;
  static constexpr std::uint64_t kLargestWindow = std::uint64_t{1} << 20;

  // A window or run of 0 counts as 1, and a window of more than kLargestWindow as that. `memory`:
  // that most_bytes() count in as long as this lives; null: nowhere. `rows_each`: of each item, one
  // after the other, where the order is one of rows.
  BucketOrder(const Shuffle::Bucket& bucket, std::uint64_t seed,
              std::shared_ptr<const Lengths> lengths, ListingMemory::SharePtr memory = nullptr,
              std::uint64_t rows_each = 1);

  // What such an order of so many rows keeps at most, with what it takes to make a window.
  static std::uint64_t most_bytes(const Shuffle::Bucket& bucket, std::uint64_t rows);

  // The position in `order`, which is the epoch's order without lengths, of the row that stands at
  // `place`. A bijection of each window. place < lengths' size * rows_each. May throw
  // std::bad_alloc, and may then be asked again.
  std::uint64_t position(std::uint64_t epoch, std::uint64_t place,
                         const KeyedPermutation& order) const SPDLD_EXCLUDES(mutex_);

  std::size_t kept_windows() const SPDLD_EXCLUDES(mutex_);

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // epoch, window

  struct Window {
    Mutex making;
    // Set once `offsets` are complete. They never change afterwards, so a thread that sees it set
    // reads them without the mutex.
    std::atomic<bool> made = false;
    std::vector<std::uint32_t> offsets;
  };
  struct Kept {
    std::shared_ptr<Window> window;
    std::list<Key>::iterator used;
  };

  std::shared_ptr<Window> window(const Key& key) const SPDLD_EXCLUDES(mutex_);
  std::vector<std::uint32_t> make(const Key& key, const KeyedPermutation& order) const;

  const std::uint64_t window_;
  const std::uint64_t run_;
  const std::uint64_t seed_;
  const ListingMemory::SharePtr memory_;
  const std::shared_ptr<const Lengths> lengths_;
  const std::uint64_t rows_each_;
  const std::uint64_t rows_;
  const std::size_t most_kept_;
  mutable Mutex mutex_;
  mutable std::map<Key, Kept> windows_ SPDLD_GUARDED_BY(mutex_);
  mutable std::list<Key> used_ SPDLD_GUARDED_BY(mutex_);  // last first
};

}  // namespace spdld::source
