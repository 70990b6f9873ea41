// SPDX-License-Identifier: Apache-2.0
#include "session/consumer.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text/counted.h"

namespace spdld::session {

Consumer::Consumer(ConsumerOptions options, std::shared_ptr<delivery::Connection> connection,
                   stream::Streams& streams)
    : terms_(std::move(options.way)),
      job_(std::move(options.job)),
      connection_(std::move(connection)),
      loop_(std::move(options.plan), std::move(options.own), options.turn),
      way_(terms_, streams),
      grant_(options.granted),
      epochs_(*connection_, options.open_epochs, options.last_known),
      leases_(*connection_) {
  way_.read_on(std::move(options.gpu));
  way_.open_epochs(options.open_epochs);
}

Status Consumer::connect(stream::DeviceReserve* reserve) {
  MutexLock lock(mutex_);
  SPDLD_TRY(join(loop_.turn, {.reserve = reserve, .may_wait = terms_.gpu_may_have_room}));
  if (terms_.replicas > 1)
    terms_.presence->came({terms_.shard, terms_.replica}, terms_.replicas, holder());
  way_.dismiss();  // it is not expected elsewhere any more
  // A follower leaves out the batches that it missed and goes on where the other replicas are.
  const job::Turn change = loop_.plan->schedule.next_change(loop_.turn, loop_.own);
  while (terms_.follows && way_.legs().size() > 1 && way_.legs()[1].from < change) {
    loop_.turn = way_.legs()[1].from;
    (void)way_.advance(loop_.turn);
  }
  epochs_.go_to(loop_.place());
  if (!way_.empty()) credits_ = way_.credits();
  leases_.attached(loop_.reads.plan->phase(loop_.next().version), credits_);
  return {};
}

Consumer::Start Consumer::start() {
  MutexLock lock(mutex_);
  const job::State next = loop_.next();
  return {.turn = loop_.turn,
          .place = loop_.place(),
          .phase = loop_.reads.plan->phase(next.version),
          .steps_per_epoch = loop_.reads.plan->schedule.steps_per_epoch(next),
          .credits = credits_,
          .gpu = way_.reads_on(),
          .gpu_warning = way_.take_warning()};
}

void Consumer::read_on(delivery::DeviceMemoryPtr gpu) {
  MutexLock lock(mutex_);
  way_.read_on(std::move(gpu));
}

delivery::DeviceMemoryPtr Consumer::gpu() const {
  MutexLock lock(mutex_);
  return way_.gpu();
}

void Consumer::begin() {
  MutexLock lock(mutex_);
  begun_ = true;
  begun_at_ = std::chrono::steady_clock::now();
  const bool stopped = loop_.turn >= grant_.until();
  if (stopped && grant_.take_asking(loop_.turn, stopped)) job_.host->asks_for_grant();
  tell_warning();
  take_up_leg();
  if (loop_.is_at_entry()) job_.host->comes_to_entry();
  pump();  // an epoch that is resumed at its very end has nothing but its end to tell
}

Status Consumer::join(job::Turn from, const Way::Joining& how) {
  SPDLD_TRY(way_.join(shared_from_this(), *loop_.reads.plan, loop_.own, from, how));
  tell_warning();
  return {};
}

Status Consumer::extend() {
  const std::optional<job::Turn> from = way_.lacks_from();
  return from ? join(*from) : Status();
}

void Consumer::tell_warning() {
  if (!begun_) return;
  const std::string warning = way_.take_warning();
  if (warning.empty()) return;
  spdlog::warn("session {}: {}", holder(), warning);
  connection_->send_notice(warning);
}

void Consumer::pump() {
  send();
  note_shortage();
}

void Consumer::note_shortage() {
  using stream::Shortage;
  if (!begun_) return;
  if (ended_ || leases_.size() >= credits_) return shortage_.end();
  if (const auto reason = epochs_.waits_for(loop_.next().epoch))
    return reason->empty() ? shortage_.end() : shortage_.lacks(Shortage::kEpoch);
  if (way_.holds() || way_.empty() || loop_.turn >= loop_.limit())
    return shortage_.lacks(Shortage::kChange);
  if (is_at_gate()) return shortage_.lacks(Shortage::kChange, way_.leg_at(loop_.turn).stream);
  if (loop_.turn >= grant_.until()) return shortage_.lacks(Shortage::kDisk);
  const Way::Leg& leg = way_.front();
  const stream::Index at = leg.at(loop_.turn);
  if (!shortage_.lacks_batch(*leg.stream, at))
    shortage_.lacks_batch(leg.stream, at, leg.stream->lacks(holder()));
}

void Consumer::send() {
  while (begun_ && !ended_) {
    const job::State at = loop_.next();
    if (!epochs_.come_to_edits(loop_)) return;
    if (loop_.turn >= loop_.limit()) {
      if (loop_.is_at_planned()) job_.host->comes_to_planned();
      return;
    }
    if (!epochs_.pass_edits(loop_, at)) return;
    if (terms_.shard >= at.shards) {
      ended_ = resized_away_ = true;
      (void)way_.leave_all();
      connection_->bye(wire::ByeReason::kResized,
                       "the job was resized to " + counted(at.shards, "shard") +
                           ", and there is no shard " + std::to_string(terms_.shard) +
                           " any more: its rows go to the others; leave the loop");
      return;
    }
    if (way_.advance(loop_.turn)) {
      take_up_leg();
      if (Status joined = extend(); !joined.ok())
        return give_up({.status = joined.with_context("the batches that come next")});
      continue;
    }
    if (way_.empty() || leases_.size() >= credits_ || is_at_gate()) return;
    const bool stopped = loop_.turn >= grant_.until();
    if (!stopped && !send_next(at)) return;
    if (grant_.take_asking(loop_.turn, stopped)) job_.host->asks_for_grant();
    if (stopped) return;
  }
}

bool Consumer::send_next(const job::State& at) {
  const Way::Leg& leg = way_.front();
  const job::Turn turn = loop_.turn;
  const auto taken = leg.stream->take(holder(), leg.at(turn));
  if (!taken) return false;
  const std::shared_ptr<stream::SlotPool>& pool = taken->pool;
  const engine::BatchOrder& order = taken->order;
  leases_.show(*leg.stream, pool, loop_.reads.plan->phase(at.version),
               loop_.reads.plan->schedule.steps_per_epoch(at), credits_);
  for (const engine::SampleFailure& sample : taken->replaced) {
    const Status verdict = job_.judge->may_replace(sample);
    if (verdict.ok()) continue;
    give_up(engine::ended_by(sample, verdict));
    return false;
  }
  leases_.add({.id = taken->lease, .turn = turn, .seek = loop_.serial, .pool = pool},
              order.rows.rows);
  job_.gain->handed_rows.fetch_add(order.rows.rows, std::memory_order_relaxed);
  if (taken->shared) {
    job_.gain->rows.fetch_add(order.rows.rows, std::memory_order_relaxed);
    const auto saved = leg.stream->phase()->run->process_stats().mean_busy() * order.rows.rows;
    job_.gain->saved_ns.fetch_add(static_cast<std::uint64_t>(saved.count()),
                                  std::memory_order_relaxed);
  }
  const delivery::Arena& arena = pool->arena();
  const delivery::BatchNotice notice{.lease = taken->lease,
                                     .arena_id = arena.id(),
                                     .schema_id = leases_.schema_id(),
                                     .slot_offset = arena.slot_offset(taken->slot),
                                     .slot_bytes = arena.shape().slot_bytes,
                                     .epoch = order.epoch,
                                     .step = order.step,
                                     .next_position = order.next_position,
                                     .turn = turn,
                                     .rows = static_cast<std::uint32_t>(order.rows.rows),
                                     .seek = loop_.serial,
                                     .branch = loop_.plan->schedule.branch(),
                                     .tell = loop_.take_telling()};
  if (pool->gpu() == nullptr) {
    connection_->send_batch(notice);
  } else {
    connection_->send_device_batch(notice, pool->device_place(taken->slot));
  }
  epochs_.sent(order.step);
  ++loop_.turn;
  return true;
}

void Consumer::handed(job::Turn turn) {
  MutexLock lock(mutex_);
  if (turn > loop_.turn) return;  // no batch of that turn was sent
  loop_.handed = std::max(loop_.handed, turn);
  if (loop_.is_at_entry()) job_.host->comes_to_entry();
}

void Consumer::give_up(const engine::StreamFailure& failure) {
  ended_ = true;
  shortage_.end();
  (void)way_.leave_all();
  job_.judge->stream_failed(failure);
  connection_->fail(failure.status);
  loop_.pending.reset();  // the failure may be its own
}

void Consumer::take_up_leg() {
  if (!begun_ || ended_ || way_.empty()) return;
  credits_ = way_.credits();
  const job::State at = loop_.next();
  const Leases::Pools read = way_.pools();
  // Slots on a GPU are shown with their first batch where their memory is not there yet.
  if (read.front()->has_memory() && loop_.turn < loop_.limit())
    leases_.show(*way_.front().stream, read.front(), loop_.reads.plan->phase(at.version),
                 loop_.reads.plan->schedule.steps_per_epoch(at), credits_);
  leases_.keep(read);
}

void Consumer::ready() {
  MutexLock lock(mutex_);
  pump();
}

void Consumer::release(std::uint64_t id) {
  std::optional<Leases::Lease> lease;
  {
    MutexLock lock(mutex_);
    lease = leases_.take(id);
    if (!lease) return;
    if (gate_ != nullptr && lease->seek == gate_->seek) note_given(lease->turn);
    const bool freed = lease->pool->release(id, holder());
    pump();
    if (!freed) return;
  }
  lease->pool->freed();
}

void Consumer::note_given(job::Turn turn) {
  const job::Schedule& schedule = loop_.plan->schedule;
  const job::State given =
      schedule.locate(std::max(turn, schedule.record().oldest), known_at(turn, loop_.own));
  gate_->given.push_back({.at = gate_->clock.now(), .epoch = given.epoch});
}

void Consumer::grant(job::Turn until) {
  MutexLock lock(mutex_);
  grant_.raise(until, loop_.turn);
  pump();
}

Grant::Bound Consumer::bound_grant(const job::Schedule& schedule) {
  MutexLock lock(mutex_);
  const job::Turn turn = loop_.turn;
  const job::Turn due = schedule.planned_turn(turn, loop_.own_in(schedule, released()));
  return ended_ ? Grant::Bound{.granted = turn, .due = due} : grant_.bound(turn, due);
}

void Consumer::open_epochs(std::uint64_t count, bool last_known) {
  MutexLock lock(mutex_);
  epochs_.open(count, last_known);
  way_.open_epochs(count);
  pump();
}

Status Consumer::seek(const delivery::SeekRequest& request) {
  MutexLock lock(mutex_);
  if (!way_.holds() && !delayed_) return make_seek(request);
  delayed_ = request;
  return {};
}

Status Consumer::make_seek(const delivery::SeekRequest& request) {
  if (ended_) return {};
  SPDLD_ASSIGN(const Loop::Place to, loop_.seek(request, released()));
  if (loop_.is_at_entry()) job_.host->comes_to_entry();
  connection_->send_reset(loop_.reset(to, loop_.serial, terms_.shard));
  epochs_.go_to(to);
  const job::State at = loop_.next();
  const pipeline::PhasePtr& phase = loop_.reads.plan->phase(at.version);
  const bool stays = terms_.shard < at.shards &&
                     way_.jump(loop_.turn, stream::Span(phase, at, terms_.shard),
                               loop_.reads.plan->schedule.next_change(loop_.turn, loop_.own));
  SPDLD_TRY(stays ? extend()
                  : join(loop_.turn, {.reuse = way_.leave_all(false, phase->run.get())}));
  way_.dismiss();
  take_up_leg();
  pump();
  return {};
}

job::Turn Consumer::hold() {
  MutexLock lock(mutex_);
  if (ended_) return 0;
  const job::Turn first = way_.hold(loop_.turn, loop_.limit());
  note_shortage();
  return first;
}

void Consumer::go_on() {
  std::vector<std::shared_ptr<stream::Stream>> held;
  {
    MutexLock lock(mutex_);
    held = way_.take_held();
  }
  for (const auto& stream : held) stream->go_on();
  MutexLock lock(mutex_);
  const auto seek = std::exchange(delayed_, std::nullopt);
  if (!seek) return;
  if (const Status sought = make_seek(*seek); !sought.ok())
    connection_->fail(sought.with_context("seek"));
}

Status Consumer::prepare(const JobPlanPtr& plan, job::Turn from, stream::DeviceReserve* reserve) {
  MutexLock lock(mutex_);
  if (ended_) return {};
  Loop::Pending next = loop_.with(plan, from, released());
  Way::Route route;
  const Way::Joining how{.reserve = reserve};
  const bool same = loop_.reads_as(*next.reads.plan);
  if (!same) {
    SPDLD_ASSIGN(route, way_.route(shared_from_this(), *next.reads.plan, next.own, next.from, how));
  }
  // From here on abort() leads back.
  loop_.prepare(std::move(next));
  epochs_.edits_changed();  // it may wait at that very turn already
  if (same) return {};
  return way_.adopt(std::move(route), shared_from_this(), *loop_.reads.plan, loop_.pending->own,
                    how);
}

Status Consumer::prepared() const {
  MutexLock lock(mutex_);
  return loop_.pending ? loop_.pending->failure.status : Status();
}

void Consumer::commit() {
  MutexLock lock(mutex_);
  if (!loop_.pending) return;
  if (!loop_.pending->failure.status.ok()) return give_up(loop_.pending->failure);
  const std::uint32_t shards = loop_.plan->schedule.shards(job::kNoTurn);
  loop_.commit();
  tell_warning();
  if (loop_.plan->schedule.shards(job::kNoTurn) != shards)
    connection_->send_reset(loop_.reset(loop_.place(), 0, terms_.shard));
  take_up_leg();
  if (loop_.is_at_entry()) job_.host->comes_to_entry();
  pump();
}

Status Consumer::abort() {
  MutexLock lock(mutex_);
  if (!loop_.pending) return {};
  const job::Turn from = loop_.pending->from;
  loop_.go_by(loop_.plan);
  epochs_.edits_changed();
  if (ended_) return {};
  SPDLD_TRY(join(from));
  take_up_leg();
  pump();
  return {};
}

void Consumer::rename(const JobPlanPtr& plan) {
  MutexLock lock(mutex_);
  loop_.go_by(plan);
  epochs_.edits_changed();
}

void Consumer::failed(const engine::StreamFailure& failure, const stream::Stream& stream) {
  MutexLock lock(mutex_);
  const Way::Leg* const leg = way_.find(stream);
  if (ended_ || leg == nullptr) return;
  std::optional<Loop::Pending>& pending = loop_.pending;
  if (!pending || leg->from < pending->from) return give_up(failure);
  // The plan in force goes on: only the prepared one has failed.
  pending->failure = failure;
  way_.cut(pending->from);
}

void Consumer::end(bool away) {
  std::vector<std::shared_ptr<stream::Stream>> held;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    const job::Member member{terms_.shard, terms_.replica};
    // Another process may have its place by now; then nobody is to wait for this one.
    const bool missed = terms_.presence->went(member, holder(), away, loop_.turn) && away;
    (void)way_.leave_all(missed);
    loop_.pending.reset();
    shortage_.end();
    if (!away || terms_.presence->here(member)) way_.dismiss();
    held = way_.take_held();
  }
  for (const auto& stream : held) stream->go_on();  // others may read them
}

