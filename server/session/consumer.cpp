// SPDX-License-Identifier: Apache-2.0
#include "session/consumer.h"

#include <algorithm>
#include <utility>

#include "base/text/counted.h"

namespace spdld::session {

Consumer::Consumer(ConsumerOptions options, std::shared_ptr<delivery::Connection> connection,
                   stream::Streams& streams)
    : shard_(options.shard),
      replica_(options.replica),
      replicas_(options.replicas),
      absent_(options.absent),
      follows_(options.follows),
      credits_(options.credits),
      uid_(options.uid),
      job_(options.job),
      gpu_may_have_room_(options.gpu_may_have_room),
      ask_for_grant_(std::move(options.ask_for_grant)),
      meter_(std::move(options.meter)),
      judge_(std::move(options.judge)),
      gain_(std::move(options.gain)),
      roll_(std::move(options.roll)),
      connection_(std::move(connection)),
      streams_(streams),
      gpu_(std::move(options.gpu)),
      job_timeline_(std::move(options.timeline)),
      timeline_(options.own.value_or(job_timeline_)),
      jumps_(std::move(options.jumps)),
      moves_(options.moves),
      moves_seen_(options.moves_seen),
      alone_(options.alone),
      passage_(options.passage),
      halt_(jumps_.empty() ? options.halt : jumps_.front().from),
      open_epochs_(options.open_epochs),
      last_known_(options.last_known),
      to_send_(options.start),
      granted_(options.granted) {}

Status Consumer::connect(stream::DeviceReserve* reserve) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(
      legs_, route(timeline_, timeline_.settled(to_send_), nullptr, nullptr, halt_, gpu_, reserve));
  if (replicas_ > 1) {
    roll_->came({shard_, replica_}, replicas_, holder(), passage_);
    streams_.dismiss(job_, {shard_, replica_}, passage_);  // it is not expected elsewhere any more
  }
  // What it has missed is nothing to it: it goes on where the others are.
  while (follows_ && legs_.size() > 1 && legs_[0].stream->phase() == legs_[1].stream->phase()) {
    legs_.front().stream->leave(holder());
    legs_.erase(legs_.begin());
    to_send_ = legs_.front().from;
  }
  told_ = timeline_.phase(timeline_.settled(to_send_));  // by the answer to its attach
  return {};
}

std::uint32_t Consumer::moves() const {
  MutexLock lock(mutex_);
  return moves_;
}

job::StepAt Consumer::start() const {
  MutexLock lock(mutex_);
  return to_send_;
}

void Consumer::read_on(delivery::DeviceMemoryPtr gpu) {
  MutexLock lock(mutex_);
  gpu_ = std::move(gpu);
}

bool Consumer::has_gpu() const {
  MutexLock lock(mutex_);
  return gpu_ != nullptr;
}

std::string Consumer::gpu_warning() const {
  MutexLock lock(mutex_);
  return gpu_warning_;
}

std::string Consumer::reads_on() const {
  MutexLock lock(mutex_);
  if (legs_.empty()) return {};
  const delivery::DeviceMemoryPtr& gpu = legs_.front().stream->pool_of(holder())->gpu();
  return gpu == nullptr ? std::string() : gpu->uuid();
}

void Consumer::begin() {
  MutexLock lock(mutex_);
  begun_ = true;
  if (batches_ >= granted_) ask_for_grant_();
  take_up_leg();
  pump();  // an epoch that is resumed at its very end has nothing but its end to tell
}

bool Consumer::dealt_out(job::StepAt at) const {
  return shard_ < timeline_.sharding(at).segment().num_shards;
}

bool Consumer::tell_epoch_end() {
  if (last_known_ && to_send_.epoch > 0 && to_send_.epoch >= open_epochs_) {
    // Who starts behind the job's last epoch is told that it has ended, too.
    const std::uint64_t last = to_send_.epoch - 1;
    if (!std::exchange(told_last_, true))
      connection_->send_epoch_end(last, timeline_.end_step(last), seek_, true);
    return false;
  }
  if (to_send_.epoch >= open_epochs_) return false;
  const bool last = last_known_ && to_send_.epoch + 1 >= open_epochs_;
  told_last_ = last;
  connection_->send_epoch_end(to_send_.epoch, timeline_.end_step(to_send_.epoch), seek_, last);
  to_send_ = {to_send_.epoch + 1, 0};
  return true;
}

