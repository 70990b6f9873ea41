// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/some_items.h"

#include <algorithm>
#include <utility>

namespace spdld::engine {

void SomeItems::begin(source::Source& source, std::span<const source::PartRequest> requests) {
  const std::uint64_t count = std::min<std::uint64_t>(items_.size(), source.size());
  if (count == 0) return;
  {
    MutexLock lock(mutex_);
    pending_ = count;
    self_ = shared_from_this();
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    Item& item = items_[i];
    item.number = i;
    item.item = i * source.size() / count;
    item.parts.revision.asked = true;
    auto state = source.fetch(item.item, requests, item.parts, *this, i);
    if (!state || *state == source::FetchState::kReady)
      tell(i, state ? Status() : std::move(state).error(), false);
  }
}

std::vector<SomeItems::Item> SomeItems::take() {
  MutexLock lock(mutex_);
  while (pending_ > 0 && !any_here_) {
    const auto left = deadline_ - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) break;
    changed_.wait_for(mutex_, left);
  }
  late_ = !std::exchange(any_here_, false);
  std::vector<Item> items;
  for (Item& item : items_) {
    if (std::exchange(item.here, false)) items.push_back(std::move(item));
  }
  return items;
}

void SomeItems::tell(std::uint64_t number, const Status& status, bool waited) {
  std::shared_ptr<SomeItems> self;
  source::FetchedItem dropped;
  MutexLock lock(mutex_);
  Item& item = items_[number];
  item.waited = waited;
  item.here = status.ok() && !late_;
  any_here_ = any_here_ || item.here;
  if (!item.here) std::swap(dropped, item.parts);
  if (--pending_ == 0) self = std::move(self_);
  changed_.notify_all();
}

}  // namespace spdld::engine
