// SPDX-License-Identifier: Apache-2.0
#include "stream/stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spdld::stream {

Stream::Stream(StreamOptions options, std::shared_ptr<SlotPool> pool, engine::Executor& executor,
               const Clock& clock)
    : shard_(options.shard),
      from_(options.from),
      replicas_(options.replicas),
      passage_(options.passage),
      absent_(options.absent),
      phase_(options.timeline.phase(options.from)),
      pool_(std::move(pool)),
      device_layout_(phase_->run->plan().layout.fields(), phase_->run->plan().layout.rows()),
      executor_(executor),
      clock_(clock),
      timeline_(std::move(options.timeline)),
      maker_(options.maker),
      after_(std::move(options.after)),
      to_make_(options.from),
      watched_since_(clock.now()) {
  for (const AwaitedReplica& replica : options.awaited) {
    Reader& away = readers_.emplace_back();
    away.job = maker_;
    away.replica = replica.replica;
    away.next = std::max(from_, replica.from);
    away.unplaced = true;
  }
}

void Stream::bind(engine::StreamId stream) {
  bool ended = false;
  {
    MutexLock lock(mutex_);
    stream_ = stream;
    ended = ended_;
  }
  if (ended) return executor_.close_stream(stream);
  pool_->serve(stream);
  executor_.wake(stream);  // what became free before had no stream to wake
}

void Stream::lead(const std::shared_ptr<Stream>& next) {
  {
    MutexLock lock(mutex_);
    followers_.push_back(next);
  }
  tell_followers();
}

void Stream::tell_followers() {
  std::vector<std::weak_ptr<Stream>> due;
  {
    MutexLock lock(mutex_);
    if (followers_.empty()) return;
    const job::StepAt begun = timeline_.settled(to_make_);
    const auto waits = [&](const std::weak_ptr<Stream>& follower) SPDLD_REQUIRES(mutex_) {
      const auto next = follower.lock();
      return next != nullptr && !ended_ && begun < next->from_;
    };
    const auto first_due = std::partition(followers_.begin(), followers_.end(), waits);
    due.assign(first_due, followers_.end());
    followers_.erase(first_due, followers_.end());
  }
  for (const auto& follower : due) {
    if (const auto next = follower.lock()) next->wake();
  }
}

void Stream::wake_followers() {
  std::vector<std::weak_ptr<Stream>> followers;
  {
    MutexLock lock(mutex_);
    followers = followers_;
  }
  for (const auto& follower : followers) {
    if (const auto next = follower.lock()) next->wake();
  }
}

void Stream::wake() {
  engine::StreamId stream = 0;
  {
    MutexLock lock(mutex_);
    stream = stream_;
  }
  if (stream != 0) executor_.wake(stream);
}

Stream::Reader* Stream::find(delivery::HolderId reader) {
  const auto found = std::find_if(readers_.begin(), readers_.end(),
                                  [&](const Reader& known) { return known.id == reader; });
  return found == readers_.end() ? nullptr : &*found;
}

const Stream::Reader* Stream::find(delivery::HolderId reader) const {
  const auto found = std::find_if(readers_.begin(), readers_.end(),
                                  [&](const Reader& known) { return known.id == reader; });
  return found == readers_.end() ? nullptr : &*found;
}

job::StepAt Stream::lowest() const {
  job::StepAt lowest = job::kNever;
  for (const Reader& reader : readers_) lowest = std::min(lowest, reader.next);
  return lowest;
}

