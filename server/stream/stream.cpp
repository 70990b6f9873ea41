// SPDX-License-Identifier: Apache-2.0
#include "stream/stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace spdld::stream {
namespace {

std::uint32_t slot_of(const engine::BatchOrder& order) {
  return static_cast<std::uint32_t>(order.ticket);
}

StreamOptions without_after(StreamOptions options) {
  options.after = nullptr;
  return options;
}

// The copy of a batch to a GPU, but for its `wanted`.
delivery::DeviceCopy device_copy(const FinishedBatches::Copy& copy,
                                 const delivery::DeviceLayout& layout) {
  delivery::DeviceLayout::Parts parts = layout.parts(copy.order.slot, copy.order.rows.rows);
  const std::uint64_t base = copy.on_gpu->device_place(copy.to).offset;
  delivery::DeviceCopy work{.pinned = &copy.on_gpu->pinned(),
                            .slot = slot_of(copy.order),
                            .to = &copy.on_gpu->device_arena(),
                            .parts = {},
                            .beside = {}};
  for (const auto& part : parts.device)
    work.parts.push_back(
        {.from = copy.order.slot + part.from, .to = base + part.to, .bytes = part.bytes});
  work.beside = [copy, host = std::move(parts.host)]() -> Status {
    SPDLD_TRY(copy.on_gpu->arena().back(copy.to));
    std::byte* const beside = copy.on_gpu->arena().slot(copy.to).data();
    for (const auto& part : host)
      std::memcpy(beside + part.to, copy.order.slot + part.from, part.bytes);
    return {};
  };
  return work;
}

}  // namespace

Stream::Stream(StreamOptions options, std::shared_ptr<SlotPool> pool, engine::Executor& executor,
               const Clock& clock)
    : options_(without_after(options)),
      pool_(std::move(pool)),
      device_layout_(phase()->run->plan().layout.fields(), phase()->run->plan().layout.rows()),
      executor_(executor),
      maker_(options.maker),
      after_(std::move(options.after)),
      finished_(pool_),
      stall_(clock) {
  for (const AwaitedReplica& replica : options.awaited)
    finished_.expect(maker_, replica.replica, replica.from - std::min(replica.from, options.turn),
                     options.turn);
}

void Stream::bind(engine::StreamId stream) {
  pool_->serve(stream);  // before end() may have it served no more
  bool ended = false;
  {
    MutexLock lock(mutex_);
    stream_ = stream;
    ended = ended_;
  }
  if (ended) {
    pool_->serve_no_more(stream);
    return executor_.close_stream(stream);
  }
  executor_.wake(stream);  // slots that became free before had no stream to wake
}

void Stream::lead(const std::shared_ptr<Stream>& next) {
  {
    MutexLock lock(mutex_);
    followers_.push_back(next);
  }
  wake_followers();
}

void Stream::wake_followers(bool all) {
  std::vector<std::weak_ptr<Stream>> followers;
  {
    MutexLock lock(mutex_);
    if (followers_.empty()) return;
    const auto& readers = finished_.readers();
    const auto is_through = [&](const Reader& reader)
                                SPDLD_REQUIRES(mutex_) { return to_make_ >= reader.until; };
    if (!all && std::none_of(readers.begin(), readers.end(), is_through)) return;
    std::erase_if(followers_, [](const auto& follower) { return follower.expired(); });
    followers = followers_;
  }
  for (const auto& follower : followers) {
    if (const auto next = follower.lock()) next->wake();
  }
}

void Stream::wake() {
  if (const engine::StreamId stream = stream_.load(); stream != 0) executor_.wake(stream);
}

std::optional<Index> Stream::offered(const ReaderTerms& terms) const {
  if (ended_ || finished_.readers().empty() || finished_.find(terms.holder) != nullptr)
    return std::nullopt;
  if (pool_->has_retired() || (terms.on_gpu != nullptr && terms.on_gpu->has_retired()))
    return std::nullopt;
  const Index gone = finished_.gone();
  Index first = std::max(gone, std::min(finished_.lowest(), to_make_));
  if (options_.replicas > 1) {
    // Replicas meet at equal turns.
    const auto is_at_its_turns = [&](const Reader& known) { return known.turn == terms.turn; };
    const auto& readers = finished_.readers();
    if (terms.job != maker_ || std::none_of(readers.begin(), readers.end(), is_at_its_turns))
      return std::nullopt;
    // It may have been to end at `until`, for a swap that was given up after it had left.
    if (const Reader* const place = finished_.find_away(terms.replica))
      first = gone > place->until ? gone : place->next;
  } else if (terms.next > to_make_ || follows() || (terms.job != maker_ && pool_->streams() > 1)) {
    // It would wait for another job's consumer, or hold up the stream that follows here, and
    // neither stream could tell.
    return std::nullopt;
  }
  return finished_.joinable(terms, std::max(first, terms.next));
}

