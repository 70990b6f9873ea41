// SPDX-License-Identifier: Apache-2.0
#include "session/feed.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spdld::session {
namespace {

// A batch order's ticket: which slot, and at which turn it was given out.
std::uint64_t ticket(std::uint64_t turn, std::uint32_t slot) { return turn << 32 | slot; }
std::uint32_t slot_of(const engine::BatchOrder& order) {
  return static_cast<std::uint32_t>(order.ticket);
}
std::uint64_t turn_of(const engine::BatchOrder& order) { return order.ticket >> 32; }

}  // namespace

Feed::Feed(FeedOptions options, std::unique_ptr<delivery::Arena> arena,
           std::shared_ptr<delivery::Connection> connection, engine::Executor& executor,
           std::shared_ptr<FailureJudge> judge)
    : shard_(options.shard),
      credits_(options.credits),
      slot_bytes_(options.slot_bytes),
      schema_id_(options.schema_id),
      connection_(std::move(connection)),
      executor_(executor),
      judge_(std::move(judge)),
      arena_(std::move(arena)),
      slots_(arena_->shape().slot_count),
      job_timeline_(std::move(options.timeline)),
      timeline_(options.own.value_or(job_timeline_)),
      open_epochs_(options.open_epochs),
      last_known_(options.last_known),
      to_make_(options.start),
      to_send_(options.start) {}

void Feed::bind(engine::StreamId stream) {
  bool ended = false;
  {
    MutexLock lock(mutex_);
    stream_ = stream;
    ended = ended_;
    pump();  // an epoch that is resumed at its very end has nothing but its end to tell
  }
  if (ended) return executor_.close_stream(stream);
  executor_.wake(stream);  // what was released before had no stream to wake
}

StepAt Feed::settled(StepAt at) const {
  return at.step < timeline_.end_step(at.epoch) ? at : StepAt{at.epoch + 1, 0};
}

bool Feed::dealt_out(StepAt at) const {
  return shard_ < timeline_.sharding(at).segment().num_shards;
}

std::optional<engine::BatchOrder> Feed::open() {
  const auto order = next_order();
  if (!order) return order;
  // Without the lock: zeroing fresh pages takes milliseconds. The arena stays while a slot is
  // loaned.
  const Status backed = arena()->back(slot_of(*order));
  if (backed.ok()) return order;
  fail(backed.with_context("the slots of this consumer"));
  abandon(*order);
  return std::nullopt;
}

delivery::Arena* Feed::arena() {
  MutexLock lock(mutex_);
  return arena_.get();
}

std::optional<engine::BatchOrder> Feed::next_order() {
  MutexLock lock(mutex_);
  if (ended_ || holds_ > 0) return std::nullopt;
  to_make_ = settled(to_make_);
  if (to_make_.epoch >= open_epochs_ || !dealt_out(to_make_)) return std::nullopt;
  const auto slot = slots_.loan();
  if (!slot) return std::nullopt;
  const source::Sharding sharding = timeline_.sharding(to_make_);
  const engine::BatchOrder order{.epoch = to_make_.epoch,
                                 .step = to_make_.step,
                                 .rows = sharding.rows(to_make_.step, shard_),
                                 .next_position = sharding.position_of(to_make_.step + 1),
                                 .slot = arena_->slot(*slot).data(),
                                 .ticket = ticket(turn_, *slot)};
  ++to_make_.step;
  return order;
}

void Feed::commit(const engine::BatchOrder& order) {
  MutexLock lock(mutex_);
  const std::uint32_t slot = slot_of(order);
  if (ended_ || turn_of(order) != turn_) {
    slots_.abort(slot);
    executor_.wake(stream_);
    return;
  }
  slots_.commit(slot);
  ready_.emplace(StepAt{order.epoch, order.step}, Ready{slot, order});
  pump();
}

void Feed::abandon(const engine::BatchOrder& order) {
  MutexLock lock(mutex_);
  slots_.abort(slot_of(order));
  executor_.wake(stream_);
}

void Feed::pump() {
  while (!ended_) {
    if (last_known_ && to_send_.epoch > 0 && to_send_.epoch >= open_epochs_) {
      // Who starts behind the job's last epoch is told that it has ended, too.
      const std::uint64_t last = to_send_.epoch - 1;
      if (!std::exchange(told_last_, true))
        connection_->send_epoch_end(last, timeline_.end_step(last), seek_, true);
      return;
    }
    const std::uint64_t end_step = timeline_.end_step(to_send_.epoch);
    if (to_send_.step >= end_step) {
      if (to_send_.epoch >= open_epochs_) return;
      const bool last = last_known_ && to_send_.epoch + 1 >= open_epochs_;
      told_last_ = last;
      connection_->send_epoch_end(to_send_.epoch, end_step, seek_, last);
      to_send_ = {to_send_.epoch + 1, 0};
      continue;
    }
    if (!dealt_out(to_send_)) {
      ended_ = true;
      connection_->bye(wire::ByeReason::kResized, "the job was resized to " +
                                                      std::to_string(timeline_.num_shards()) +
                                                      " shards, and there is no shard " +
                                                      std::to_string(shard_) + " any more");
      return;
    }
    const auto next = ready_.find(to_send_);
    if (next == ready_.end() || leases_ >= credits_) return;
    const Ready& ready = next->second;
    const auto lease = slots_.acquire(ready.slot, connection_->id());
    SPDLD_CHECK(lease.has_value());
    ++leases_;
    ++batches_;
    rows_ += ready.order.rows.rows;
    connection_->send_batch({.lease = *lease,
                             .arena_id = arena_->id(),
                             .schema_id = schema_id_,
                             .slot_offset = arena_->slot_offset(ready.slot),
                             .slot_bytes = slot_bytes_,
                             .epoch = ready.order.epoch,
                             .step = ready.order.step,
                             .next_position = ready.order.next_position,
                             .rows = static_cast<std::uint32_t>(ready.order.rows.rows),
                             .seek = seek_});
    ready_.erase(next);
    ++to_send_.step;
  }
}