std::optional<job::StepAt> Stream::offered(const ReaderTerms& terms) const {
  if (ended_ || readers_.empty() || find(terms.holder) != nullptr) return std::nullopt;
  if (pool_->has_retired() || (terms.on_gpu != nullptr && terms.on_gpu->has_retired()))
    return std::nullopt;
  job::StepAt first = std::max(gone_, std::min(lowest(), to_make_));
  if (replicas_ > 1) {
    if (terms.job != maker_) return std::nullopt;
    for (const Reader& known : readers_) {
      if (known.id != 0 || known.replica != terms.replica) continue;
      // It may have been to end at `until`, for a swap that was given up after it had left.
      first = gone_ > known.until ? gone_ : known.next;
    }
  } else if (terms.from > to_make_ || follows()) {
    return std::nullopt;  // it would wait for somebody else's consumer
  }
  first = std::max(first, terms.from);
  bool to_be_copied = false;  // one of those from `first` on
  job::StepAt next = timeline_.settled(first);
  for (auto ready = ready_.lower_bound(first); ready != ready_.end(); ++ready) {
    const auto& [at, batch] = *ready;
    if (next < at) to_be_copied = true;  // it is in the making
    next = timeline_.settled({at.epoch, at.step + 1});
    // Who went back may still have what it was handed before, and written to its view of it: that
    // is made for it once more, elsewhere.
    const auto has_it = [&](const Copied& copy) {
      return copy.pool->slots().holds(copy.slot, terms.holder);
    };
    const auto is_its_own = [&](const Copied& copy) { return copy.pool == terms.on_gpu; };
    if (pool_->slots().holds(batch.slot, terms.holder) ||
        std::any_of(batch.copies.begin(), batch.copies.end(), has_it) ||
        !reaches(batch, terms.on_gpu)) {
      first = {at.epoch, at.step + 1};
      to_be_copied = false;
    } else if (std::none_of(batch.copies.begin(), batch.copies.end(), is_its_own)) {
      to_be_copied = true;
    } else if (to_be_copied) {
      // Later steps have slots on its GPU already, which would be kept for it: those that come
      // first could wait for slots in vain.
      first = at;
      to_be_copied = false;
    }
  }
  return first;
}

std::optional<job::StepAt> Stream::offers(const ReaderTerms& terms) const {
  MutexLock lock(mutex_);
  return offered(terms);
}

std::optional<job::StepAt> Stream::join(const std::shared_ptr<StreamReader>& reader,
                                        const ReaderTerms& terms, job::StepAt latest) {
  std::optional<job::StepAt> from;
  {
    MutexLock lock(mutex_);
    if (ended_) return std::nullopt;
    // The first one finds nobody.
    from = readers_.empty() ? terms.from : offered(terms);
    if (!from || *from > latest || *from >= terms.until) return std::nullopt;
    const auto place = std::find_if(readers_.begin(), readers_.end(), [&](const Reader& known) {
      return known.id == 0 && known.replica == terms.replica;
    });
    // What is finished already is kept for one more; what it was kept for, if it was, has come.
    for (auto& [at, ready] : ready_) {
      if (at >= *from && at < terms.until) expect(ready, terms.on_gpu);
    }
    std::shared_ptr<SlotPool> before;
    if (place != readers_.end()) {
      forgo(*place, place->next, place->until);
      before = place->on_gpu;
    }
    if (terms.on_gpu != nullptr)
      terms.on_gpu->serve(std::weak_ptr<DeviceSlotWaiter>(weak_from_this()));
    Reader& joined = place != readers_.end() ? *place : readers_.emplace_back();
    joined = {.id = terms.holder,
              .reader = reader,
              .job = terms.job,
              .replica = terms.replica,
              .next = *from,
              .until = terms.until,
              .open_epochs = terms.open_epochs,
              .on_gpu = terms.on_gpu};
    left(before);
    begin_copies();
  }
  wake();
  return from;
}

void Stream::forget(job::StepAt at) {
  replaced_.erase(at);
  gone_ = std::max(gone_, job::StepAt{at.epoch, at.step + 1});
}

bool Stream::Ready::is_read() const {
  return expected == 0 &&
         std::none_of(copies.begin(), copies.end(), [](const Copied& copy) { return copy.there; });
}

Stream::ReadyAt Stream::drop(ReadyAt ready) {
  forget(ready->first);
  return ready_.erase(ready);
}

