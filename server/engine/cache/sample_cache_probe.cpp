// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/cache/sample_cache_cost.h"
#include "engine/plan/some_items.h"

namespace spdld::engine {
namespace {

constexpr std::uint64_t kProbes = 64;
// How many of them are recoded, to see what that makes of them, and the largest that are.
constexpr std::uint64_t kRecoded = 8;
constexpr std::uint64_t kMostRecodeBytes = std::uint64_t{16} << 20;
// Times the bytes of a file, where none of these was recoded.
constexpr double kUsualGrowth = 1.7;

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
std::optional<ItemProbe> look_at(const Plan& plan, ImageDecoder* decoder,
                                 const SomeItems::Item& item) {
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
  const auto probe = std::make_shared<SomeItems>(kProbes);
  const std::size_t cached = plan.image != nullptr ? plan.image->request : 0;
  const source::PartRequest request = plan.requests[cached];
  probe->begin(source, {&request, 1});
  const std::unique_ptr<ImageDecoder> decoder =
      plan.image != nullptr ? plan.image->decode->make_decoder() : nullptr;
  std::map<std::uint64_t, ItemProbe> probes;  // in the order of the items, whichever came first
  for (auto items = probe->take(); !items.empty(); items = probe->take()) {
    for (const SomeItems::Item& item : items) {
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
