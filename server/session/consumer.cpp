// SPDX-License-Identifier: Apache-2.0
#include "session/consumer.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text/counted.h"
#include "session/gpus.h"

namespace spdld::session {
namespace {

// Whether the job is sought at this turn.
bool is_sought(const job::Schedule& schedule, job::Turn turn) {
  const std::vector<job::Edit>& edits = schedule.edits();
  return std::any_of(edits.begin(), edits.end(), [turn](const job::Edit& edit) {
    return edit.turn == turn && std::holds_alternative<job::Edit::Seek>(edit.change);
  });
}

// The first turn from `turn` on at which shards enter at a place not known yet; kNoTurn: none do.
job::Turn next_entry(const job::Schedule& schedule, job::Turn turn) {
  for (const job::Edit& edit : schedule.edits()) {
    const auto* const resize = std::get_if<job::Edit::Resize>(&edit.change);
    if (edit.turn >= turn && resize != nullptr && !resize->entry) return edit.turn;
  }
  return job::kNoTurn;
}

bool same_edits(const JobPlan& a, const JobPlan& b) {
  const job::ScheduleRecord& one = a.schedule.record();
  const job::ScheduleRecord& other = b.schedule.record();
  return one.run == other.run && one.edits == other.edits && one.base == other.base &&
         one.base_turn == other.base_turn && a.phases == b.phases;
}

}  // namespace

Consumer::Consumer(ConsumerOptions options, std::shared_ptr<delivery::Connection> connection,
                   stream::Streams& streams)
    : terms_(std::move(options.way)),
      follows_(options.follows),
      gpu_may_have_room_(options.gpu_may_have_room),
      host_(std::move(options.host)),
      judge_(std::move(options.judge)),
      gain_(std::move(options.gain)),
      connection_(std::move(connection)),
      streams_(streams),
      plan_(std::move(options.plan)),
      way_plan_(plan_),
      own_(std::move(options.own)),
      way_(terms_, streams),
      turn_(options.turn),
      granted_(options.granted),
      ask_at_(granted_ == job::kNoTurn ? job::kNoTurn : 0),
      handed_(options.turn),
      told_(*connection_),
      open_epochs_(options.open_epochs),
      last_known_(options.last_known) {
  way_.read_on(std::move(options.gpu));
  way_.open_epochs(open_epochs_);
}

Status Consumer::connect(stream::DeviceReserve* reserve) {
  MutexLock lock(mutex_);
  assume();
  SPDLD_TRY(join_anew(turn_, {.reserve = reserve, .may_wait = gpu_may_have_room_}));
  if (terms_.replicas > 1) {
    const job::Member member{terms_.shard, terms_.replica};
    terms_.presence->came(member, terms_.replicas, holder());
    streams_.dismiss(terms_.job, member);  // it is not expected elsewhere any more
  }
  // A follower leaves out the batches that it missed and goes on where the other replicas are.
  const job::Turn change = plan_->schedule.next_change(turn_, own_);
  while (follows_ && way_.legs().size() > 1 && way_.legs()[1].from < change) {
    turn_ = way_.legs()[1].from;
    (void)way_.advance(turn_);
  }
  const Place from = place();
  epoch_ = from.at.epoch;
  steps_ = from.at.step;
  gpu_warning_ = way_.take_warning();
  told_.attached(way_plan_->phase(way_plan_->schedule.locate(turn_, own_).version));
  return {};
}

Consumer::Place Consumer::place() const {
  // A loop may be at a step that its epoch does not have: its end is told then.
  if (!own_.empty() && own_.back().turn == turn_ && own_.back().skip == 0)
    return {.at = own_.back().to, .position = own_.back().position};
  const job::State state = plan_->schedule.behind(turn_, own_);
  return {.at = state.at(), .position = state.position};
}

Consumer::Start Consumer::start() const {
  MutexLock lock(mutex_);
  const Place from = place();
  const job::State next = way_plan_->schedule.locate(turn_, own_);
  return {.turn = turn_,
          .at = from.at,
          .position = from.position,
          .phase = way_plan_->phase(next.version),
          .steps_per_epoch = way_plan_->schedule.steps_per_epoch(next)};
}

void Consumer::read_on(delivery::DeviceMemoryPtr gpu) {
  MutexLock lock(mutex_);
  way_.read_on(std::move(gpu));
}

delivery::DeviceMemoryPtr Consumer::gpu() const {
  MutexLock lock(mutex_);
  return way_.gpu();
}

std::string Consumer::gpu_warning() const {
  MutexLock lock(mutex_);
  return gpu_warning_;
}

std::string Consumer::reads_on() const {
  MutexLock lock(mutex_);
  if (way_.empty()) return {};
  const delivery::DeviceMemoryPtr& gpu = way_.front().stream->pool_of(holder())->gpu();
  return gpu == nullptr ? std::string() : gpu->uuid();
}

void Consumer::begin() {
  MutexLock lock(mutex_);
  begun_ = true;
  if (turn_ >= granted_) {
    ask_at_ = job::kNoTurn;
    host_->asks_for_grant();
  }
  take_up_leg();
  look_for_entry();
  pump();  // an epoch that is resumed at its very end has nothing but its end to tell
}

void Consumer::assume() {
  const JobPlanPtr& plan = pending_ ? pending_->plan : plan_;
  const Assumed next = assumed(plan, turn_, own_);
  way_plan_ = next.plan;
  due_ = next.due;
  limit_ = pending_ ? std::min(due_, pending_->from) : due_;
  passed_.reset();
}

Status Consumer::join_anew(job::Turn from, Way::Joining how) {
  SPDLD_ASSIGN(Way::Route route, way_.route(shared_from_this(), *way_plan_, own_, from, how));
  if (way_.adopt(std::move(route))) return {};
  how.extends = false;
  SPDLD_ASSIGN(route, way_.route(shared_from_this(), *way_plan_, own_, from, how));
  (void)way_.adopt(std::move(route));
  return {};
}

Status Consumer::extend() {
  if (way_.until() == job::kNoTurn || way_.legs().size() > 1) return {};
  SPDLD_TRY(join_anew(way_.until(), {}));
  tell_warning();
  return {};
}

void Consumer::tell_warning() {
  const std::string warning = way_.take_warning();
  if (warning.empty()) return;
  spdlog::warn("session {}: {}", holder(), warning);
  connection_->send_notice(warning);
}

bool Consumer::tell_ends(std::uint64_t epoch) {
  for (; epoch_ < epoch; ++epoch_) {
    if (epoch_ >= open_epochs_) return false;
    told_last_ = last_known_ && epoch_ + 1 >= open_epochs_;
    connection_->send_epoch_end(epoch_, steps_, seek_, told_last_);
    steps_ = 0;
  }
  return true;
}

bool Consumer::pass_edits(const job::State& at) {
  if (passed_ != turn_) {
    if (left_ != turn_) {
      if (!tell_ends(way_plan_->schedule.behind(turn_, own_).epoch)) return false;
      left_ = turn_;
    }
    if (turn_ >= limit_) {
      if (turn_ >= due_ && !pending_) host_->comes_to_planned();
      return false;
    }
    // A seek of the job ends no loop.
    if (is_sought(way_plan_->schedule, turn_)) {
      epoch_ = at.epoch;
      told_last_ = false;
    }
    if (!tell_ends(at.epoch)) return false;
    passed_ = turn_;
  }
  if (at.epoch < open_epochs_) return true;
  // A loop that begins behind the job's last epoch is told that it has ended, too.
  if (last_known_ && at.epoch > 0 && !std::exchange(told_last_, true))
    connection_->send_epoch_end(at.epoch - 1, steps_, seek_, true);
  return false;
}

void Consumer::pump() {
  while (begun_ && !ended_) {
    const job::State at = way_plan_->schedule.locate(turn_, own_);
    if (!pass_edits(at)) return;
    if (terms_.shard >= at.shards) {
      ended_ = resized_away_ = true;
      (void)way_.leave_all();
      connection_->bye(wire::ByeReason::kResized,
                       "the job was resized to " + counted(at.shards, "shard") +
                           ", and there is no shard " + std::to_string(terms_.shard) +
                           " any more: its rows go to the others; leave the loop");
      return;
    }
    if (way_.advance(turn_)) {
      take_up_leg();
      if (Status joined = extend(); !joined.ok())
        return give_up({.status = joined.with_context("the batches that come next")});
      continue;
    }
    if (way_.empty() || leases_.size() >= terms_.credits) return;
    const bool may = turn_ < granted_;
    if (may && !send_next(at)) return;
    if (ask_at_ != job::kNoTurn && (!may || turn_ >= ask_at_)) {
      ask_at_ = job::kNoTurn;
      host_->asks_for_grant();
    }
    if (!may) return;
  }
}

bool Consumer::send_next(const job::State& at) {
  const Way::Leg& leg = way_.front();
  const auto taken = leg.stream->take(holder(), leg.at(turn_));
  if (!taken) return false;
  const std::shared_ptr<stream::SlotPool>& pool = taken->pool;
  const engine::BatchOrder& order = taken->order;
  told_.show(*leg.stream, pool, way_plan_->phase(at.version),
             way_plan_->schedule.steps_per_epoch(at));
  told_.lend(pool);
  leases_.push_back(
      {.id = taken->lease, .turn = turn_, .seek = seek_, .number = ++batches_, .pool = pool});
  if (!accept(taken->replaced)) return false;
  rows_ += order.rows.rows;
  gain_->handed_rows.fetch_add(order.rows.rows, std::memory_order_relaxed);
  if (taken->shared) {
    gain_->rows.fetch_add(order.rows.rows, std::memory_order_relaxed);
    const auto saved = leg.stream->phase()->run->process_stats().mean_busy() * order.rows.rows;
    gain_->saved_ns.fetch_add(static_cast<std::uint64_t>(saved.count()), std::memory_order_relaxed);
  }
  const delivery::Arena& arena = pool->arena();
  const delivery::BatchNotice notice{.lease = taken->lease,
                                     .arena_id = arena.id(),
                                     .schema_id = told_.schema_id(),
                                     .slot_offset = arena.slot_offset(taken->slot),
                                     .slot_bytes = arena.shape().slot_bytes,
                                     .epoch = order.epoch,
                                     .step = order.step,
                                     .next_position = order.next_position,
                                     .turn = turn_,
                                     .rows = static_cast<std::uint32_t>(order.rows.rows),
                                     .seek = seek_,
                                     .branch = plan_->schedule.branch(),
                                     .tell = tells(turn_)};
  if (pool->gpu() == nullptr) {
    connection_->send_batch(notice);
  } else {
    connection_->send_device_batch(notice, pool->device_place(taken->slot));
  }
  steps_ = order.step + 1;
  ++turn_;
  return true;
}

// The last batch before other shards enter, or the first one behind it.
bool Consumer::tells(job::Turn turn) {
  // Beyond those that are asked for already: their places may not be known here yet.
  const job::Turn entry = next_entry(plan_->schedule, std::max(handed_, told_entry_) + 1);
  if (entry == job::kNoTurn || turn + 1 < entry) return false;
  told_entry_ = entry;
  return true;
}

void Consumer::handed(job::Turn turn) {
  MutexLock lock(mutex_);
  if (turn > turn_) return;  // no batch of that turn was sent
  handed_ = std::max(handed_, turn);
  look_for_entry();
}

void Consumer::look_for_entry() {
  if (next_entry(plan_->schedule, 0) <= handed_) host_->comes_to_entry();
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
  (void)way_.leave_all();
  pending_.reset();
  judge_->stream_failed(failure);
  connection_->fail(failure.status);
}

void Consumer::take_up_leg() {
  if (!begun_ || ended_ || way_.empty()) return;
  const stream::Stream& stream = *way_.front().stream;
  const job::State at = way_plan_->schedule.locate(turn_, own_);
  // Slots on a GPU are shown with their first batch where their memory is not there yet.
  if (const auto pool = stream.pool_of(holder()); pool->has_memory() && turn_ < limit_)
    told_.show(stream, pool, way_plan_->phase(at.version), way_plan_->schedule.steps_per_epoch(at));
  std::vector<std::shared_ptr<stream::SlotPool>> read;
  for (const Way::Leg& leg : way_.legs()) read.push_back(leg.stream->pool_of(holder()));
  told_.keep(read, batches_);
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
    told_.given_back(lease->number);
    leases_.erase(lease);
    const bool freed = pool->release(id, holder());
    pump();
    if (!freed) return;
  }
  pool->freed();
}

