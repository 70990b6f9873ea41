// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/image_sizes.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <utility>

#include "engine/plan/some_items.h"

namespace spdld::engine {
namespace {

constexpr std::size_t kLooks = 16;

}  // namespace

PictureSizes look_at_images(source::Source& source, std::size_t part, const DecodeImageOp& op) {
  const auto items = std::make_shared<SomeItems>(kLooks);
  const source::PartRequest request{.part = part};
  items->begin(source, {&request, 1});
  const std::unique_ptr<ImageDecoder> decoder = op.make_decoder();
  std::map<std::uint64_t, Size> sizes;  // in the order of the items, whichever came first
  for (auto some = items->take(); !some.empty(); some = items->take()) {
    for (const SomeItems::Item& item : some) {
      if (item.parts.is_absent(0)) continue;
      if (const auto size = decoder->open(item.parts.part(0))) sizes.emplace(item.item, *size);
    }
    some.clear();
  }
  if (sizes.empty()) return {};
  const auto& [first, size] = *sizes.begin();
  for (const auto& [item, other] : sizes) {
    if (other == size) continue;
    return {.differing = fmt::format("{} has {}x{} pixels, {} {}x{}", source.uri(first), size.width,
                                     size.height, source.uri(item), other.width, other.height)};
  }
  return {.one = size};
}

}  // namespace spdld::engine
