// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "op/media.h"
#include "source/item/item_bytes.h"
#include "source/item/item_clips.h"

namespace spdld::source {

// One item as its source brings it: the bytes, which every source fills, and the clips that these
// belong to, which sources of clips and windows fill and all others leave alone. Owned as ItemBytes
// are.
class FetchedItem : public ItemBytes {
 public:
  // The caller clears them before it fetches another item, perhaps of another source.
  ItemClips clips;
  // The caller's: of the job's seed, the epoch and the row of the item; what is drawn anew each
  // epoch, such as where a clip begins, is drawn from it and from the item.
  std::uint64_t epoch_key = 0;

  // The bytes of request `i`.
  std::span<const std::byte> part(std::size_t i) const {
    const std::span<const std::byte> first = placed(clips.first_piece(i));
    const std::span<const std::byte> last = placed(clips.last_piece(i));
    return {first.data(), static_cast<std::size_t>(last.data() - first.data()) + last.size()};
  }
  // Whether the item has no such part, which it need not have.
  bool is_absent(std::size_t i) const { return ItemBytes::is_absent(clips.first_piece(i)); }
  std::size_t parts() const { return clips.requests(places()); }
  // Which clip they are of; null: they are the part as it is.
  const MediaClip* clip(std::size_t i) const { return clips.find(i); }
};

// An item that a worker wants with others (Source::bring_at_hand).
struct WantedItem {
  std::uint64_t item = 0;
  FetchedItem* out = nullptr;
  std::size_t number = 0;  // the caller's own
  bool brought = false;
};

}  // namespace spdld::source