std::optional<Index> Stream::offers(const ReaderTerms& terms) const {
  MutexLock lock(mutex_);
  return offered(terms);
}

std::optional<Index> Stream::join(const std::shared_ptr<StreamReader>& reader, ReaderTerms terms,
                                  Index latest) {
  {
    MutexLock lock(mutex_);
    if (ended_) return std::nullopt;
    // The first reader may begin anywhere.
    const auto from = finished_.readers().empty() ? terms.next : offered(terms);
    if (!from || *from > latest || *from >= terms.until) return std::nullopt;
    terms.next = *from;
    if (terms.on_gpu != nullptr)
      terms.on_gpu->serve(std::weak_ptr<DeviceSlotWaiter>(weak_from_this()));
    finished_.join(terms, reader);
    begin_copies();
  }
  wake();
  return terms.next;
}

void Stream::leave(delivery::HolderId id, bool away) {
  bool last = false;
  engine::StreamId ended = 0;
  {
    MutexLock lock(mutex_);
    Reader* const reader = finished_.find(id);
    if (reader == nullptr) return;
    const auto& readers = finished_.readers();
    // Another process may have taken its place before this one was known to be gone.
    const auto successor = [&](const Reader& other) {
      return other.holder != id && other.replica == reader->replica;
    };
    if (away && options_.replicas > 1 && options_.absent == AbsentReplica::kWait &&
        std::none_of(readers.begin(), readers.end(), successor)) {
      FinishedBatches::set_away(*reader);
    } else {
      finished_.remove(*reader);
    }
    last = std::all_of(readers.begin(), readers.end(),
                       [](const Reader& known) { return known.is_away(); });
    const auto is_maker = [maker = maker_](const Reader& known) { return known.job == maker; };
    if (!last && std::none_of(readers.begin(), readers.end(), is_maker))
      maker_ = readers.front().job;
    if (!last) begin_copies();  // the batch it needed first may have kept others back
    if (last) {
      ended = stream_;  // 0: bind() closes it
      last_head_ = executor_.head_time(ended);
      ended_ = true;
      after_.reset();
      finished_.clear();
    }
  }
  if (ended != 0) {
    pool_->serve_no_more(ended);
    executor_.close_stream(ended);
  } else {
    wake();
  }
  wake_followers(true);  // they may have waited for this reader's sake
}

void Stream::dismiss(JobTag job, std::uint32_t replica) {
  {
    MutexLock lock(mutex_);
    const Reader* const place = finished_.find_away(replica);
    if (place == nullptr || place->job != job) return;
    finished_.remove(*place);
    begin_copies();
  }
  wake();
}

bool Stream::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

std::shared_ptr<SlotPool> Stream::pool_of(delivery::HolderId id) const {
  MutexLock lock(mutex_);
  const Reader* const reader = finished_.find(id);
  return reader == nullptr || reader->on_gpu == nullptr ? pool_ : reader->on_gpu;
}

std::vector<JobTag> Stream::jobs() const {
  MutexLock lock(mutex_);
  std::vector<JobTag> jobs;
  for (const Reader& reader : finished_.readers()) {
    if (std::find(jobs.begin(), jobs.end(), reader.job) == jobs.end()) jobs.push_back(reader.job);
  }
  return jobs;
}

void Stream::note_stall() {
  const auto& readers = finished_.readers();
  if (stall_.running() || options_.replicas > 1 || readers.size() < 2) return;
  if (std::any_of(readers.begin(), readers.end(),
                  [this](const Reader& reader) SPDLD_REQUIRES(mutex_) { return starves(reader); }))
    stall_.start();
}

