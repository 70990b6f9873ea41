// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/rng.h"
#include "engine/cache/sample_cache_cost.h"

namespace spdld::engine {
namespace {

constexpr std::uint64_t kProbes = 64;
constexpr std::chrono::seconds kPatience{5};
// How many of them are recoded, to see what that makes of them, and the largest that are.
constexpr std::uint64_t kRecoded = 8;
constexpr std::uint64_t kMostRecodeBytes = std::uint64_t{16} << 20;
// Times the bytes of a file, where none of these was recoded.
constexpr double kUsualGrowth = 1.7;

// Fetches that may end after the prober has lost its patience. It keeps itself alive until then; a
// source is not gone before it has answered. An item is dropped as soon as it was looked at, or if
// it comes too late: others may wait for the room that it takes.
class Probe final : public source::FetchSink, public std::enable_shared_from_this<Probe> {
 public:
  struct Item {
    source::FetchedItem parts;
    std::uint64_t number = 0;
    bool here = false;
    bool waited = false;
  };

  // What is requested of some items.
  void begin(source::Source& source, std::span<const source::PartRequest> requests) {
    const std::uint64_t count = std::min(kProbes, source.size());
    if (count == 0) return;
    {
      MutexLock lock(mutex_);
      pending_ = count;
      self_ = shared_from_this();
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      Item& item = items_[i];
      item.parts.revision.asked = true;
      auto state = source.fetch(i * source.size() / count, requests, item.parts, *this, i);
      if (!state || *state == source::FetchState::kReady) {
        tell(i, state ? Status() : std::move(state).error(), false);
      }
    }
  }

  void fetched(std::uint64_t token, Status status) override { tell(token, status, true); }

  // Some of the items that have come since the last call; none: there are no more, or they are
  // late.
  std::vector<Item> take() {
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

 private:
  void tell(std::uint64_t token, const Status& status, bool waited) {
    std::shared_ptr<Probe> self;
    source::FetchedItem dropped;
    MutexLock lock(mutex_);
    Item& item = items_[token];
    item.number = token;
    item.waited = waited;
    item.here = status.ok() && !late_;
    any_here_ = any_here_ || item.here;
    if (!item.here) std::swap(dropped, item.parts);
    if (--pending_ == 0) self = std::move(self_);
    changed_.notify_all();
  }

  const std::chrono::steady_clock::time_point deadline_ =
      std::chrono::steady_clock::now() + kPatience;
  Mutex mutex_;
  CondVar changed_;
  bool any_here_ SPDLD_GUARDED_BY(mutex_) = false;
  bool late_ SPDLD_GUARDED_BY(mutex_) = false;
  std::uint64_t pending_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Probe> self_ SPDLD_GUARDED_BY(mutex_);
  std::array<Item, kProbes> items_;  // one belongs to the source until it is `here`
};

// What of the source the chain looks at, but for the taps of its filter.
Rect region_of(const Geometry& chain, const Size& source) {
  const auto part = [](int crop, int cropped, int scaled, int window, int size, int limit) {
    const double scale = static_cast<double>(cropped) / static_cast<double>(scaled);
    const int begin = crop + static_cast<int>(std::floor(std::max(window, 0) * scale));
    const int end = crop + static_cast<int>(std::ceil(std::min(window + size, scaled) * scale));
    return std::pair(std::clamp(begin, 0, limit), std::clamp(end, 0, limit));
  };
  const auto [left, right] = part(chain.crop.x, chain.crop.width, chain.scaled.width,
                                  chain.window.x, chain.window.width, source.width);
  const auto [top, bottom] = part(chain.crop.y, chain.crop.height, chain.scaled.height,
                                  chain.window.y, chain.window.height, source.height);
  return {left, top, std::max(right - left, 0), std::max(bottom - top, 0)};
}

// The region that the first chain of the task decodes; nothing if its ops refuse the image.
std::optional<Rect> draw_region(const ImageTask& task, const Size& size, std::uint64_t key) {
  Geometry chain = Geometry::identity(size);
  for (const GeometryStep& step : task.geometry) {
    const auto fits = step.op->append_to(chain, KeyedRng(mix64(key, step.draw_key)));
    if (!fits) return std::nullopt;
    if (!*fits) break;
  }
  return region_of(chain, size);
}

// Nothing if the item is none that the plan can decode.
std::optional<ItemProbe> look_at(const Plan& plan, ImageDecoder* decoder, const Probe::Item& item) {
  ItemProbe seen;
  const std::span<const std::byte> bytes = item.parts.part(0);
  seen.encoded_bytes = bytes.size();
  seen.stamp = item.parts.revision.stamp;
  seen.waited = item.waited;
  if (decoder == nullptr) return seen;
  const auto size = decoder->open(bytes);
  if (!size) return std::nullopt;
  const std::optional<Rect> region = draw_region(*plan.image, *size, item.number + 1);
  if (!region) return std::nullopt;
  seen.size = *size;
  seen.region = *region;
  seen.jpeg = bytes[0] == std::byte{0xff};
  const std::uint64_t recode_bytes = decoder->recode_bytes();
  seen.can_be_recoded = recode_bytes > 0;
  if (recode_bytes > 0 && recode_bytes <= kMostRecodeBytes &&
      item.number % (kProbes / kRecoded) == 0)
    seen.recoded_bytes = decoder->recode().size();
  return seen;
}

// Items that were not recoded themselves are taken to grow as those that were.
void estimate_recoded(std::vector<ItemProbe>& probes) {
  double encoded = 0, recoded = 0;
  for (const ItemProbe& item : probes) {
    if (item.recoded_bytes == 0) continue;
    encoded += static_cast<double>(item.encoded_bytes);
    recoded += static_cast<double>(item.recoded_bytes);
  }
  const double growth = encoded > 0 ? recoded / encoded : kUsualGrowth;
  for (ItemProbe& item : probes) {
    if (item.can_be_recoded && item.recoded_bytes == 0)
      item.recoded_bytes =
          static_cast<std::uint64_t>(static_cast<double>(item.encoded_bytes) * growth);
  }
}

}  // namespace

std::vector<ItemProbe> probe_items(const Plan& plan, source::Source& source,
                                   bool has_seek_indexes) {
  const auto probe = std::make_shared<Probe>();
  const std::size_t cached = plan.image != nullptr ? plan.image->request : 0;
  const source::PartRequest request = plan.requests[cached];
  probe->begin(source, {&request, 1});
  const std::unique_ptr<ImageDecoder> decoder =
      plan.image != nullptr ? plan.image->decode->make_decoder() : nullptr;
  std::map<std::uint64_t, ItemProbe> probes;  // in the order of the items, whichever came first
  for (auto items = probe->take(); !items.empty(); items = probe->take()) {
    for (const Probe::Item& item : items) {
      auto seen = look_at(plan, decoder.get(), item);
      if (!seen) continue;
      seen->is_indexed = has_seek_indexes && seen->can_be_recoded;
      probes.emplace(item.number, *seen);
    }
    items.clear();
  }
  std::vector<ItemProbe> all;
  all.reserve(probes.size());
  for (const auto& [_, seen] : probes) all.push_back(seen);
  estimate_recoded(all);
  return all;
}

}  // namespace spdld::engine
