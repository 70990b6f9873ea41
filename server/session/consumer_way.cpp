// SPDX-License-Identifier: Apache-2.0
// Which streams a consumer reads from which step on: through seeks, resizes and swaps.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "session/consumer.h"
#include "session/gpus.h"

namespace spdld::session {

stream::StreamWish Consumer::wish(const stream::Timeline& timeline, job::StepAt from,
                                  job::StepAt until, const delivery::DeviceMemoryPtr& gpu) const {
  return {.timeline = timeline,
          .from = from,
          .until = until,
          .shard = shard_,
          .replica = replica_,
          .replicas = replicas_,
          .absent = absent_,
          .roll = roll_,
          .passage = passage_,
          .job = job_,
          .uid = uid_,
          .credits = credits_,
          .open_epochs = open_epochs_,
          .gpu = delivers_to_gpus(*timeline.phase(from)) ? gpu : nullptr,
          .meter = meter_};
}

Result<std::vector<stream::Leg>> Consumer::join(stream::StreamWish& wish,
                                                delivery::DeviceMemoryPtr& gpu) {
  auto joined = streams_.connect(shared_from_this(), wish);
  const pipeline::Phase& phase = *wish.timeline.phase(wish.from);
  if (joined || wish.gpu == nullptr || !may_stay_in_main_memory(phase)) return joined;
  if (wish.reserve != nullptr && wish.reserve->lacks()) return joined;  // it is tried again
  if (!begun_ && gpu_may_have_room_ && joined.error().code() == Code::kResourceExhausted)
    return joined;
  const std::string warning = in_main_memory_text(phase, joined.error().message(), true);
  wish.gpu = nullptr;
  joined = streams_.connect(shared_from_this(), wish);
  if (!joined) return joined;
  gpu = nullptr;
  tell_in_main_memory(warning);
  return joined;
}

void Consumer::tell_in_main_memory(const std::string& warning) {
  spdlog::warn("session {}: {}", holder(), warning);
  if (begun_) {
    connection_->send_notice(warning);
  } else {
    gpu_warning_ = warning;
  }
}

Result<std::vector<stream::Leg>> Consumer::route(const stream::Timeline& timeline, job::StepAt from,
                                                 std::shared_ptr<stream::Stream> after,
                                                 std::shared_ptr<stream::SlotPool> reuse,
                                                 job::StepAt halt, delivery::DeviceMemoryPtr& gpu,
                                                 stream::DeviceReserve* reserve) {
  std::vector<stream::Leg> legs;
  while (from < halt) {
    const job::StepAt until = std::min(timeline.next_phase(from).value_or(job::kNever), halt);
    stream::StreamWish part = wish(timeline, from, until, gpu);
    part.after = std::move(after);
    part.reuse = std::move(reuse);
    part.reserve = reserve;
    auto connected = join(part, gpu);
    if (!connected) {
      leave(legs);
      return tl::unexpected<Status>(std::move(connected).error());
    }
    legs.insert(legs.end(), connected->begin(), connected->end());
    after = legs.back().stream;
    reuse = nullptr;
    from = until;
  }
  return legs;
}

void Consumer::leave(const std::vector<stream::Leg>& legs, bool away) {
  for (const stream::Leg& leg : legs) leg.stream->leave(holder(), away);
}

std::shared_ptr<stream::SlotPool> Consumer::cut_legs(job::StepAt from) {
  std::shared_ptr<stream::SlotPool> freed;
  while (!legs_.empty() && legs_.back().from >= from) {
    const std::shared_ptr<stream::Stream> stream = std::move(legs_.back().stream);
    legs_.pop_back();
    stream->leave(holder());
    if (stream->ended()) freed = stream->pool();
  }
  if (!legs_.empty()) legs_.back().stream->set_until(holder(), from);
  return freed;
}

Status Consumer::retime(job::StepAt from) {
  const std::shared_ptr<stream::SlotPool> freed = cut_legs(from);
  job::StepAt rest = std::max(from, timeline_.settled(to_send_));
  std::shared_ptr<stream::Stream> after;
  if (!legs_.empty()) {
    after = legs_.back().stream;
    rest = from;
    const job::StepAt until = timeline_.next_phase(from).value_or(job::kNever);
    const bool stays = gpu_ == nullptr || delivers_to_gpus(*after->phase()) ==
                                              delivers_to_gpus(*timeline_.phase(from));
    if (stays && after->phase()->same_content(*timeline_.phase(from)) &&
        after->retime(timeline_, job_) && after->set_until(holder(), until))
      rest = until;
  }
  if (rest == job::kNever) return {};
  SPDLD_ASSIGN(std::vector<stream::Leg> legs,
               route(timeline_, rest, after, freed, job::kNever, gpu_));
  legs_.insert(legs_.end(), legs.begin(), legs.end());
  return {};
}

// Tells the consumer where what follows begins.
void Consumer::announce() {
  const job::StepAt at = to_send_;
  const source::Sharding sharding = timeline_.sharding(at);
  const std::uint64_t step = std::min(at.step, sharding.end_step());
  connection_->send_reset(
      {.to = {.epoch = at.epoch, .position = sharding.position_of(step), .step = step},
       .steps_per_epoch = timeline_.steps_per_epoch(at),
       .seek = seek_,
       .shard = shard_,
       .num_shards = timeline_.num_shards(),
       .moves = moves_});
}

Status Consumer::go_to(job::StepAt to, stream::Timeline timeline) {
  ++turn_;
  told_last_ = false;
  timeline_ = std::move(timeline);
  // The record on disk does not reach there.
  if (to > to_send_ && granted_ != kUnlimited) {
    granted_ = batches_;
    ask_at_.reset();
  }
  // A grant that was asked for elsewhere is of no use here.
  if (!ask_at_ && granted_ != kUnlimited) ask_for_grant_();
  to_send_ = to;
  const job::StepAt at = timeline_.settled(to);
  std::optional<Pending> pending = std::exchange(pending_, std::nullopt);
  if (pending) leave(pending->legs);
  const bool was_cut = std::exchange(halt_, !jumps_.empty() ? jumps_.front().from
                                            : pending       ? pending->first()
                                                            : job::kNever) != job::kNever;

  auto leg = legs_.end();
  while (leg != legs_.begin() && std::prev(leg)->from > at) --leg;
  const bool known = leg != legs_.begin();
  if (known) --leg;
  if (known && !was_cut && halt_ == job::kNever &&
      leg->stream->timeline().same_from(at, timeline_) && leg->stream->jump(holder(), at)) {
    leave({legs_.begin(), leg});
    legs_.erase(legs_.begin(), leg);
  } else {
    std::shared_ptr<stream::SlotPool> reuse;
    for (const stream::Leg& left : std::exchange(legs_, {})) {
      left.stream->leave(holder());
      if (left.stream->ended() && left.stream->phase()->run == timeline_.phase(at)->run)
        reuse = left.stream->pool();
    }
    SPDLD_ASSIGN(legs_, route(timeline_, at, nullptr, std::move(reuse), halt_, gpu_));
  }
  if (replicas_ > 1) streams_.dismiss(job_, {shard_, replica_}, passage_);
  announce();
  if (pending) {
    pending->legs.clear();
    pending->failure = {};
    SPDLD_TRY(make_pending(std::move(*pending)));
  }
  take_up_leg();
  pump();
  return {};
}

Status Consumer::seek(job::StepAt to, std::uint64_t position, std::uint32_t skip,
                      std::uint32_t serial) {
  MutexLock lock(mutex_);
  const Seek seek{.to = to, .position = position, .skip = skip, .serial = serial};
  if (!holds_) return make_seek(seek);
  delayed_ = seek;
  return {};
}

bool Consumer::turn_away() {
  if (alone_ || !jumped_ || moves_seen_ >= moves_) return false;
  turned_away_ = true;
  connection_->bye(wire::ByeReason::kShutdown,
                   "the job has gone elsewhere meanwhile; attach again");
  return true;
}

Status Consumer::make_seek(const Seek& seek) {
  if (ended_ || turn_away()) return {};
  SPDLD_TRY(job_timeline_.check(seek.to, seek.position));
  stream::Timeline timeline = job_timeline_;  // what an earlier seek cut is of no more meaning
  timeline.redeal(seek.to, seek.position);
  job::StepAt to = seek.to;
  if (seek.skip > 0) {
    const std::uint64_t end = timeline.end_step(to.epoch);
    to.step = to.step < end ? to.step + std::min<std::uint64_t>(seek.skip, end - to.step) : to.step;
  }
  seek_ = seek.serial;
  // It does not pass by where the job goes elsewhere.
  if (!jumps_.empty() && to >= jumps_.front().from) return make_jump();
  return go_to(to, std::move(timeline));
}

void Consumer::jump(Jump jump) {
  MutexLock lock(mutex_);
  if (ended_) return;
  (void)cut_legs(jump.from);
  halt_ = jump.from;
  jumps_.push_back(std::move(jump));
  pump();
}

std::optional<job::StepAt> Consumer::jumps_at() const {
  MutexLock lock(mutex_);
  return jumps_.empty() || ended_ ? std::nullopt : std::optional(jumps_.front().from);
}

Status Consumer::make_jump() {
  Jump jump = std::move(jumps_.front());
  jumps_.erase(jumps_.begin());
  job_timeline_ = jump.timeline;
  moves_ = jump.moves;
  jumped_ = true;
  passage_ = jump.moves;
  roll_->goes_on({shard_, replica_}, holder(), passage_);
  return go_to(jump.to, std::move(jump.timeline));
}

job::StepAt Consumer::hold() {
  MutexLock lock(mutex_);
  holds_ = true;
  job::StepAt frontier = timeline_.settled(to_send_);
  for (const stream::Leg& leg : legs_) {
    held_.push_back(leg.stream);
    if (const auto begun = leg.stream->hold()) frontier = std::max(frontier, *begun);
  }
  return frontier;
}

void Consumer::let_streams_go_on() {
  std::vector<std::shared_ptr<stream::Stream>> held;
  {
    MutexLock lock(mutex_);
    held.swap(held_);
  }
  for (const auto& stream : held) stream->go_on();
}

void Consumer::go_on() {
  let_streams_go_on();
  MutexLock lock(mutex_);
  holds_ = false;
  const auto seek = std::exchange(delayed_, std::nullopt);
  if (!seek) return;
  if (const Status sought = make_seek(*seek); !sought.ok())
    connection_->fail(sought.with_context("seek"));
}

Status Consumer::resize(job::StepAt from, std::uint64_t position, std::uint32_t num_shards,
                        std::uint64_t left_out) {
  MutexLock lock(mutex_);
  if (ended_) return {};
  job_timeline_.resize(from, position, num_shards, left_out);
  timeline_.resize(from, position, num_shards, left_out);
  forget_old_cuts();
  SPDLD_TRY(retime(from));
  announce();
  pump();
  return {};
}

// What it brings is made ready beside what there is, and nothing there is goes beyond its first
// step.
Status Consumer::make_pending(Pending pending, stream::DeviceReserve* reserve) {
  stream::Timeline timeline = timeline_;
  timeline.swap(pending.from, pending.phase, pending.planned);
  const job::StepAt from = pending.first();
  const job::StepAt at = timeline.settled(to_send_);
  auto before = legs_.end();
  while (before != legs_.begin() && std::prev(before)->from >= from) --before;
  const std::shared_ptr<stream::Stream> after =
      before == legs_.begin() ? nullptr : std::prev(before)->stream;
  pending.gpu = gpu_;
  SPDLD_ASSIGN(pending.legs, route(timeline, std::max(from, at), after, nullptr, job::kNever,
                                   pending.gpu, reserve));
  (void)cut_legs(from);
  halt_ = from;
  pending_ = std::move(pending);
  return {};
}

Status Consumer::prepare_swap(job::StepAt from, const pipeline::PhasePtr& phase,
                              std::optional<job::StepAt> planned, stream::DeviceReserve* reserve) {
  MutexLock lock(mutex_);
  if (ended_) return {};
  return make_pending({.from = from, .phase = phase, .planned = planned, .legs = {}}, reserve);
}

Status Consumer::prepared() const {
  MutexLock lock(mutex_);
  return pending_ ? pending_->failure.status : Status();
}

void Consumer::forget_old_cuts() {
  job_timeline_.forget_before(acked());
  timeline_.forget_before(acked());
}

void Consumer::commit_swap() {
  MutexLock lock(mutex_);
  if (!pending_) return;
  Pending pending = std::move(*std::exchange(pending_, std::nullopt));
  if (!pending.failure.status.ok()) return give_up(pending.failure);
  halt_ = job::kNever;
  gpu_ = std::move(pending.gpu);
  job_timeline_.swap(pending.from, pending.phase, pending.planned);
  timeline_.swap(pending.from, pending.phase, pending.planned);
  forget_old_cuts();
  (void)cut_legs(pending.first());
  legs_.insert(legs_.end(), pending.legs.begin(), pending.legs.end());
  if (!legs_.empty() && legs_.front().from <= to_send_) take_up_leg();
  pump();
}

void Consumer::rename(const pipeline::PhasePtr& phase, const pipeline::PhasePtr& name) {
  MutexLock lock(mutex_);
  job_timeline_.rename(phase, name);
  timeline_.rename(phase, name);
  for (Jump& jump : jumps_) jump.timeline.rename(phase, name);
}

Status Consumer::abort_swap() {
  MutexLock lock(mutex_);
  if (!pending_) return {};
  const Pending pending = std::move(*std::exchange(pending_, std::nullopt));
  halt_ = job::kNever;
  leave(pending.legs);
  if (ended_) return {};
  SPDLD_TRY(retime(pending.first()));
  pump();
  return {};
}

void Consumer::displaced() {
  MutexLock lock(mutex_);
  // Replicas wait for each other, whatever they share before they meet.
  if (ended_ || holds_ || legs_.empty() || legs_.front().stream->replicas() > 1) return;
  const job::StepAt from = timeline_.settled(to_send_);
  job::StepAt until = timeline_.next_phase(from).value_or(job::kNever);
  until = std::min(until, halt_);
  if (legs_.size() > 1) until = std::min(until, legs_[1].from);
  if (from >= until) return;  // it is through with it
  stream::StreamWish own = wish(timeline_, from, until, gpu_);
  own.replicas = 1;
  auto legs = streams_.connect(shared_from_this(), own);
  if (!legs) {
    spdlog::warn("session {} is held up by another job and cannot have slots of its own: {}",
                 holder(), legs.error().message());
    return;
  }
  legs_.front().stream->leave(holder());
  legs_.erase(legs_.begin());
  legs_.insert(legs_.begin(), legs->begin(), legs->end());
  take_up_leg();
  pump();
}

void Consumer::refused_memory(const Status& why, const stream::Stream& stream) {
  {
    MutexLock lock(mutex_);
    if (ended_ || go_on_in_main_memory(why, stream)) return;
  }
  failed({.status = why}, stream);
}

bool Consumer::go_on_in_main_memory(const Status& why, const stream::Stream& stream) {
  const auto refused = std::find_if(legs_.begin(), legs_.end(), [&](const stream::Leg& leg) {
    return leg.stream.get() == &stream;
  });
  if (refused == legs_.end() || !may_stay_in_main_memory(*stream.phase())) return false;
  gpu_ = nullptr;
  tell_in_main_memory(in_main_memory_text(*stream.phase(), why.message(), true));
  const job::StepAt from = std::max(refused->from, timeline_.settled(to_send_));
  (void)cut_legs(refused->from);
  const std::shared_ptr<stream::Stream> after = legs_.empty() ? nullptr : legs_.back().stream;
  // What a held job makes anew waits for go_on(), too.
  const std::uint64_t open = std::exchange(open_epochs_, holds_ ? 0 : open_epochs_);
  auto legs = route(timeline_, from, after, nullptr, halt_, gpu_);
  open_epochs_ = open;
  if (!legs) {
    give_up({.status = std::move(legs).error()});
    return true;
  }
  for (const stream::Leg& leg : *legs) {
    if (!holds_) break;
    (void)leg.stream->hold();
    held_.push_back(leg.stream);
    leg.stream->open_epochs(holder(), open_epochs_);
  }
  legs_.insert(legs_.end(), legs->begin(), legs->end());
  take_up_leg();
  pump();
  return true;
}

}  // namespace spdld::session