bool Stream::starves(const Reader& reader) const {
  if (!reader.hungry) return false;
  return reader.next >= to_make_ || finished_.lacks_room(reader);
}

ReaderRefs Stream::held_up() {
  MutexLock lock(mutex_);
  ReaderRefs readers;
  if (!stall_.was_long()) return readers;
  for (const Reader& reader : finished_.readers()) {
    if (!starves(reader)) continue;
    if (auto ref = reader.consumer.lock()) readers.push_back(std::move(ref));
  }
  if (readers.size() == finished_.readers().size()) readers.erase(readers.begin());
  return readers;
}

std::optional<TakenBatch> Stream::take(delivery::HolderId id, Index at) {
  MutexLock lock(mutex_);
  Reader* const reader = finished_.find(id);
  if (reader == nullptr || !reader->wants(at)) return std::nullopt;
  auto taken = finished_.take(*reader, at);
  if (taken) {
    taken->shared = reader->job != maker_;
  } else {
    begin_copies();  // it may have passed by the batch that was to be copied first
    if (pool_->slots().counts().free == 0) note_stall();
  }
  return taken;
}

bool Stream::jump(delivery::HolderId id, Index to, job::Turn turn) {
  bool past_all = false;
  {
    MutexLock lock(mutex_);
    Reader* const reader = finished_.find(id);
    if (ended_ || reader == nullptr || to < reader->next || to >= reader->until) return false;
    const auto& readers = finished_.readers();
    if (to > to_make_ && options_.replicas == 1 && readers.size() > 1) return false;
    // Replicas that are away are expected where it goes, not where it was.
    const auto others_away = [&](const Reader& other) {
      return other.is_away() || other.holder == id;
    };
    if (readers.size() > 1 && std::all_of(readers.begin(), readers.end(), others_away))
      return false;
    finished_.skip_to(*reader, to);
    reader->hungry = false;
    reader->turn = turn - to;
    begin_copies();
    past_all = finished_.lowest() > to_make_;
    if (past_all) ++holds_;  // so that no batch behind the jump is given up
  }
  if (past_all) {
    executor_.cancel(stream_, 0, 0);
    MutexLock lock(mutex_);
    --holds_;
  }
  wake();
  return true;
}

bool Stream::set_until(delivery::HolderId id, Index until) {
  {
    MutexLock lock(mutex_);
    Reader* const reader = finished_.find(id);
    if (reader == nullptr || !finished_.set_until(*reader, until)) return false;
    begin_copies();
  }
  wake();
  wake_followers();
  return true;
}

void Stream::open_epochs(delivery::HolderId id, std::uint64_t count) {
  {
    MutexLock lock(mutex_);
    if (Reader* const reader = finished_.find(id)) reader->open_epochs = count;
  }
  wake();
}

Index Stream::hold() {
  MutexLock lock(mutex_);
  ++holds_;
  return to_make_;
}

void Stream::go_on() {
  {
    MutexLock lock(mutex_);
    --holds_;
  }
  wake();
}

std::string Stream::waits_for(delivery::HolderId id) const {
  MutexLock lock(mutex_);
  const Reader* const reader = finished_.find(id);
  if (reader == nullptr || ended_) return {};
  if (reader->on_gpu != nullptr && !reader->on_gpu->has_memory())
    return "the driver of " + reader->on_gpu->gpu()->name() +
           " was asked for memory there and has not answered yet";
  if (options_.replicas == 1) return {};
  const bool nothing_made = reader->next >= to_make_ && pool_->slots().counts().free == 0;
  if (!nothing_made && !finished_.lacks_room(*reader)) return {};
  const Reader* slowest = nullptr;
  for (const Reader& other : finished_.readers()) {
    if (other.next >= reader->next) continue;
    if (!nothing_made && other.on_gpu != reader->on_gpu && !other.unplaced) continue;
    const auto is_behind = [&](const Reader& known) {
      return other.next < known.next ||
             (other.next == known.next && other.is_away() && !known.is_away());
    };
    if (slowest == nullptr || is_behind(*slowest)) slowest = &other;
  }
  const std::string shard = " of shard " + std::to_string(span().shard());
  if (slowest == nullptr)
    return "the replicas" + shard +
           " hold different batches, and with that all slots: release some";
  const std::string name = "replica " + std::to_string(slowest->replica) + shard;
  if (slowest->is_away()) return name + " has not come, or not come back, and all slots are full";
  return name + " is still at " + place_text(span().at(slowest->next).at());
}