void Consumer::time(const Clock& clock) {
  MutexLock lock(mutex_);
  gate_ = std::make_unique<Gate>(Gate{.clock = clock, .seek = loop_.serial});
}

void Consumer::end_timing() {
  release_streams();
  MutexLock lock(mutex_);
  gate_.reset();
  pump();
}

void Consumer::gate(job::Turn until) {
  MutexLock lock(mutex_);
  if (gate_ == nullptr) return;
  gate_->until = until;
  pump();
}

bool Consumer::shares() const {
  return std::any_of(way_.legs().begin(), way_.legs().end(),
                     [](const Way::Leg& leg) { return leg.stream->jobs().size() > 1; });
}

bool Consumer::shares_stream() const {
  MutexLock lock(mutex_);
  return shares();
}

bool Consumer::hold_streams() {
  MutexLock lock(mutex_);
  if (gate_ == nullptr || ended_ || shares()) return false;
  for (const Way::Leg& leg : way_.legs()) {
    (void)leg.stream->hold();
    gate_->held.push_back(leg.stream);
  }
  return true;
}

void Consumer::release_streams() {
  std::vector<std::shared_ptr<stream::Stream>> held;
  {
    MutexLock lock(mutex_);
    if (gate_ != nullptr) held = std::exchange(gate_->held, {});
  }
  for (const auto& stream : held) stream->go_on();
}