void Stream::forgo(const Reader& reader, job::StepAt from, job::StepAt to) {
  for (auto entry = ready_.lower_bound(from); entry != ready_.end() && entry->first < to;) {
    const auto here = entry++;
    if (!reader.wants(here->first)) continue;
    forgo(here->second, reader);
    if (here->second.is_read()) drop(here);
  }
}

void Stream::remove(std::vector<Reader>::iterator reader) {
  forgo(*reader, reader->next, reader->until);
  const auto on_gpu = reader->on_gpu;
  readers_.erase(reader);
  left(on_gpu);
}

void Stream::leave(delivery::HolderId id, bool away) {
  bool last = false;
  {
    MutexLock lock(mutex_);
    Reader* reader = find(id);
    if (reader == nullptr) return;
    // Another process may have taken its place before this one was known to be gone.
    const auto successor = [&](const Reader& other) {
      return other.id != id && other.replica == reader->replica;
    };
    if (away && replicas_ > 1 && absent_ == AbsentReplica::kWait &&
        std::none_of(readers_.begin(), readers_.end(), successor)) {
      reader->id = 0;
      reader->reader.reset();
      reader->hungry = false;
    } else {
      remove(readers_.begin() + (reader - readers_.data()));
    }
    last = std::all_of(readers_.begin(), readers_.end(),
                       [](const Reader& known) { return known.id == 0; });
    const auto makers = [this](const Reader& known)
                            SPDLD_REQUIRES(mutex_) { return known.job == maker_; };
    if (!last && std::none_of(readers_.begin(), readers_.end(), makers))
      maker_ = readers_.front().job;
    if (!last) begin_copies();  // what it needed first may have kept others back
  }
  if (last) return end();
  wake();
  wake_followers();  // they may have waited for this reader's sake
}

void Stream::dismiss(JobTag job, std::uint32_t replica) {
  {
    MutexLock lock(mutex_);
    const auto place = std::find_if(readers_.begin(), readers_.end(), [&](const Reader& known) {
      return known.id == 0 && known.job == job && known.replica == replica;
    });
    if (place == readers_.end()) return;
    remove(place);
    begin_copies();
  }
  wake();
}

void Stream::end() {
  engine::StreamId stream = 0;
  {
    MutexLock lock(mutex_);
    stream = stream_;
    ended_ = true;
    after_.reset();
    for (const auto& [at, ready] : ready_) {
      if (ready.expected > 0) pool_->discard(ready.slot);
      for (const Copied& copy : ready.copies) {
        if (copy.there) copy.pool->discard(copy.slot);
      }
    }
    ready_.clear();
    replaced_.clear();
  }
  if (stream != 0) executor_.close_stream(stream);
  tell_followers();
}

bool Stream::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

std::shared_ptr<SlotPool> Stream::pool_of(delivery::HolderId id) const {
  MutexLock lock(mutex_);
  const Reader* const reader = find(id);
  return reader == nullptr || reader->on_gpu == nullptr ? pool_ : reader->on_gpu;
}

Timeline Stream::timeline() const {
  MutexLock lock(mutex_);
  return timeline_;
}

std::vector<JobTag> Stream::jobs() const {
  MutexLock lock(mutex_);
  std::vector<JobTag> jobs;
  for (const Reader& reader : readers_) {
    if (std::find(jobs.begin(), jobs.end(), reader.job) == jobs.end()) jobs.push_back(reader.job);
  }
  return jobs;
}

// No slot is free. If somebody has read all that there is, the others have them.
void Stream::note_stall() {
  if (stalled_since_ || replicas_ > 1 || readers_.size() < 2) return;
  if (std::any_of(readers_.begin(), readers_.end(),
                  [this](const Reader& reader) SPDLD_REQUIRES(mutex_) { return starves(reader); }))
    stalled_since_ = clock_.now();
}

bool Stream::starves(const Reader& reader) const {
  if (!reader.hungry) return false;
  return reader.next >= to_make_ || lacks_room(reader);
}

