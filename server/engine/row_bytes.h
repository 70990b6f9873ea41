// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "engine/cache/sample_cache.h"
#include "source/item/fetched_item.h"

namespace spdld::engine {

// What was brought for a row, by its source and by a cache. Belongs to them while a fetch is
// pending.
struct RowBytes {
  enum class Stage {
    kNone,     // it is not known of which item
    kChosen,   // nothing was asked for
    kSource,   // the source was asked, and `status` is its answer
    kCache,    // the cache's storage was asked, and `status` is its answer
    kAtHand,   // all is there, and is counted once the row is made of it
    kBrought,  // all is there, or `status` says why not
  };

  source::FetchedItem parts;
  Stage stage = Stage::kNone;
  Status status;
  std::chrono::nanoseconds since{0};  // when it was asked for, and then when it was there
  std::chrono::nanoseconds took{0};   // in all stages
  // What the cache has of the item, whether or not the item still is that; its bytes, where they
  // cannot be read in place, which count with those in `parts`.
  std::optional<CachedItem> cached;
  source::ItemBytes cached_bytes;

  // They are asked for anew.
  void restart() {
    stage = Stage::kNone;
    status = {};
  }
  // Keeps no more than this of what the buffers have grown to.
  void shrink(std::size_t kept_bytes) {
    parts.bytes.shrink(kept_bytes);
    cached_bytes.bytes.shrink(kept_bytes);
  }
  // The buffers, to be freed where that holds nobody up.
  std::array<ByteBuffer, 2> release() {
    return {std::exchange(parts.bytes, ByteBuffer()),
            std::exchange(cached_bytes.bytes, ByteBuffer())};
  }
};

}  // namespace spdld::engine