Leases::Pools Consumer::slots() const {
  MutexLock lock(mutex_);
  Leases::Pools slots = way_.pools();
  for (const Way::Leg& leg : way_.legs()) slots.push_back(leg.stream->pool());
  return slots;
}

Consumer::Timed Consumer::take_timed() {
  MutexLock lock(mutex_);
  Timed timed{.turn = loop_.turn,
              .leases = leases_.size(),
              .over = ended_ || gate_ == nullptr || gate_->seek != loop_.serial};
  // In this order: what is made in between is ready.
  for (const Way::Leg& leg : way_.legs()) {
    // On a GPU, they are copied from slots in main memory.
    const delivery::SlotTable::Counts made = leg.stream->pool()->slots().counts();
    const delivery::SlotTable::Counts read = leg.stream->pool_of(holder())->slots().counts();
    timed.making = timed.making || made.loaned > 0 || read.loaned > 0;
    timed.full = made.free == 0 && read.free == 0;  // of the last one
  }
  timed.ready = way_.ready();
  if (gate_ != nullptr) timed.given = std::exchange(gate_->given, {});
  return timed;
}

Leases::Pools Consumer::arenas() const {
  MutexLock lock(mutex_);
  return leases_.pools();
}

void Consumer::retire() {
  MutexLock lock(mutex_);
  for (const auto& pool : leases_.pools()) pool->retire(holder());
}

