// SPDX-License-Identifier: Apache-2.0
#include "stream/finished_batches.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spdld::stream {
namespace {

// Holds the slot in main memory while it is copied to these slots: no consumer has such an id.
delivery::HolderId copier_for(const SlotPool& on_gpu) {
  return ~delivery::HolderId{on_gpu.arena().id()};
}

}  // namespace

void FinishedBatches::Place::expect() {
  pool->expect(slot);
  ++expected;
}

void FinishedBatches::Place::forgo() {
  SPDLD_CHECK(expected > 0);
  --expected;
  pool->forgo(slot);
}

void FinishedBatches::Place::discard() {
  if (std::exchange(expected, 0) > 0) pool->discard(slot);
}

const FinishedBatches::Place* FinishedBatches::Batch::copy_in(
    const std::shared_ptr<SlotPool>& on_gpu) const {
  const auto copy = std::find_if(copies.begin(), copies.end(),
                                 [&](const Place& known) { return known.pool == on_gpu; });
  return copy == copies.end() ? nullptr : &*copy;
}

const FinishedBatches::Place* FinishedBatches::Batch::place_in(
    const std::shared_ptr<SlotPool>& on_gpu) const {
  if (on_gpu == nullptr) return host.expected > 0 ? &host : nullptr;
  const Place* const copy = copy_in(on_gpu);
  return copy != nullptr && copy->there ? copy : nullptr;
}

FinishedBatches::Place* FinishedBatches::Batch::place_in(const std::shared_ptr<SlotPool>& on_gpu) {
  return const_cast<Place*>(std::as_const(*this).place_in(on_gpu));
}

void FinishedBatches::Batch::expect(const std::shared_ptr<SlotPool>& on_gpu) {
  Place* const copy = place_in(on_gpu);
  (copy != nullptr ? *copy : host).expect();
}

FinishedBatches::Reader* FinishedBatches::find(delivery::HolderId holder) {
  return const_cast<Reader*>(std::as_const(*this).find(holder));
}

const FinishedBatches::Reader* FinishedBatches::find(delivery::HolderId holder) const {
  const auto found = std::find_if(readers_.begin(), readers_.end(),
                                  [&](const Reader& known) { return known.holder == holder; });
  return found == readers_.end() ? nullptr : &*found;
}

const FinishedBatches::Reader* FinishedBatches::find_away(std::uint32_t replica) const {
  const auto found = std::find_if(readers_.begin(), readers_.end(), [&](const Reader& known) {
    return known.is_away() && known.replica == replica;
  });
  return found == readers_.end() ? nullptr : &*found;
}

Index FinishedBatches::lowest() const {
  Index lowest = kNoIndex;
  for (const Reader& reader : readers_) lowest = std::min(lowest, reader.next);
  return lowest;
}

void FinishedBatches::expect(JobTag job, std::uint32_t replica, Index next, job::Turn turn) {
  Reader& away = readers_.emplace_back();
  away.job = job;
  away.replica = replica;
  away.next = next;
  away.turn = turn;
  away.unplaced = true;
}

Index FinishedBatches::joinable(const ReaderTerms& terms, Index first) const {
  bool to_be_copied = false;  // one of the batches from `first` on
  Index next = first;
  for (auto known = batches_.lower_bound(first); known != batches_.end(); ++known) {
    const auto& [at, batch] = *known;
    if (next < at) to_be_copied = true;  // it is in the making
    next = at + 1;
    // A reader that went back may still hold the slot that it was given before, and may have
    // written to its view of it: the batch is made for it once more, elsewhere.
    const auto is_held = [&](const Place& place) {
      return place.pool->slots().holds(place.slot, terms.holder);
    };
    if (pool_->slots().holds(batch.host.slot, terms.holder) ||
        std::any_of(batch.copies.begin(), batch.copies.end(), is_held) ||
        !batch.reaches(terms.on_gpu)) {
      first = at + 1;
      to_be_copied = false;
    } else if (batch.copy_in(terms.on_gpu) == nullptr) {
      to_be_copied = true;
    } else if (to_be_copied) {
      // Later steps have slots on its GPU already, which would be kept for it: earlier ones could
      // wait for slots in vain.
      first = at;
      to_be_copied = false;
    }
  }
  return first;
}

void FinishedBatches::join(const ReaderTerms& terms, const std::shared_ptr<StreamReader>& reader) {
  Reader joined{terms, reader};
  expect(joined, joined.next, joined.until);
  std::shared_ptr<SlotPool> before;
  if (const Reader* const place = find_away(terms.replica)) {
    // Batches that were kept for it until it came are kept for the reader now.
    forgo(*place, place->next, place->until);
    before = place->on_gpu;
    readers_[static_cast<std::size_t>(place - readers_.data())] = std::move(joined);
  } else {
    readers_.push_back(std::move(joined));
  }
  drop_unread(before);
}