void Consumer::grant(job::Turn until) {
  MutexLock lock(mutex_);
  granted_ = std::max(granted_, until);
  ask_at_ = until == job::kNoTurn ? until : turn_ + (granted_ - std::min(granted_, turn_)) / 2 + 1;
  pump();
}

Consumer::Bound Consumer::bound_grant(const job::Schedule& schedule) {
  MutexLock lock(mutex_);
  Bound bound{.granted = turn_, .due = schedule.planned_turn(turn_, own_in(schedule))};
  if (ended_ || granted_ == job::kNoTurn) return bound;
  granted_ = std::min(granted_, std::max(turn_, bound.due));
  bound.granted = std::max(bound.granted, granted_);
  return bound;
}

void Consumer::open_epochs(std::uint64_t count, bool last_known) {
  MutexLock lock(mutex_);
  open_epochs_ = count;
  last_known_ = last_known;
  way_.open_epochs(count);
  pump();
}

Status Consumer::seek(const delivery::SeekRequest& request) {
  MutexLock lock(mutex_);
  if (!holds_) return make_seek(request);
  delayed_ = request;
  return {};
}

Status Consumer::make_seek(const delivery::SeekRequest& request) {
  if (ended_) return {};
  const job::Schedule& schedule = plan_->schedule;
  const job::Turn first = request.skip > 0 ? first_turn() : schedule.record().oldest;
  if (request.turn > turn_ || request.turn < first)
    return Status(Code::kInvalidArgument,
                  "the loop has been handed " + std::to_string(request.turn) +
                      " batches, it says, and was sent " + std::to_string(turn_));
  const Place end = request.skip > 0 ? end_of_epoch(request.turn) : Place();
  // Earlier seeks of the loop say no more than where it has come to by them.
  own_ = schedule.anchored(own_, std::min(released(), request.turn));
  job::OwnSeek to;
  Place told{.at = {.epoch = request.epoch, .step = 0}, .position = 0};
  if (request.skip > 0) {
    job::State from = schedule.behind(request.turn, own_);
    if (from.epoch != request.epoch && schedule.locate(request.turn, own_).epoch == request.epoch) {
      // A skip of the job at that very turn has ended the epoch before.
      SPDLD_ASSIGN(to, schedule.own_seek(request.turn, {}, told.at, 0));
      from = schedule.behind(request.turn, {to});
    }
    to = {.turn = request.turn,
          .to = from.at(),
          .position = from.position,
          .version = from.version,
          .skip = 0};
    if (from.epoch == request.epoch) {
      const source::Sharding sharding = schedule.sharding(from);
      const std::uint64_t left = sharding.end_step() - from.step;
      to.skip = std::min<std::uint64_t>(request.skip, left);
      told.at.step = from.step + to.skip;
      told.position = sharding.position_of(told.at.step);
    } else {
      // It stands at its epoch's end, and nothing is left to skip.
      told = end;
    }
  } else {
    SPDLD_ASSIGN(to, schedule.own_seek(request.turn, {}, told.at, 0));
  }
  job::say(own_, to);
  seek_ = request.serial;
  handed_ = request.turn;
  told_entry_ = 0;  // a batch that was asked about may have been taken back
  look_for_entry();
  send_reset(told, seek_);
  epoch_ = told.at.epoch;
  steps_ = told.at.step;
  return go_to(request.turn);
}

