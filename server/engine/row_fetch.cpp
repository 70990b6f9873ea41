// SPDX-License-Identifier: Apache-2.0
#include "engine/row_fetch.h"

#include <new>
#include <utility>
#include <vector>

#include "base/memory/no_memory.h"
#include "engine/row.h"

namespace spdld::engine {

namespace {

// Where the answer to the stage's question is put.
source::ItemBytes& asked(RowBytes& bytes) {
  if (bytes.stage == RowBytes::Stage::kCache) return bytes.cached_bytes;
  return bytes.parts;
}

}  // namespace

source::FetchState RowFetch::bring(std::uint64_t item, RowBytes& bytes, source::FetchSink& sink,
                                   std::uint64_t token) {
  using Stage = RowBytes::Stage;
  bool look_up = true;
  while (bytes.stage != Stage::kBrought) {
    switch (bytes.stage) {
      case Stage::kNone:
      case Stage::kChosen:
        if (!ask_source(item, bytes, look_up, sink, token)) return source::FetchState::kPending;
        break;
      case Stage::kSource:
        if (!bytes.status.ok() || cached(bytes) == nullptr ||
            cache_->view(*bytes.cached) != nullptr) {
          bytes.stage = Stage::kBrought;
        } else if (!ask_cache(bytes, sink, token)) {
          return source::FetchState::kPending;
        }
        break;
      case Stage::kCache:
        if (bytes.status.ok() &&
            SampleCache::holds(*bytes.cached, bytes.cached_bytes.bytes.bytes())) {
          bytes.stage = Stage::kBrought;
          break;
        }
        // What was kept is lost; the item is not.
        cache_->forget_lost(cache_key(item), *bytes.cached, bytes.status);
        bytes.cached_bytes.bytes.shrink(0);
        bytes.stage = Stage::kNone;
        look_up = false;
        break;
      case Stage::kAtHand:
        stats_.begin();
        stats_.end(bytes.took, std::chrono::nanoseconds(0));
        bytes.stage = Stage::kBrought;
        break;
      case Stage::kBrought: break;
    }
    if (bytes.stage == Stage::kBrought) settle(item, bytes);
  }
  return source::FetchState::kReady;
}

bool RowFetch::ask_source(std::uint64_t item, RowBytes& bytes, bool look_up,
                          source::FetchSink& sink, std::uint64_t token) {
  bytes.parts.clips.clear();
  source::Revision& revision = bytes.parts.revision;
  revision = {};
  revision.asked = cache_ != nullptr;
  revision.request = request();
  bytes.cached.reset();
  bytes.took = {};
  if (cache_ != nullptr && look_up) {
    bytes.cached = cache_->find(cache_key(item));
    if (bytes.cached) revision.known = bytes.cached->stamp;
    if (bytes.cached && cache_->where() == spec::CacheSpec::Where::kDisk)
      revision.kept_bytes = ByteBuffer::grown(bytes.cached->bytes);
  }
  return ask(bytes, RowBytes::Stage::kSource, "its bytes",
             [&] { return source_.fetch(item, plan_.requests, bytes.parts, sink, token); });
}

bool RowFetch::ask_cache(RowBytes& bytes, source::FetchSink& sink, std::uint64_t token) {
  return ask(bytes, RowBytes::Stage::kCache, "its bytes from the cache",
             [&] { return cache_->read(*bytes.cached, bytes.cached_bytes, sink, token); });
}

void RowFetch::bring_at_hand(std::span<Row* const> rows) {
  if (cache_ != nullptr || rows.empty()) return;  // a cache is asked first, for each
  const auto begun = clock_.now();
  std::vector<source::WantedItem> wanted;
  try {
    wanted.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      source::FetchedItem& parts = rows[i]->bytes.parts;
      parts.clips.clear();
      parts.revision = {};
      wanted.push_back({.item = rows[i]->item, .out = &parts, .number = i});
    }
    source_.bring_at_hand(wanted, plan_.requests);
  } catch (const std::bad_alloc&) {
    return;
  }
  const auto now = clock_.now();
  std::uint64_t brought = 0;
  for (const source::WantedItem& item : wanted) {
    if (!item.brought) continue;
    RowBytes& bytes = rows[item.number]->bytes;
    brought += bytes.parts.bytes.size();
    bytes.stage = RowBytes::Stage::kAtHand;
    bytes.since = now;
    bytes.took = (now - begun) / static_cast<std::int64_t>(rows.size());
  }
  stats_.add_bytes(brought);  // once for all of them
}

template <typename Ask>
bool RowFetch::ask(RowBytes& bytes, RowBytes::Stage stage, const char* what, const Ask& ask) {
  bytes.stage = stage;
  bytes.since = clock_.now();
  asked(bytes).queued = {};
  stats_.begin();
  // Once the source has the row, its thread may give it to another worker: no touching it after.
  Result<source::FetchState> state = source::FetchState::kReady;
  try {
    state = ask();
  } catch (const std::bad_alloc&) {  // a source that has the row throws no more
    state = tl::unexpected<Status>(no_memory(what));
  }
  if (state && *state == source::FetchState::kPending) return false;
  ended(bytes, state ? Status() : std::move(state).error());
  return true;
}

void RowFetch::ended(RowBytes& bytes, Status status) {
  const auto now = clock_.now();
  const std::chrono::nanoseconds queued = asked(bytes).queued;
  stats_.end(now - bytes.since - queued, queued, status.code());
  if (status.ok()) stats_.add_bytes(asked(bytes).bytes.size());
  bytes.took += now - bytes.since;
  bytes.since = now;
  bytes.status = std::move(status);
}

void RowFetch::settle(std::uint64_t item, const RowBytes& bytes) {
  if (cache_ == nullptr || !bytes.status.ok()) return;
  const source::Revision& revision = bytes.parts.revision;
  if (bytes.cached && !revision.unchanged) cache_->forget_changed(cache_key(item), *bytes.cached);
  if (cache_->form() != spec::CacheSpec::Form::kEncoded) return;
  if (revision.unchanged) {
    count_hit(bytes.took);
    return;
  }
  cache_->count_miss(bytes.took, true);
  if (revision.stamp)
    cache_->keep(cache_key(item), *revision.stamp, {}, bytes.parts.part(revision.request));
}

std::span<const std::byte> RowFetch::part(const RowBytes& bytes, std::size_t i) const {
  if (cached(bytes) == nullptr || i != bytes.parts.revision.request ||
      cached(bytes)->size != Size{})
    return bytes.parts.part(i);
  return cached_bytes(bytes);
}

std::span<const std::byte> RowFetch::cached_bytes(const RowBytes& bytes) const {
  if (const std::byte* const view = cache_->view(*bytes.cached)) return {view, bytes.cached->bytes};
  return bytes.cached_bytes.bytes.bytes();
}

void RowFetch::count_hit(std::chrono::nanoseconds took) {
  cache_->count_hit(took);
  hits_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace spdld::engine