void FinishedBatches::skip_to(Reader& reader, Index to) {
  forgo(reader, reader.next, to);
  reader.next = to;
}

bool FinishedBatches::set_until(Reader& reader, Index until) {
  if (until < reader.until) {
    forgo(reader, std::max(until, reader.next), reader.until);
  } else if (until > reader.until) {
    const Index first = std::max(reader.until, reader.next);
    const auto reaches = [&](const auto& known) { return known.second.reaches(reader.on_gpu); };
    if (gone_ > first ||
        !std::all_of(batches_.lower_bound(first), batches_.lower_bound(until), reaches))
      return false;
    expect(reader, first, until);
  }
  reader.until = until;
  return true;
}

void FinishedBatches::set_away(Reader& reader) {
  reader.holder = 0;
  reader.consumer.reset();
  reader.hungry = false;
}

void FinishedBatches::remove(const Reader& reader) {
  forgo(reader, reader.next, reader.until);
  const auto on_gpu = reader.on_gpu;
  readers_.erase(readers_.begin() + (&reader - readers_.data()));
  drop_unread(on_gpu);
}

void FinishedBatches::stop(const std::shared_ptr<SlotPool>& on_gpu) {
  for (Reader& reader : readers_) {
    if (reader.on_gpu != on_gpu) continue;
    forgo(reader, reader.next, reader.until);
    reader.until = reader.next;
  }
}

std::optional<TakenBatch> FinishedBatches::take(Reader& reader, Index at) {
  skip_to(reader, at);
  const auto found = batches_.find(at);
  Place* const place = found == batches_.end() ? nullptr : found->second.place_in(reader.on_gpu);
  reader.hungry = place == nullptr;
  if (place == nullptr) return std::nullopt;
  const auto lease = place->pool->acquire(place->slot, reader.holder);
  SPDLD_CHECK(lease.has_value());
  TakenBatch taken{
      .lease = *lease, .pool = place->pool, .slot = place->slot, .order = found->second.order};
  if (const auto replaced = replaced_.find(at); replaced != replaced_.end()) {
    for (Replaced& sample : replaced->second) {
      if (std::find(sample.told.begin(), sample.told.end(), reader.job) != sample.told.end())
        continue;
      sample.told.push_back(reader.job);
      taken.replaced.push_back(sample.failure);
    }
  }
  reader.next = at + 1;
  place->taken = true;
  --place->expected;
  settle(found);
  return taken;
}

bool FinishedBatches::has(const Reader& reader, Index at) const {
  const auto found = batches_.find(at);
  return found != batches_.end() && found->second.place_in(reader.on_gpu) != nullptr;
}

ReadableBatches FinishedBatches::readable(const Reader& reader) const {
  ReadableBatches readable;
  Index at = reader.next;
  for (; at < reader.until && has(reader, at); ++at) ++readable.batches;
  readable.to_its_end = at >= reader.until;
  return readable;
}

bool FinishedBatches::lacks_room(const Reader& reader) const {
  if (reader.on_gpu == nullptr) return false;
  const auto counts = reader.on_gpu->slots().counts();
  return counts.free == 0 && counts.loaned == 0 && !has(reader, reader.next);
}

ReaderRefs FinishedBatches::add(std::uint32_t slot, const engine::BatchOrder& order) {
  const Index at = making_.extract(slot).mapped();
  const auto expected = static_cast<std::uint32_t>(std::count_if(
      readers_.begin(), readers_.end(), [&](const Reader& reader) { return reader.wants(at); }));
  pool_->commit(slot, expected);
  if (expected == 0) {
    forget(at);
    return {};
  }
  batches_.emplace(
      at, Batch{.order = order, .host = {.pool = pool_, .slot = slot, .expected = expected}});
  return live([&](const Reader& reader) { return reader.wants(at) && reader.next == at; });
}

void FinishedBatches::skip(std::uint32_t slot) {
  forget(making_.extract(slot).mapped());
  pool_->abort(slot);
}

void FinishedBatches::clear() {
  for (auto& [at, batch] : batches_) {
    batch.host.discard();
    for (Place& copy : batch.copies) copy.discard();
  }
  batches_.clear();
  replaced_.clear();
}

std::optional<FinishedBatches::Copy> FinishedBatches::begin_copy() {
  for (const Reader& reader : readers_) {
    const std::shared_ptr<SlotPool>& on_gpu = reader.on_gpu;
    if (on_gpu == nullptr || !on_gpu->has_memory()) continue;
    const BatchAt found = to_copy(on_gpu);
    if (found == batches_.end()) continue;
    const auto to = on_gpu->loan();
    if (!to) continue;
    // The copier is one more reader, so that readers may leave meanwhile.
    Batch& batch = found->second;
    pool_->expect(batch.host.slot);
    const auto lease = pool_->acquire(batch.host.slot, copier_for(*on_gpu));
    SPDLD_CHECK(lease.has_value());
    batch.copies.push_back({.pool = on_gpu, .slot = *to});
    return Copy{
        .at = found->first, .order = batch.order, .on_gpu = on_gpu, .to = *to, .lease = *lease};
  }
  return std::nullopt;
}