bool Stream::lacks_room(const Reader& reader) const {
  if (reader.on_gpu == nullptr) return false;
  const auto counts = reader.on_gpu->slots().counts();
  if (counts.free > 0 || counts.loaned > 0) return false;
  const auto next = ready_.find(timeline_.settled(reader.next));
  return next == ready_.end() || !is_there(next->second, reader.on_gpu);
}

Stream::ReaderRefs Stream::held_up() {
  MutexLock lock(mutex_);
  const auto now = clock_.now();
  if (stalled_since_) stalled_ += now - *std::exchange(stalled_since_, now);
  const auto watched = now - std::exchange(watched_since_, now);
  const auto stalled = std::exchange(stalled_, std::chrono::nanoseconds(0));
  ReaderRefs readers;
  if (stalled * 5 <= watched) return readers;
  for (const Reader& reader : readers_) {
    if (!starves(reader)) continue;
    if (auto ref = reader.reader.lock()) readers.push_back(std::move(ref));
  }
  if (readers.size() == readers_.size()) readers.erase(readers.begin());
  return readers;
}

Stream::ReaderRefs Stream::live_readers() const {
  ReaderRefs refs;
  for (const Reader& reader : readers_) {
    if (auto ref = reader.reader.lock()) refs.push_back(std::move(ref));
  }
  return refs;
}

std::optional<Stream::Taken> Stream::take(delivery::HolderId id, job::StepAt at) {
  MutexLock lock(mutex_);
  Reader* const reader = find(id);
  if (reader == nullptr || at < reader->next || at >= reader->until) return std::nullopt;
  forgo(*reader, reader->next, at);
  reader->next = at;
  const auto found = ready_.find(at);
  if (found == ready_.end() || !is_there(found->second, reader->on_gpu)) {
    reader->hungry = true;
    begin_copies();  // it may have passed by what was to be copied first
    if (pool_->slots().counts().free == 0) note_stall();
    return std::nullopt;
  }
  Ready& ready = found->second;
  const CopiedAt copy = copy_of(ready, reader->on_gpu);
  const bool copied = copy != ready.copies.end();
  const std::shared_ptr<SlotPool> pool = copied ? copy->pool : pool_;
  const std::uint32_t slot = copied ? copy->slot : ready.slot;
  const auto lease = pool->acquire(slot, id);
  SPDLD_CHECK(lease.has_value());
  Taken taken{.lease = *lease,
              .pool = pool,
              .slot = slot,
              .order = ready.order,
              .shared = reader->job != maker_};
  if (const auto replaced = replaced_.find(at); replaced != replaced_.end()) {
    for (Replaced& sample : replaced->second) {
      if (std::find(sample.told.begin(), sample.told.end(), reader->job) != sample.told.end())
        continue;
      sample.told.push_back(reader->job);
      taken.replaced.push_back(sample.failure);
    }
  }
  reader->next = {at.epoch, at.step + 1};
  reader->hungry = false;
  if (copied) {
    copy->taken = true;
    take_off(ready, copy);
  } else {
    --ready.expected;
  }
  if (ready.is_read()) drop(found);
  return taken;
}

bool Stream::jump(delivery::HolderId id, job::StepAt to) {
  engine::StreamId stream = 0;
  bool past_all = false;
  {
    MutexLock lock(mutex_);
    Reader* const reader = find(id);
    if (ended_ || reader == nullptr || to < reader->next || to >= reader->until) return false;
    if (to > to_make_ && replicas_ == 1 && readers_.size() > 1) return false;
    // Replicas that are away are expected where it goes, not where it was.
    const auto others_away = [&](const Reader& other) { return other.id == 0 || other.id == id; };
    if (readers_.size() > 1 && std::all_of(readers_.begin(), readers_.end(), others_away))
      return false;
    forgo(*reader, reader->next, to);
    reader->next = to;
    reader->hungry = false;
    begin_copies();
    past_all = lowest() > to_make_;
    if (past_all) ++holds_;  // so that what is given up is not what comes after the jump
    stream = stream_;
  }
  if (past_all) {
    executor_.cancel(stream, 0, 0);
    MutexLock lock(mutex_);
    --holds_;
  }
  executor_.wake(stream);
  return true;
}