void Consumer::pump() {
  while (begun_ && !ended_) {
    if (!jumps_.empty() && to_send_ >= jumps_.front().from) {
      if (const Status moved = make_jump(); !moved.ok())
        give_up({.status = moved.with_context("seek")});
      return;
    }
    const bool over = last_known_ && to_send_.epoch > 0 && to_send_.epoch >= open_epochs_;
    if (over || to_send_.step >= timeline_.end_step(to_send_.epoch)) {
      if (!tell_epoch_end()) return;
      continue;
    }
    if (!dealt_out(to_send_)) {
      ended_ = resized_away_ = true;
      leave(std::exchange(legs_, {}));
      connection_->bye(wire::ByeReason::kResized,
                       "the job was resized to " + counted(timeline_.num_shards(), "shard") +
                           ", and there is no shard " + std::to_string(shard_) +
                           " any more: its rows go to the others; leave the loop");
      return;
    }
    if (legs_.size() > 1 && legs_[1].from <= to_send_) {
      legs_.front().stream->leave(holder());
      legs_.erase(legs_.begin());
      take_up_leg();
      continue;
    }
    if (legs_.empty() || leases_.size() >= credits_ || batches_ >= granted_) return;
    const stream::Stream& stream = *legs_.front().stream;
    const auto taken = legs_.front().stream->take(holder(), to_send_);
    if (!taken) return;
    const std::shared_ptr<stream::SlotPool>& pool = taken->pool;
    const engine::BatchOrder& order = taken->order;
    show(stream, pool);
    for (Shown& known : shown_) known.lent = known.lent || known.pool == pool;
    leases_.push_back({.id = taken->lease,
                       .at = to_send_,
                       .turn = turn_,
                       .number = ++batches_,
                       .moves = moves_,
                       .pool = pool});
    if (!accept(taken->replaced)) return;
    rows_ += order.rows.rows;
    gain_->handed_rows.fetch_add(order.rows.rows, std::memory_order_relaxed);
    if (taken->shared) {
      gain_->rows.fetch_add(order.rows.rows, std::memory_order_relaxed);
      const auto saved = stream.phase()->run->process_stats().mean_busy() * order.rows.rows;
      gain_->saved_ns.fetch_add(static_cast<std::uint64_t>(saved.count()),
                                std::memory_order_relaxed);
    }
    send(*taken);
    ++to_send_.step;
    if (!ask_at_ || batches_ < *ask_at_) continue;
    ask_at_.reset();
    ask_for_grant_();
  }
}

void Consumer::send(const stream::Stream::Taken& taken) {
  const delivery::Arena& arena = taken.pool->arena();
  const engine::BatchOrder& order = taken.order;
  const delivery::BatchNotice notice{.lease = taken.lease,
                                     .arena_id = arena.id(),
                                     .schema_id = schema_id_,
                                     .slot_offset = arena.slot_offset(taken.slot),
                                     .slot_bytes = arena.shape().slot_bytes,
                                     .epoch = order.epoch,
                                     .step = order.step,
                                     .next_position = order.next_position,
                                     .rows = static_cast<std::uint32_t>(order.rows.rows),
                                     .seek = seek_};
  if (taken.pool->gpu() == nullptr) {
    connection_->send_batch(notice);
  } else {
    connection_->send_device_batch(notice, taken.pool->device_place(taken.slot));
  }
}

bool Consumer::accept(const std::vector<engine::SampleFailure>& replaced) {
  for (const engine::SampleFailure& sample : replaced) {
    const Status verdict = judge_->may_replace(sample);
    if (verdict.ok()) continue;
    give_up(engine::ended_by(sample, verdict));
    return false;
  }
  return true;
}

void Consumer::give_up(const engine::StreamFailure& failure) {
  ended_ = true;
  leave(std::exchange(legs_, {}));
  if (pending_) leave(std::exchange(pending_, std::nullopt)->legs);
  judge_->stream_failed(failure);
  connection_->fail(failure.status);
}

void Consumer::take_up_leg() {
  if (!begun_ || ended_ || legs_.empty()) return;
  const stream::Stream& stream = *legs_.front().stream;
  // Slots on a GPU are shown with their first batch where their memory has yet to come.
  if (const auto pool = stream.pool_of(holder()); pool->has_memory()) show(stream, pool);
  retire_arenas();
}

void Consumer::show(const std::shared_ptr<stream::SlotPool>& pool) {
  const auto same = [&](const Shown& known) { return known.pool == pool; };
  if (std::any_of(shown_.begin(), shown_.end(), same)) return;
  connection_->send_arena_open(pool->arena());
  if (pool->gpu() != nullptr)
    connection_->send_device_arena(pool->arena().id(), pool->device_arena());
  shown_.push_back({.pool = pool});
}