Consumer::Place Consumer::end_of_epoch(job::Turn turn) const {
  if (turn <= first_turn()) return place();
  const job::State last = plan_->schedule.locate(turn - 1, own_);
  const source::Sharding sharding = plan_->schedule.sharding(last);
  return {.at = {last.epoch, sharding.end_step()},
          .position = sharding.position_of(sharding.end_step())};
}

void Consumer::send_reset(const Place& place, std::uint32_t seek) {
  const job::Schedule& schedule = plan_->schedule;
  connection_->send_reset(
      {.to = {.epoch = place.at.epoch, .position = place.position, .step = place.at.step},
       .steps_per_epoch = schedule.steps_per_epoch(schedule.locate(turn_, own_)),
       .seek = seek,
       .shard = terms_.shard,
       .num_shards = schedule.shards(job::kNoTurn)});
}

Status Consumer::go_to(job::Turn turn) {
  turn_ = turn;
  told_last_ = false;
  left_.reset();
  assume();
  const job::Schedule& schedule = way_plan_->schedule;
  const job::State at = schedule.locate(turn_, own_);
  const pipeline::PhasePtr& phase = way_plan_->phase(at.version);
  const bool stays =
      terms_.shard < at.shards &&
      way_.jump(turn_, stream::Span(phase, at, terms_.shard), schedule.next_change(turn_, own_));
  if (!stays) {
    Way::Joining how{.reuse = way_.leave_all(false, phase->run.get())};
    SPDLD_TRY(join_anew(turn_, std::move(how)));
  } else {
    SPDLD_TRY(extend());
  }
  tell_warning();
  if (terms_.replicas > 1) streams_.dismiss(terms_.job, {terms_.shard, terms_.replica});
  take_up_leg();
  pump();
  return {};
}