bool Stream::set_until(delivery::HolderId id, job::StepAt until) {
  {
    MutexLock lock(mutex_);
    Reader* const reader = find(id);
    if (reader == nullptr) return false;
    if (reader->until == until) return true;
    if (until < reader->until) {
      forgo(*reader, std::max(until, reader->next), reader->until);
    } else {
      const job::StepAt first = std::max(reader->until, reader->next);
      if (gone_ > first) return false;
      for (auto ready = ready_.lower_bound(first); ready != ready_.end(); ++ready) {
        if (ready->first < until && !reaches(ready->second, reader->on_gpu)) return false;
      }
      for (auto ready = ready_.lower_bound(first); ready != ready_.end(); ++ready) {
        if (ready->first < until) expect(ready->second, reader->on_gpu);
      }
    }
    reader->until = until;
    begin_copies();
  }
  wake();
  return true;
}

void Stream::open_epochs(delivery::HolderId id, std::uint64_t count) {
  {
    MutexLock lock(mutex_);
    if (Reader* const reader = find(id)) reader->open_epochs = count;
  }
  wake();
}

std::optional<job::StepAt> Stream::hold() {
  MutexLock lock(mutex_);
  ++holds_;
  if (to_make_ <= from_) return std::nullopt;
  return timeline_.settled(to_make_);
}

void Stream::go_on() {
  {
    MutexLock lock(mutex_);
    --holds_;
  }
  wake();
}

bool Stream::retime(const Timeline& timeline, JobTag job) {
  MutexLock lock(mutex_);
  if (std::any_of(readers_.begin(), readers_.end(),
                  [&](const Reader& reader) { return reader.job != job; }))
    return false;
  timeline_ = timeline;
  return true;
}

std::string Stream::waits_for(delivery::HolderId id) const {
  MutexLock lock(mutex_);
  const Reader* const reader = find(id);
  if (reader == nullptr || ended_) return {};
  if (reader->on_gpu != nullptr && !reader->on_gpu->has_memory())
    return "the driver of " + reader->on_gpu->gpu()->name() +
           " was asked for memory there and has not answered yet";
  if (replicas_ == 1) return {};
  const bool nothing_made = reader->next >= to_make_ && pool_->slots().counts().free == 0;
  if (!nothing_made && !lacks_room(*reader)) return {};
  const Reader* slowest = nullptr;
  for (const Reader& other : readers_) {
    if (other.next >= reader->next) continue;
    if (!nothing_made && other.on_gpu != reader->on_gpu && !other.unplaced) continue;
    const auto is_behind = [&](const Reader& known) {
      return other.next < known.next ||
             (other.next == known.next && other.id == 0 && known.id != 0);
    };
    if (slowest == nullptr || is_behind(*slowest)) slowest = &other;
  }
  const std::string shard = " of shard " + std::to_string(shard_);
  if (slowest == nullptr)
    return "the replicas" + shard +
           " hold different batches, and with that all slots: release some";
  const std::string name = "replica " + std::to_string(slowest->replica) + shard;
  if (slowest->id == 0) return name + " has not come, or not come back, and all slots are full";
  return name + " is still at " + place_text(slowest->next);
}

Stream::Readable Stream::readable(delivery::HolderId id) const {
  MutexLock lock(mutex_);
  Readable readable;
  const Reader* const reader = find(id);
  if (reader == nullptr) return readable;
  job::StepAt at = timeline_.settled(reader->next);
  for (auto ready = ready_.find(at); ready != ready_.end() && ready->first == at; ++ready) {
    if (at >= reader->until || !is_there(ready->second, reader->on_gpu)) break;
    ++readable.batches;
    at = timeline_.settled({at.epoch, at.step + 1});
  }
  readable.to_its_end = at >= reader->until;
  return readable;
}

engine::Executor::Headway Stream::headway() const {
  MutexLock lock(mutex_);
  return executor_.headway(stream_);
}

}  // namespace spdld::stream