void Consumer::reclaim() {
  Leases::Pools left;
  {
    MutexLock lock(mutex_);
    left = leases_.pools();
    leases_.clear();
  }
  for (const auto& pool : left) pool->reclaim(holder());
}

std::string Consumer::waits_for() const {
  MutexLock lock(mutex_);
  if (ended_ || leases_.size() >= credits_) return {};
  if (auto reason = epochs_.waits_for(loop_.next().epoch)) return *std::move(reason);
  if (way_.holds()) return "its job is being changed, and that is not on disk yet";
  if (loop_.turn >= loop_.limit()) return "its job changes here, and that is not on disk yet";
  if (is_at_gate()) return "'spdlctl headspace' holds all ranks until batches lie ready for each";
  if (loop_.turn >= grant_.until())
    return "where its job is must be on disk first, and the disk of state_dir takes its time";
  return way_.empty() ? std::string() : way_.front().stream->waits_for(holder());
}

std::shared_ptr<const engine::Run> Consumer::made_by() const {
  MutexLock lock(mutex_);
  return way_.empty() ? nullptr : way_.front().stream->phase()->run;
}

std::optional<engine::Executor::Headway> Consumer::starved() const {
  MutexLock lock(mutex_);
  if (ended_ || leases_.size() >= credits_ || way_.empty()) return std::nullopt;
  const stream::Stream& stream = *way_.front().stream;
  if (stream.readable(holder()).batches > 0) return std::nullopt;
  return stream.headway();
}