ReadableBatches Stream::readable(delivery::HolderId id) const {
  MutexLock lock(mutex_);
  const Reader* const reader = finished_.find(id);
  return reader == nullptr ? ReadableBatches() : finished_.readable(*reader);
}

engine::Executor::Headway Stream::headway() const { return executor_.headway(stream_); }

engine::HeadTime Stream::head_time() const {
  {
    MutexLock lock(mutex_);
    if (ended_) return {.waited = last_head_.waited, .at = std::chrono::steady_clock::now()};
  }
  return executor_.head_time(stream_);
}

Shortage Stream::lacks(delivery::HolderId id) const {
  MutexLock lock(mutex_);
  const Reader* const reader = finished_.find(id);
  if (reader == nullptr || ended_) return Shortage::kChange;
  const bool lacks_room = finished_.lacks_room(*reader);
  if (reader->next >= to_make_ && holds_ > 0) return Shortage::kChange;
  if (lacks_room || (reader->next >= to_make_ && pool_->slots().counts().free == 0)) {
    const auto behind = [&](const Reader& other) { return other.next < reader->next; };
    const auto& readers = finished_.readers();
    const auto holds_up = std::find_if(readers.begin(), readers.end(), behind);
    if (holds_up == readers.end()) return Shortage::kSlot;
    return holds_up->job == reader->job ? Shortage::kReplica : Shortage::kJob;
  }
  const bool to_be_copied = reader->on_gpu != nullptr && reader->next < to_make_;
  return to_be_copied ? Shortage::kCopy : Shortage::kWorker;
}

bool Stream::leads(const std::vector<Reader>& readers) const {
  MutexLock lock(mutex_);
  return !ended_ && std::any_of(readers.begin(), readers.end(),
                                [this](const Reader& reader) SPDLD_REQUIRES(mutex_) {
                                  const Reader* const here =
                                      reader.is_away() ? nullptr : finished_.find(reader.holder);
                                  return here != nullptr && to_make_ < here->until;
                                });
}

std::optional<engine::BatchOrder> Stream::open() {
  const auto order = next_order();
  wake_followers();
  if (!order) return order;
  // Without the lock: zeroing fresh pages takes milliseconds.
  const Status backed = pool_->arena().back(slot_of(*order));
  if (backed.ok()) return order;
  fail({.status = backed.with_context("the slots of this consumer")});
  abandon(*order);
  return std::nullopt;
}

bool Stream::follows() const { return after_ != nullptr && after_->leads(finished_.readers()); }

std::optional<engine::BatchOrder> Stream::next_order() {
  MutexLock lock(mutex_);
  const auto& readers = finished_.readers();
  if (ended_ || holds_ > 0 || readers.empty() || follows()) return std::nullopt;
  after_.reset();
  to_make_ = std::max(to_make_, finished_.lowest());
  if (to_make_ == kNoIndex) return std::nullopt;
  const std::uint64_t epoch = span().at(to_make_).epoch;
  const auto wanted = [&](const Reader& reader) SPDLD_REQUIRES(mutex_) {
    return reader.wants(to_make_) && epoch < reader.open_epochs;
  };
  if (std::none_of(readers.begin(), readers.end(), wanted)) return std::nullopt;
  const auto slot = pool_->loan();
  if (!slot) note_stall();
  if (!slot) return std::nullopt;
  stall_.stop();
  engine::BatchOrder order = span().order(to_make_);
  order.slot = pool_->arena().slot(*slot).data();
  order.ticket = *slot;
  finished_.begin(to_make_++, *slot);
  return order;
}

void Stream::commit(const engine::BatchOrder& order) {
  ReaderRefs waiting;
  {
    MutexLock lock(mutex_);
    if (ended_) return finished_.skip(slot_of(order));
    waiting = finished_.add(slot_of(order), order);
    begin_copies();
  }
  for (const auto& reader : waiting) reader->ready();
}

void Stream::abandon(const engine::BatchOrder& order) {
  MutexLock lock(mutex_);
  finished_.skip(slot_of(order));
}