void Consumer::show(const stream::Stream& stream, const std::shared_ptr<stream::SlotPool>& pool) {
  show(pool);
  const bool on_gpu = pool->gpu() != nullptr;
  // A shared stream may have been made for an earlier version of the same content.
  const pipeline::PhasePtr phase = timeline_.phase(timeline_.settled(to_send_));
  const bool elsewhere = on_gpu != std::exchange(told_on_gpu_, on_gpu);
  if (told_ == phase && schema_id_ > 0 && !elsewhere) return;
  const pipeline::PhasePtr before = std::exchange(told_, phase);
  const bool other = !before->same_content(*phase) || before->version() != phase->version();
  if (other)
    connection_->send_version({.items = phase->items,
                               .steps_per_epoch = timeline_.steps_per_epoch(to_send_),
                               .batch_size = phase->batch,
                               .pipeline_version = phase->version(),
                               .order_digest = phase->order_text()});
  if (!other && schema_id_ > 0 && !elsewhere) return;
  const std::span<const wire::FieldLayout> fields =
      on_gpu ? stream.device_layout().fields() : phase->run->plan().layout.fields();
  connection_->send_schema(++schema_id_, phase->version(), fields);
}

void Consumer::retire_arenas() {
  const auto unused = [this](const Shown& known) SPDLD_REQUIRES(mutex_) {
    const auto reads = [&](const stream::Leg& leg) {
      return leg.stream->pool_of(holder()) == known.pool;
    };
    if (std::any_of(legs_.begin(), legs_.end(), reads)) return false;
    connection_->send_arena_retire(known.pool->arena().id());
    if (!known.lent) unseen_.push_back({.pool = known.pool, .until = batches_});
    return true;
  };
  shown_.erase(std::remove_if(shown_.begin(), shown_.end(), unused), shown_.end());
}

void Consumer::ready() {
  MutexLock lock(mutex_);
  pump();
}

void Consumer::release(std::uint64_t id) {
  std::shared_ptr<stream::SlotPool> pool;
  {
    MutexLock lock(mutex_);
    const auto lease = std::find_if(leases_.begin(), leases_.end(),
                                    [&](const Lease& known) { return known.id == id; });
    if (lease == leases_.end()) {
      ++bad_releases_;  // late or repeated: it harms nobody
      return;
    }
    pool = std::move(lease->pool);
    if (!turned_away_) moves_seen_ = std::max(moves_seen_, lease->moves);
    const std::uint64_t seen = lease->number;
    std::erase_if(unseen_, [&](const Unseen& shown) { return shown.until < seen; });
    leases_.erase(lease);
    const bool freed = pool->release(id, holder());
    pump();
    if (!freed) return;
  }
  pool->freed();
}

void Consumer::grant(std::uint64_t turn, std::uint64_t sent, std::uint64_t ahead) {
  MutexLock lock(mutex_);
  if (turn != turn_) return;  // it is elsewhere since, and has asked again
  granted_ = std::max(granted_, sent + ahead);
  ask_at_ = std::max(batches_ + 1, sent + ahead / 2);
  pump();
}

void Consumer::grant_all() {
  MutexLock lock(mutex_);
  granted_ = kUnlimited;
  pump();
}

void Consumer::open_epochs(std::uint64_t count, bool last_known) {
  MutexLock lock(mutex_);
  open_epochs_ = count;
  last_known_ = last_known;
  for (const stream::Leg& leg : legs_) leg.stream->open_epochs(holder(), count);
  if (pending_) {
    for (const stream::Leg& leg : pending_->legs) leg.stream->open_epochs(holder(), count);
  }
  pump();
}

void Consumer::failed(const engine::StreamFailure& failure, const stream::Stream& stream) {
  const auto reads = [&](const stream::Leg& leg) { return leg.stream.get() == &stream; };
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    if (std::none_of(legs_.begin(), legs_.end(), reads)) {
      if (!pending_ || std::none_of(pending_->legs.begin(), pending_->legs.end(), reads)) return;
      // What goes on harms nobody: it is not, or not yet, gone on with.
      pending_->failure = failure;
      leave(std::exchange(pending_->legs, {}));
      return;
    }
    ended_ = true;
    leave(std::exchange(legs_, {}));
    if (pending_) leave(pending_->legs);
    pending_.reset();
  }
  judge_->stream_failed(failure);
  connection_->fail(failure.status);
}