job::Turn Consumer::released() const { return leases_.released(loop_.turn, loop_.serial); }

void Consumer::note_waited(const delivery::WaitedNotice& notice) {
  MutexLock lock(mutex_);
  waiting_ = notice;
}

Consumer::View Consumer::view() const {
  MutexLock lock(mutex_);
  const job::State next = loop_.next();
  View view{.progress = loop_.plan->progress_at(released(), loop_.own),
            .own = loop_.own,
            .handed = loop_.handed,
            .version = loop_.reads.plan->phase(next.version)->version(),
            .gpu = way_.reads_on(),
            .credits = credits_,
            .leases = leases_.size(),
            .ready = 0,
            .batches = leases_.batches(),
            .rows = leases_.rows(),
            .arena_bytes = 0,
            .bad_releases = leases_.bad_releases(),
            .asks = grant_.has_asked(),
            .ended = ended_,
            .resized_away = resized_away_,
            .waiting = waiting_};
  view.progress.sent = loop_.turn;
  view.progress.next = next.at();
  const job::Turn may_be_sent = std::min(grant_.until(), loop_.limit());
  view.ready = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(way_.ready(), may_be_sent - std::min(may_be_sent, loop_.turn)));
  for (const auto& pool : leases_.pools()) view.arena_bytes += pool->arena().total_bytes();
  return view;
}

Consumer::Lacked Consumer::lacked() const {
  MutexLock lock(mutex_);
  if (!begun_) return {};
  return {.attached = std::chrono::steady_clock::now() - begun_at_, .time = shortage_.total()};
}

void Consumer::displaced() {
  MutexLock lock(mutex_);
  // Replicas of a shard wait for each other, so none of them gets a stream of its own.
  if (ended_ || way_.holds() || way_.empty() || way_.front().stream->replicas() > 1) return;
  const auto parted = way_.part(shared_from_this(), loop_.turn);
  if (!parted) {
    spdlog::warn("session {} is held up by another job and cannot have slots of its own: {}",
                 holder(), parted.error().message());
    return;
  }
  if (!*parted) return;
  take_up_leg();
  pump();
}

void Consumer::refused_memory(const Status& why, const stream::Stream& stream) {
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    auto left =
        way_.leave_gpu(shared_from_this(), stream, why, *loop_.reads.plan, loop_.own, loop_.turn);
    if (!left) return give_up({.status = std::move(left).error()});
    if (*left) {
      tell_warning();
      take_up_leg();
      return pump();
    }
  }
  failed({.status = why}, stream);
}

}  // namespace spdld::session