// Each job decides about the batches that it reads; one that cannot bear the loss fails alone.
Status Stream::may_replace(const engine::SampleFailure& failure) {
  const Index at = span().index_of({failure.epoch, failure.step}).value_or(kNoIndex);
  struct Asked {
    JobTag job = 0;
    std::shared_ptr<StreamReader> reader;
  };
  std::vector<Asked> asked;
  bool others = false;
  {
    MutexLock lock(mutex_);
    for (const Reader& reader : finished_.readers()) {
      auto ref = reader.consumer.lock();
      if (ref == nullptr) continue;
      if (reader.wants(at)) {
        asked.push_back({reader.job, std::move(ref)});
      } else {
        others = true;
      }
    }
  }
  std::map<JobTag, Status> verdicts;
  for (const Asked& one : asked) {
    if (!verdicts.contains(one.job))
      verdicts.emplace(one.job, one.reader->judge().may_replace(failure));
  }
  Status refusal;
  std::vector<JobTag> told;
  for (const auto& [job, verdict] : verdicts) {
    if (verdict.ok()) {
      told.push_back(job);
    } else {
      refusal = verdict;
    }
  }
  if (!refusal.ok() && told.empty() && !others) return refusal;
  {
    MutexLock lock(mutex_);
    if (!ended_) finished_.note_replaced(at, failure, std::move(told));
  }
  for (const Asked& one : asked) {
    const Status& verdict = verdicts.at(one.job);
    if (verdict.ok()) continue;
    leave(one.reader->holder());
    one.reader->failed(engine::ended_by(failure, verdict), *this);
  }
  return {};
}

void Stream::fail(const engine::StreamFailure& failure) {
  ReaderRefs readers;
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    ended_ = true;
    readers = finished_.live([](const Reader&) { return true; });
  }
  for (const auto& reader : readers) reader->failed(failure, *this);
}

void Stream::device_slot_freed() {
  std::vector<std::shared_ptr<SlotPool>> refused;
  {
    MutexLock lock(mutex_);
    begin_copies();
    for (const Reader& reader : finished_.readers()) {
      if (reader.on_gpu != nullptr && !reader.on_gpu->memory_failure().ok())
        refused.push_back(reader.on_gpu);
    }
  }
  for (const auto& on_gpu : refused) {
    for (const auto& reader : dismiss_from(on_gpu))
      reader->refused_memory(on_gpu->memory_failure(), *this);
  }
}

void Stream::begin_copies() {
  if (ended_) return;
  while (const auto copy = finished_.begin_copy()) {
    delivery::DeviceCopy work = device_copy(*copy, device_layout_);
    work.wanted = [self = shared_from_this(), copy = *copy] { return self->may_begin_copy(copy); };
    copy->on_gpu->gpu()->copy(std::move(work),
                              [self = shared_from_this(), copy = *copy](const Status& status) {
                                self->end_copy(copy, status);
                              });
  }
}

bool Stream::may_begin_copy(const FinishedBatches::Copy& copy) {
  MutexLock lock(mutex_);
  if (finished_.wants(copy)) return true;
  (void)finished_.end_copy(copy, false);
  begin_copies();
  return false;
}

void Stream::end_copy(const FinishedBatches::Copy& copy, const Status& status) {
  ReaderRefs waiting;
  {
    MutexLock lock(mutex_);
    waiting = finished_.end_copy(copy, status.ok());
    if (!status.ok()) finished_.stop(copy.on_gpu);
    begin_copies();
  }
  for (const auto& reader : waiting) reader->ready();
  if (status.ok()) return;
  for (const auto& reader : dismiss_from(copy.on_gpu)) reader->failed({.status = status}, *this);
}

ReaderRefs Stream::dismiss_from(const std::shared_ptr<SlotPool>& on_gpu) {
  std::vector<Reader> readers;
  {
    MutexLock lock(mutex_);
    readers = finished_.readers();
  }
  ReaderRefs left;
  for (const Reader& reader : readers) {
    if (reader.on_gpu != on_gpu) continue;
    if (reader.is_away()) {
      dismiss(reader.job, reader.replica);
      continue;
    }
    leave(reader.holder);
    if (auto ref = reader.consumer.lock()) left.push_back(std::move(ref));
  }
  return left;
}

}  // namespace spdld::stream
