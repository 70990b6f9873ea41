// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "source/item/source.h"

namespace spdld::engine {

// Fetches some items from all over a source, for a look at them. A fetch may end after the one who
// looks has stopped waiting: this object keeps itself alive until then, and a source lives until it
// has answered. An item's bytes are let go of once it was looked at, or if it comes too late, as
// other fetches may wait for that room. Used by one thread; fetches end on any.
class SomeItems final : public source::FetchSink, public std::enable_shared_from_this<SomeItems> {
 public:
  struct Item {
    source::FetchedItem parts;
    std::size_t number = 0;  // among them
    std::uint64_t item = 0;  // the source's
    bool here = false;
    bool waited = false;
  };

  // Of so many items at most.
  explicit SomeItems(std::size_t most) : items_(most) {}

  // Fetches what is requested of them. Called once.
  void begin(source::Source& source, std::span<const source::PartRequest> requests)
      SPDLD_EXCLUDES(mutex_);
  // Those that have come since the last call; none: there are no more, or they are late. Blocks for
  // some seconds at most, all calls together.
  std::vector<Item> take() SPDLD_EXCLUDES(mutex_);

  void fetched(std::uint64_t token, Status status) override { tell(token, status, true); }

 private:
  void tell(std::uint64_t number, const Status& status, bool waited) SPDLD_EXCLUDES(mutex_);

  static constexpr std::chrono::seconds kPatience{5};

  const std::chrono::steady_clock::time_point deadline_ =
      std::chrono::steady_clock::now() + kPatience;
  Mutex mutex_;
  CondVar changed_;
  bool any_here_ SPDLD_GUARDED_BY(mutex_) = false;
  bool late_ SPDLD_GUARDED_BY(mutex_) = false;
  std::uint64_t pending_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<SomeItems> self_ SPDLD_GUARDED_BY(mutex_);
  std::vector<Item> items_;  // one belongs to the source until it is `here`
};

}  // namespace spdld::engine