job::Turn Consumer::hold() {
  MutexLock lock(mutex_);
  holds_ = true;
  return std::max(turn_, way_.hold(turn_, limit_));
}

void Consumer::let_streams_go_on() {
  std::vector<std::shared_ptr<stream::Stream>> held;
  {
    MutexLock lock(mutex_);
    held = way_.take_held();
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

Status Consumer::prepare(const JobPlanPtr& plan, job::Turn from, stream::DeviceReserve* reserve) {
  MutexLock lock(mutex_);
  if (ended_) return {};
  Pending next{.plan = plan, .own = own_in(plan->schedule)};
  const Assumed way = assumed(plan, turn_, next.own);
  next.from = std::max(turn_, std::min({from, way.due, due_}));
  const bool same = same_edits(*way.plan, *way_plan_);
  Way::Route route;
  if (!same) {
    SPDLD_ASSIGN(route, way_.route(shared_from_this(), *way.plan, next.own, next.from,
                                   {.reserve = reserve}));
  }
  // From here on abort() leads back.
  pending_ = std::move(next);
  way_plan_ = way.plan;
  due_ = way.due;
  limit_ = pending_->from;
  passed_.reset();  // it may wait at that very turn already
  if (same || way_.adopt(std::move(route))) return {};
  SPDLD_ASSIGN(route, way_.route(shared_from_this(), *way_plan_, pending_->own, pending_->from,
                                 {.reserve = reserve, .extends = false}));
  (void)way_.adopt(std::move(route));
  return {};
}

Status Consumer::prepared() const {
  MutexLock lock(mutex_);
  return pending_ ? pending_->failure.status : Status();
}

void Consumer::commit() {
  MutexLock lock(mutex_);
  if (!pending_) return;
  Pending pending = std::move(*std::exchange(pending_, std::nullopt));
  if (!pending.failure.status.ok()) return give_up(pending.failure);
  const JobPlanPtr before = std::exchange(plan_, pending.plan);
  own_ = std::move(pending.own);
  limit_ = due_;
  tell_warning();
  if (before->schedule.shards(job::kNoTurn) != plan_->schedule.shards(job::kNoTurn))
    send_reset(place(), 0);
  take_up_leg();
  look_for_entry();
  pump();
}

Status Consumer::abort() {
  MutexLock lock(mutex_);
  if (!pending_) return {};
  const Pending pending = std::move(*std::exchange(pending_, std::nullopt));
  assume();
  if (ended_) return {};
  SPDLD_TRY(join_anew(pending.from, {}));
  tell_warning();
  pump();
  return {};
}

void Consumer::rename(const JobPlanPtr& plan) {
  MutexLock lock(mutex_);
  plan_ = plan;
  assume();
}

void Consumer::failed(const engine::StreamFailure& failure, const stream::Stream& stream) {
  {
    MutexLock lock(mutex_);
    const Way::Leg* const leg = way_.find(stream);
    if (ended_ || leg == nullptr) return;
    if (pending_ && leg->from >= pending_->from) {
      // The plan in force goes on: only the prepared one has failed.
      pending_->failure = failure;
      way_.cut(pending_->from);
      return;
    }
    ended_ = true;
    (void)way_.leave_all();
    pending_.reset();
  }
  judge_->stream_failed(failure);
  connection_->fail(failure.status);
}

void Consumer::end(bool away) {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    const job::Member member{terms_.shard, terms_.replica};
    // Another process may have its place by now; then nobody is to wait for this one.
    const bool missed = terms_.presence->went(member, holder(), away, turn_) && away;
    (void)way_.leave_all(missed);
    pending_.reset();
    if (terms_.replicas > 1 && (!away || terms_.presence->here(member)))
      streams_.dismiss(terms_.job, member);
  }
  let_streams_go_on();  // others may read them; hold() finds none from now on
}

std::vector<std::shared_ptr<stream::SlotPool>> Consumer::pools() const {
  std::vector<std::shared_ptr<stream::SlotPool>> pools = told_.pools();
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
    told_.clear();
    leases_.clear();
  }
  for (const auto& pool : left) pool->reclaim(holder());
}