void Consumer::end(bool away) {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    const job::Member member{shard_, replica_};
    // Another process may have its place by now; then nobody is to wait for this one.
    const bool missed = roll_->went(member, holder(), away, timeline_.settled(to_send_)) && away;
    leave(std::exchange(legs_, {}), missed);
    if (pending_) leave(pending_->legs, missed);
    pending_.reset();
    if (replicas_ > 1 && !away) streams_.dismiss(job_, member);
    if (replicas_ > 1 && away && roll_->here(member)) streams_.dismiss(job_, member, passage_);
  }
  let_streams_go_on();  // others may read them; hold() finds none from now on
}

std::vector<std::shared_ptr<stream::SlotPool>> Consumer::pools() const {
  std::vector<std::shared_ptr<stream::SlotPool>> pools;
  for (const Shown& known : shown_) pools.push_back(known.pool);
  for (const Lease& lease : leases_) {
    if (std::find(pools.begin(), pools.end(), lease.pool) == pools.end())
      pools.push_back(lease.pool);
  }
  return pools;
}

std::vector<std::shared_ptr<stream::SlotPool>> Consumer::arenas() const {
  MutexLock lock(mutex_);
  return pools();
}

void Consumer::retire() {
  MutexLock lock(mutex_);
  for (const auto& pool : pools()) pool->retire(holder());
}

void Consumer::reclaim() {
  std::vector<std::shared_ptr<stream::SlotPool>> left;
  {
    MutexLock lock(mutex_);
    left = pools();
    shown_.clear();
    unseen_.clear();
    leases_.clear();
  }
  for (const auto& pool : left) pool->reclaim(holder());
}

std::string Consumer::waits_for() const {
  MutexLock lock(mutex_);
  if (ended_ || leases_.size() >= credits_) return {};
  if (to_send_.epoch >= open_epochs_) {
    if (last_known_) return {};
    return "epoch " + std::to_string(to_send_.epoch) +
           " has not been opened yet: 'spdlctl job advance' does it";
  }
  if (holds_) return "its job is being changed, and that is not on disk yet";
  if (batches_ >= granted_)
    return std::string(alone_ ? "its pipeline" : "where its job is") +
           " must be on disk first, and the disk of state_dir takes its time";
  if (pending_ && to_send_ >= pending_->first())
    return "another version of the pipeline begins here, and its apply is not on disk yet";
  return legs_.empty() ? std::string() : legs_.front().stream->waits_for(holder());
}

bool Consumer::starves() const {
  MutexLock lock(mutex_);
  return !ended_ && leases_.size() < credits_ && !legs_.empty() &&
         legs_.front().stream->readable(holder()).batches == 0;
}

engine::Executor::Headway Consumer::headway() const {
  MutexLock lock(mutex_);
  return legs_.empty() ? engine::Executor::Headway{} : legs_.front().stream->headway();
}

bool Consumer::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

stream::Timeline Consumer::timeline() const {
  MutexLock lock(mutex_);
  return timeline_;
}

job::StepAt Consumer::acked() const {
  job::StepAt acked = to_send_;
  for (const Lease& lease : leases_) {
    if (lease.turn == turn_) acked = std::min(acked, lease.at);
  }
  return acked;
}

void Consumer::note_waited(const delivery::WaitedNotice& notice) {
  MutexLock lock(mutex_);
  waiting_ = notice;
}

Consumer::View Consumer::view() const {
  MutexLock lock(mutex_);
  View view{.next = timeline_.settled(to_send_),
            .acked = acked(),
            .acked_position = 0,
            .leases = static_cast<std::uint32_t>(leases_.size()),
            .ready = 0,
            .batches = batches_,
            .rows = rows_,
            .arena_bytes = 0,
            .bad_releases = bad_releases_,
            .moves = moves_seen_,
            .turn = turn_,
            .asks = !ask_at_ && granted_ != kUnlimited,
            .ahead = granted_ == kUnlimited ? 0 : granted_ - batches_,
            .resized_away = resized_away_,
            .waiting = waiting_};
  view.acked_position = timeline_.position_of(view.acked);
  if (!jumps_.empty()) {
    const Jump& last = jumps_.back();
    view.next = last.timeline.settled(last.to);
    view.acked = last.to;
    view.acked_position = last.timeline.position_of(last.to);
  }
  for (const stream::Leg& leg : legs_) {
    const stream::Stream::Readable readable = leg.stream->readable(holder());
    view.ready += readable.batches;
    if (!readable.to_its_end) break;
  }
  view.ready = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(view.ready, granted_ - std::min(granted_, batches_)));
  for (const auto& pool : pools()) view.arena_bytes += pool->arena().total_bytes();
  return view;
}

}  // namespace spdld::session