void Feed::release(std::uint64_t lease) {
  MutexLock lock(mutex_);
  const auto freed = slots_.release(lease, connection_->id());
  if (!freed) return;  // counted by the slots; a late or repeated release harms nobody
  --leases_;
  pump();
  if (*freed) executor_.wake(stream_);
}

engine::StreamId Feed::interrupt() {
  engine::StreamId stream = 0;
  {
    MutexLock lock(mutex_);
    ++holds_;
    stream = stream_;
  }
  executor_.cancel(stream, 0, 0);
  return stream;
}

void Feed::restart(StepAt to) {
  ++turn_;
  for (const auto& [at, ready] : ready_) slots_.discard(ready.slot);
  ready_.clear();
  to_make_ = to_send_ = to;
  told_last_ = false;
}

// Tells the consumer where what follows begins.
void Feed::announce() {
  const StepAt at = to_send_;
  const source::Sharding sharding = timeline_.sharding(at);
  const std::uint64_t step = std::min(at.step, sharding.end_step());
  connection_->send_reset({.epoch = at.epoch, .position = sharding.position_of(step), .step = step},
                          timeline_.steps_per_epoch(), seek_, shard_, timeline_.num_shards());
}

Status Feed::seek(StepAt to, std::uint64_t position, std::uint32_t serial) {
  {
    MutexLock lock(mutex_);
    SPDLD_TRY(job_timeline_.check(to, position));
  }
  const engine::StreamId stream = interrupt();
  {
    MutexLock lock(mutex_);
    timeline_ = job_timeline_;  // what an earlier seek cut is of no more meaning
    timeline_.redeal(to, position);
    seek_ = serial;
    restart(to);
    --holds_;
    announce();
    pump();
  }
  executor_.wake(stream);
  return {};
}

void Feed::move_to(StepAt to, const Timeline& timeline) {
  const engine::StreamId stream = interrupt();
  {
    MutexLock lock(mutex_);
    timeline_ = job_timeline_ = timeline;
    restart(to);
    --holds_;
    announce();
    pump();
  }
  executor_.wake(stream);
}

void Feed::open_epochs(std::uint64_t count, bool last_known) {
  MutexLock lock(mutex_);
  open_epochs_ = count;
  last_known_ = last_known;
  pump();
  executor_.wake(stream_);
}

Feed::Frontier Feed::hold() {
  MutexLock lock(mutex_);
  ++holds_;
  const StepAt at = settled(to_make_);
  return {.at = at, .position = timeline_.sharding(at).position_of(at.step)};
}

void Feed::go_on() {
  MutexLock lock(mutex_);
  --holds_;
  executor_.wake(stream_);
}

void Feed::reshard(const Timeline::Cut& cut) {
  MutexLock lock(mutex_);
  job_timeline_.cut(cut);
  timeline_.cut(cut);
  announce();
  pump();
}

void Feed::end() {
  engine::StreamId stream = 0;
  {
    MutexLock lock(mutex_);
    stream = stream_;
    ended_ = true;
    for (const auto& [at, ready] : ready_) slots_.discard(ready.slot);
    ready_.clear();
  }
  if (stream != 0) executor_.close_stream(stream);
}

void Feed::retire() { slots_.retire(connection_->id()); }

std::unique_ptr<delivery::Arena> Feed::reclaim() {
  slots_.reclaim(connection_->id());
  MutexLock lock(mutex_);
  return ended_ && slots_.idle() ? std::move(arena_) : nullptr;
}

Status Feed::may_replace(const engine::SampleFailure& failure) {
  return judge_->may_replace(failure);
}

void Feed::fail(const Status& status) {
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    ended_ = true;
  }
  judge_->stream_failed(status);
  connection_->fail(status);
}

std::string Feed::waits_for() const {
  MutexLock lock(mutex_);
  if (ended_ || leases_ >= credits_ || !ready_.empty() || to_send_.epoch < open_epochs_) return {};
  if (last_known_) return {};
  return "epoch " + std::to_string(to_send_.epoch) +
         " has not been opened yet: 'spdlctl job advance' does it";
}

Feed::View Feed::view() const {
  const delivery::SlotTable::Counts counts = slots_.counts();
  MutexLock lock(mutex_);
  return {.next = settled(to_send_),
          .leases = leases_,
          .ready = static_cast<std::uint32_t>(ready_.size()),
          .batches = batches_,
          .rows = rows_,
          .arena_bytes = arena_ == nullptr ? 0 : arena_->total_bytes(),
          .bad_releases = counts.bad_releases};
}

}  // namespace spdld::session