std::string Consumer::waits_for() const {
  MutexLock lock(mutex_);
  if (ended_ || leases_.size() >= terms_.credits) return {};
  const job::State at = way_plan_->schedule.locate(turn_, own_);
  if (at.epoch >= open_epochs_) {
    if (last_known_) return {};
    return "epoch " + std::to_string(at.epoch) +
           " has not been opened yet: 'spdlctl job advance' does it";
  }
  if (holds_) return "its job is being changed, and that is not on disk yet";
  if (turn_ >= limit_) return "its job changes here, and that is not on disk yet";
  if (turn_ >= granted_)
    return "where its job is must be on disk first, and the disk of state_dir takes its time";
  return way_.empty() ? std::string() : way_.front().stream->waits_for(holder());
}

bool Consumer::starves() const {
  MutexLock lock(mutex_);
  return !ended_ && leases_.size() < terms_.credits && !way_.empty() &&
         way_.front().stream->readable(holder()).batches == 0;
}

engine::Executor::Headway Consumer::headway() const {
  MutexLock lock(mutex_);
  return way_.empty() ? engine::Executor::Headway{} : way_.front().stream->headway();
}

bool Consumer::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

job::Turn Consumer::first_turn() const {
  const job::Turn oldest = plan_->schedule.record().oldest;
  return own_.empty() ? oldest : std::max(oldest, own_.front().turn);
}