bool FinishedBatches::wants(const Copy& copy) const {
  return batches_.contains(copy.at) &&
         std::any_of(readers_.begin(), readers_.end(), [&](const Reader& reader) {
           return reader.on_gpu == copy.on_gpu && reader.wants(copy.at);
         });
}

ReaderRefs FinishedBatches::end_copy(const Copy& copy, bool complete) {
  const BatchAt found = batches_.find(copy.at);
  const auto takes_it = [&](const Reader& reader) {
    return complete && found != batches_.end() && reader.on_gpu == copy.on_gpu &&
           reader.wants(copy.at);
  };
  auto expected =
      static_cast<std::uint32_t>(std::count_if(readers_.begin(), readers_.end(), takes_it));
  for (std::uint32_t i = 0; i < expected; ++i) found->second.host.forgo();
  const ReaderRefs waiting =
      live([&](const Reader& reader) { return takes_it(reader) && reader.next == copy.at; });
  if (expected > 0) expected += unplaced(copy.at);
  copy.on_gpu->commit(copy.to, expected);
  if (found != batches_.end()) {
    auto& copies = found->second.copies;
    const auto place = std::find_if(copies.begin(), copies.end(),
                                    [&](const Place& known) { return known.pool == copy.on_gpu; });
    place->there = true;
    place->expected = expected;
    settle(found);
  }
  if (pool_->release(copy.lease, copier_for(*copy.on_gpu))) pool_->freed();
  return waiting;
}

void FinishedBatches::expect(const Reader& reader, Index from, Index to) {
  for (auto known = batches_.lower_bound(from); known != batches_.end() && known->first < to;
       ++known)
    known->second.expect(reader.on_gpu);
}

void FinishedBatches::forgo(const Reader& reader, Index from, Index to) {
  for (auto known = batches_.lower_bound(from); known != batches_.end() && known->first < to;) {
    const BatchAt here = known++;
    if (reader.wants(here->first)) forgo(here, reader);
  }
}

void FinishedBatches::forgo(BatchAt batch, const Reader& reader) {
  const std::uint32_t others = unplaced(batch->first);
  bool elsewhere = false;
  for (Place& copy : batch->second.copies) {
    if (!copy.there) continue;
    if (reader.unplaced) {
      copy.forgo();
    } else if (copy.pool == reader.on_gpu) {
      elsewhere = true;
      // A copy that no reader has taken is not kept for replicas that may come.
      if (!copy.taken && copy.expected == others + 1) {
        copy.discard();
      } else {
        copy.forgo();
      }
    }
  }
  if (!elsewhere) batch->second.host.forgo();
  settle(batch);
}

std::uint32_t FinishedBatches::unplaced(Index at) const {
  return static_cast<std::uint32_t>(
      std::count_if(readers_.begin(), readers_.end(),
                    [&](const Reader& reader) { return reader.unplaced && reader.wants(at); }));
}

void FinishedBatches::drop_unread(const std::shared_ptr<SlotPool>& on_gpu) {
  const auto reads_there = [&](const Reader& reader) { return reader.on_gpu == on_gpu; };
  if (on_gpu == nullptr || std::any_of(readers_.begin(), readers_.end(), reads_there)) return;
  for (auto known = batches_.begin(); known != batches_.end();) {
    const BatchAt here = known++;
    if (Place* const copy = here->second.place_in(on_gpu)) copy->discard();
    settle(here);
  }
}

void FinishedBatches::settle(BatchAt batch) {
  auto& copies = batch->second.copies;
  std::erase_if(copies, [](const Place& copy) { return copy.there && copy.expected == 0; });
  if (batch->second.host.expected > 0 ||
      std::any_of(copies.begin(), copies.end(), [](const Place& copy) { return copy.there; }))
    return;
  forget(batch->first);
  batches_.erase(batch);
}

void FinishedBatches::forget(Index at) {
  replaced_.erase(at);
  gone_ = std::max(gone_, at + 1);
}

FinishedBatches::BatchAt FinishedBatches::to_copy(const std::shared_ptr<SlotPool>& on_gpu) {
  Index first = kNoIndex;
  for (const Reader& reader : readers_) {
    if (reader.on_gpu != on_gpu) continue;
    for (Index at = reader.next; at < std::min(reader.until, first); ++at) {
      const auto known = batches_.find(at);
      if (known == batches_.end() || known->second.copy_in(on_gpu) == nullptr) first = at;
    }
  }
  return batches_.find(first);
}

}  // namespace spdld::stream