job::OwnSeeks Consumer::own_in(const job::Schedule& schedule) const {
  if (own_.empty() || own_.front().turn >= schedule.record().oldest) return own_;
  return plan_->schedule.anchored(own_, released());
}

job::Turn Consumer::released() const {
  job::Turn released = turn_;
  for (const Lease& lease : leases_) {
    if (lease.seek == seek_) released = std::min(released, lease.turn);
  }
  return released;
}

void Consumer::note_waited(const delivery::WaitedNotice& notice) {
  MutexLock lock(mutex_);
  waiting_ = notice;
}

Consumer::View Consumer::view() const {
  MutexLock lock(mutex_);
  const job::Turn released = this->released();
  const job::State back = plan_->schedule.behind(released, own_);
  const job::State next = way_plan_->schedule.locate(turn_, own_);
  View view{.progress = {.sent = turn_,
                         .next = next.at(),
                         .released = released,
                         .at = back.at(),
                         .position = back.position,
                         .order = plan_->phase(back.version)->order_text()},
            .own = own_,
            .handed = handed_,
            .version = way_plan_->phase(next.version)->version(),
            .leases = static_cast<std::uint32_t>(leases_.size()),
            .ready = 0,
            .batches = batches_,
            .rows = rows_,
            .arena_bytes = 0,
            .bad_releases = bad_releases_,
            .asks = ask_at_ == job::kNoTurn && granted_ != job::kNoTurn,
            .resized_away = resized_away_,
            .waiting = waiting_};
  for (const Way::Leg& leg : way_.legs()) {
    const stream::ReadableBatches readable = leg.stream->readable(holder());
    view.ready += readable.batches;
    if (!readable.to_its_end) break;
  }
  const job::Turn may_be_sent = std::min(granted_, limit_);
  view.ready = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(view.ready, may_be_sent - std::min(may_be_sent, turn_)));
  for (const auto& pool : pools()) view.arena_bytes += pool->arena().total_bytes();
  return view;
}

void Consumer::displaced() {
  MutexLock lock(mutex_);
  // Replicas of a shard wait for each other, so none of them gets a stream of its own.
  if (ended_ || holds_ || way_.empty() || way_.front().stream->replicas() > 1) return;
  const auto parted = way_.part(shared_from_this(), turn_);
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
    if (ended_ || go_on_in_main_memory(why, stream)) return;
  }
  failed({.status = why}, stream);
}

bool Consumer::go_on_in_main_memory(const Status& why, const stream::Stream& stream) {
  const Way::Leg* const leg = way_.find(stream);
  if (leg == nullptr || !may_stay_in_main_memory(*stream.phase())) return false;
  const std::string warning = in_main_memory_text(*stream.phase(), why.message(), true);
  spdlog::warn("session {}: {}", holder(), warning);
  if (begun_) connection_->send_notice(warning);
  if (!begun_) gpu_warning_ = warning;
  way_.read_on(nullptr);
  const job::Turn refused = leg->from;
  const job::Turn from = std::max(refused, turn_);
  way_.cut(refused);
  // The new streams of a held job also wait for go_on().
  const std::uint64_t open = way_.open_epochs();
  if (holds_) way_.open_epochs(0);
  auto route = way_.route(shared_from_this(), *way_plan_, own_, from, {.extends = false});
  if (!route) {
    give_up({.status = std::move(route).error()});
    return true;
  }
  if (holds_) way_.hold(*route);
  (void)way_.adopt(*std::move(route));
  way_.open_epochs(open);
  take_up_leg();
  pump();
  return true;
}

}  // namespace spdld::session
