// SPDX-License-Identifier: Apache-2.0
#include "session/headspace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text/counted.h"
#include "session/about.h"
#include "session/gpus.h"
#include "session/job_texts.h"
#include "spdld/wire.h"

namespace spdld::session {
namespace {

constexpr std::chrono::milliseconds kLook{5};
// So long ranks are held at most, and a rank that does nothing for so long ends the measurement.
constexpr std::chrono::seconds kPatience{60};
// So many rounds in a row without a step that counts end it.
constexpr int kMostIdleRounds = 3;
// The first steps of a round are not those of a training that runs.
constexpr std::size_t kLeftOut = 2;
// A loop that stands still keeps the batches that it has; it may keep so many.
constexpr std::uint32_t kMostKept = 4;
constexpr const char* kStillGrown = "its ranks have more batches ahead than before";
constexpr const char* kShared = "another job reads the same batches";

struct TimedRank {
  SessionPtr session;
  StepTimes times;
  std::chrono::nanoseconds active_at;  // it was sent or gave back a batch, or one became ready
  Consumer::Timed seen = {};
  std::uint32_t kept = 1;  // batches that its loop never gives back while it waits
};

// A consumer that reads on a GPU reads in main memory where that is full.
bool may_leave_gpu(const JobPlan& plan) {
  return std::any_of(plan.phases.begin(), plan.phases.end(), [](const auto& phase) {
    return delivers_to_gpus(*phase.second) && may_stay_in_main_memory(*phase.second);
  });
}

// One measurement. Once it is gone, no rank is held.
class HeadspaceRun {
 public:
  HeadspaceRun(const SessionsDeps& deps, JobTable& table, Changes& changes, std::uint32_t steps,
               const Headspace::Progress& progress)
      : deps_(deps), table_(table), changes_(changes), progress_(progress), wanted_(steps) {}
  ~HeadspaceRun() { let_go(); }
  HeadspaceRun(const HeadspaceRun&) = delete;
  HeadspaceRun& operator=(const HeadspaceRun&) = delete;

  // Begins to time the ranks, unless the job is one that cannot be measured.
  Status begin(const JobPtr& job) SPDLD_EXCLUDES(table_.mutex());
  Result<HeadspaceView> measure();

 private:
  static constexpr std::uint32_t kLeast = Headspace::kLeastBatches;

  // Steps until the last epoch that is open ends; kNoTurn: that is far.
  job::Turn left() const SPDLD_REQUIRES(table_.mutex());
  // Notes how far each rank has come. False: the measurement is over, and ended_by has the reason.
  bool look();
  // Looks until `done()`. False: it is over.
  template <typename Done>
  bool wait_until(const Done& done);
  template <typename Fact>
  std::uint64_t least(const Fact& fact) const;
  std::uint64_t steps_timed() const;
  void begin_timing(std::size_t left_out);
  void end_timing();
  void look_at(TimedRank& rank);
  void gate(job::Turn until);
  bool is_at_gate(const TimedRank& rank) const { return rank.seen.turn >= until_; }
  // The rank's loop waits at the gate.
  bool is_held(const TimedRank& rank) const {
    return is_at_gate(rank) && rank.seen.leases <= rank.kept;
  }
  // Ranks have been held as long as they may be.
  bool is_due() const { return held_since_ && deps_.clock.now() - *held_since_ > kPatience; }
  void end_hold();
  bool shares_stream() const;
  // False: a stream is read by another job, too.
  bool hold_streams();
  void release_streams();
  void let_go();

  bool time_as_it_is();
  Status grow();
  // Those that the ranks have now.
  Leases::Pools slots() const;
  // Fills spares_.
  Status set_aside();
  Status with_slots(std::uint32_t prefetch);
  bool round();
  bool is_full(const TimedRank& rank) const;
  // Holds the ranks until their slots are full, or as long as they may be held; `until`: the turn
  // before which batches lie ready then.
  bool fill(job::Turn& until);
  double slowest() const;

  const SessionsDeps& deps_;
  JobTable& table_;
  Changes& changes_;
  const Headspace::Progress& progress_;
  const std::uint64_t wanted_;
  JobPtr job_;
  JobPlanPtr plan_;
  std::vector<TimedRank> ranks_;
  std::vector<SessionPtr> members_;  // those of ranks_
  // Slots as the ranks have them, and their memory on GPUs.
  struct Spare {
    std::shared_ptr<stream::SlotPool> slots;
    std::unique_ptr<delivery::DeviceArena> on_gpu;
  };
  std::vector<Spare> spares_;       // kept while the ranks have others, so that there is room then
  job::Turn left_ = job::kNoTurn;   // as of the last look
  job::Turn until_ = job::kNoTurn;  // where the gate is
  std::optional<std::chrono::nanoseconds> held_since_;  // when the first rank was held there
  int idle_rounds_ = 0;  // rounds in a row, up to the last one, in which no step counted
  std::string doing_;
  bool caller_has_gone_ = false;
  HeadspaceView view_;
};

Status HeadspaceRun::begin(const JobPtr& job) {
  MutexLock lock(table_.mutex());
  job_ = job;
  plan_ = job->state.plan;
  const std::string name = "job '" + job->key.job + "' cannot be measured: ";
  const auto refused = [&](const std::string& why) {
    return Status(Code::kFailedPrecondition, name + why);
  };
  SPDLD_TRY(table_.check_settled(*job));
  members_ = job->attached();
  if (members_.empty()) return refused("no rank is attached");
  const std::uint64_t all = std::uint64_t{job->num_shards()} * job->replicas;
  if (members_.size() < all)
    return refused(
        fmt::format("{} of its {} ranks are attached to this daemon, and the others "
                    "would be held up",
                    members_.size(), all));
  if (job->being_written) return refused("it is being changed");
  for (const SessionPtr& session : members_) {
    const Consumer::View view = session->consumer->view();
    if (view.ended) return refused(member_text(*job, session->member) + " is leaving");
    const job::State at = plan_->schedule.locate(view.progress.sent, view.own);
    if (session->consumer->gpu() != nullptr && may_leave_gpu(*plan_))
      return refused(
          "where a GPU has no room for more batches, all of them would come to lie in main memory "
          "(on_unavailable: host)");
    if (session->consumer->shares_stream())
      return refused(
          "another job reads the same batches, and would have to make them by itself from then on; "
          "measure when that job does not run");
    view_.steps_per_epoch = plan_->schedule.steps_per_epoch(at);
    if (view_.steps_per_epoch < 2)
      return refused("its epochs have one step, and steps are timed between batches of an epoch");
    view_.prefetch = std::max(view_.prefetch, view.credits);
  }
  for (const SessionPtr& session : members_)
    ranks_.push_back(
        {.session = session, .times = StepTimes(wanted_), .active_at = deps_.clock.now()});
  left_ = left();
  // They are timed twice.
  if (const std::uint64_t needed = 2 * wanted_ + kLeast; left_ < needed)
    return refused(fmt::format("{} are left of the epochs that are open, and {} are needed",
                               counted(left_, "step"), counted(needed, "step")));
  begin_timing(1);
  for (const TimedRank& rank : ranks_) rank.session->consumer->time(deps_.clock);
  view_.job = job->key.job;
  view_.pipeline = job->key.pipeline;
  view_.ranks = static_cast<std::uint32_t>(ranks_.size());
  return {};
}

job::Turn HeadspaceRun::left() const {
  const std::uint64_t open = job_->state.open_epochs;
  if (open == JobState::kNoEnd) return job::kNoTurn;
  job::Turn least = job::kNoTurn;
  for (const SessionPtr& session : members_) {
    const Consumer::View view = session->consumer->view();
    const job::State next = plan_->schedule.locate(view.progress.sent, view.own);
    const std::uint64_t epochs = open - std::min(open, next.epoch);
    if (epochs > 1u << 20) continue;
    const std::uint64_t steps = epochs * plan_->schedule.steps_per_epoch(next);
    least = std::min(least, steps - std::min(steps, next.step));
  }
  return least;
}

bool HeadspaceRun::look() {
  if (!view_.ended_by.empty()) return false;
  const std::uint64_t timed = std::min(wanted_, steps_timed());
  if (!progress_(timed, wanted_, doing_)) {
    caller_has_gone_ = true;
    view_.ended_by = "its caller has gone";
    return false;
  }
  MutexLock lock(table_.mutex());
  if (!table_.runs(job_)) {
    view_.ended_by = "the job has ended";
  } else if (job_->attached() != members_) {
    view_.ended_by = "a rank has left, or come";
  } else if (job_->state.plan != plan_) {
    view_.ended_by = "the job was changed";
  } else {
    left_ = left();
  }
  for (TimedRank& rank : ranks_) look_at(rank);
  if (view_.ended_by.empty() && shares_stream()) view_.ended_by = kShared;
  if (!held_since_ && std::any_of(ranks_.begin(), ranks_.end(),
                                  [&](const TimedRank& rank) { return is_held(rank); }))
    held_since_ = deps_.clock.now();
  return view_.ended_by.empty();
}

void HeadspaceRun::look_at(TimedRank& rank) {
  const auto now = deps_.clock.now();
  const Consumer::Timed before = std::exchange(rank.seen, rank.session->consumer->take_timed());
  for (const StepTimes::Given& given : rank.seen.given) rank.times.add(given);
  if (rank.seen.leases <= kMostKept && rank.times.stands_still(now))
    rank.kept = std::max(rank.kept, rank.seen.leases);
  if (!rank.seen.given.empty() || rank.seen.turn != before.turn ||
      rank.seen.ready != before.ready || is_held(rank))
    rank.active_at = now;
  if (!view_.ended_by.empty()) return;
  const std::string name = member_text(*job_, rank.session->member);
  if (rank.seen.over)
    view_.ended_by = name + " was led elsewhere by its loop";
  else if (now - rank.active_at > kPatience)
    view_.ended_by = fmt::format("{} did not come on for {} s", name, kPatience.count());
}

template <typename Done>
bool HeadspaceRun::wait_until(const Done& done) {
  while (look()) {
    if (done()) return true;
    std::this_thread::sleep_for(kLook);
  }
  return false;
}

template <typename Fact>
std::uint64_t HeadspaceRun::least(const Fact& fact) const {
  std::uint64_t least = job::kNoTurn;
  for (const TimedRank& rank : ranks_) least = std::min<std::uint64_t>(least, fact(rank));
  return least;
}

std::uint64_t HeadspaceRun::steps_timed() const {
  return least([](const TimedRank& rank) { return rank.times.count(); });
}

void HeadspaceRun::begin_timing(std::size_t left_out) {
  for (TimedRank& rank : ranks_) rank.times.begin(left_out);
}

void HeadspaceRun::end_timing() {
  for (TimedRank& rank : ranks_) rank.times.end();
}

void HeadspaceRun::end_hold() {
  if (!held_since_) return;
  const std::chrono::duration<double> held = deps_.clock.now() - *held_since_;
  view_.longest_hold_s = std::max(view_.longest_hold_s, held.count());
  held_since_.reset();
}

void HeadspaceRun::gate(job::Turn until) {
  end_hold();
  until_ = until;
  for (const TimedRank& rank : ranks_) rank.session->consumer->gate(until);
}

bool HeadspaceRun::shares_stream() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const TimedRank& rank) { return rank.session->consumer->shares_stream(); });
}

bool HeadspaceRun::hold_streams() {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const TimedRank& rank) { return rank.session->consumer->hold_streams(); });
}

void HeadspaceRun::release_streams() {
  for (const TimedRank& rank : ranks_) rank.session->consumer->release_streams();
}

void HeadspaceRun::let_go() {
  end_hold();
  for (const TimedRank& rank : ranks_) rank.session->consumer->end_timing();
}

double HeadspaceRun::slowest() const {
  double slowest = 0;
  for (const TimedRank& rank : ranks_)
    slowest = std::max(slowest, rank.times.typical_s().value_or(0));
  return slowest;
}

bool HeadspaceRun::time_as_it_is() {
  doing_ = "times steps as they are";
  const bool timed = wait_until([&] { return steps_timed() >= wanted_; });
  end_timing();
  view_.steps_now = steps_timed();
  if (view_.steps_now > 0) view_.now_s = slowest();
  for (TimedRank& rank : ranks_) rank.times.forget();
  return timed;
}

Leases::Pools HeadspaceRun::slots() const {
  Leases::Pools pools;
  for (const SessionPtr& session : members_) {
    for (const auto& pool : session->consumer->slots()) {
      if (std::find(pools.begin(), pools.end(), pool) == pools.end()) pools.push_back(pool);
    }
  }
  return pools;
}

// Under no lock: a driver may take any time to give memory.
Status HeadspaceRun::set_aside() {
  for (const auto& pool : slots()) {
    Spare& spare = spares_.emplace_back();
    SPDLD_ASSIGN(spare.slots, pool->another());
    if (pool->gpu() == nullptr || !pool->has_memory()) continue;
    SPDLD_ASSIGN(spare.on_gpu, pool->gpu()->allocate(pool->device_arena().total_bytes()));
  }
  return {};
}

Status HeadspaceRun::with_slots(std::uint32_t prefetch) {
  JobPlanPtr planned;
  const auto plan = [&](Change& change) SPDLD_REQUIRES(table_.mutex()) -> Status {
    Job& job = *change.job;
    if (job.state.plan != plan_ || job.attached() != members_)
      return Status(Code::kAborted, "the job was changed");
    if (shares_stream()) return Status(Code::kAborted, kShared);
    // Others must still find room.
    Leases::Pools room;
    for (const auto& pool : slots()) {
      SPDLD_ASSIGN(room.emplace_back(), pool->another(std::make_shared<stream::ByteMeter>()));
    }
    planned = change.next.plan = with_prefetch(*change.next.plan, prefetch);
    change.from = hold(job);
    // From there on batches lie in the new slots. Not before these are there: a driver may take any
    // time to give memory.
    change.on_prepared = [this, from = change.from, room = std::move(room)]() mutable {
      room.clear();
      gate(from);
    };
    return {};
  };
  const Status changed = changes_.change_job(job_, plan, Changes::Unwritten::kRefused);
  if (!changed.ok()) {
    gate(job::kNoTurn);
    return changed;
  }
  plan_ = planned;  // the job may have yet another one by now
  return {};
}

Status HeadspaceRun::grow() {
  doing_ = "looks how many batches fit";
  // No more than are needed, and never less than the job has.
  const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      wire::kMaxCredits, std::max<std::uint64_t>(wanted_ + kLeftOut + 1, view_.prefetch)));
  const std::string notice = fmt::format(
      "'spdlctl headspace' measures how fast the job trains when its data is ready: next() waits "
      "until batches lie ready for all ranks, for {} s at most, then none are made for a while; "
      "again until {} are timed. Every batch comes once and in order",
      kPatience.count(), counted(wanted_, "step"));
  for (const TimedRank& rank : ranks_) rank.session->connection->send_notice(notice);
  // A GPU that never holds so much refuses as a failed precondition.
  const auto is_short = [](const Status& status) {
    return status.code() == Code::kResourceExhausted || status.code() == Code::kFailedPrecondition;
  };
  Status refused = set_aside();
  for (std::uint32_t prefetch = refused.ok() ? std::max(most, kLeast) : 0; prefetch >= kLeast;
       prefetch = prefetch > kLeast ? std::max(prefetch / 2, kLeast) : 0) {
    refused = with_slots(prefetch);
    if (refused.ok()) {
      view_.prefetch = prefetch;
      return {};
    }
    if (!is_short(refused)) break;
  }
  view_.prefetch = 0;
  if (!is_short(refused)) return refused;
  return refused.with_context(
      fmt::format("job '{}' cannot be measured: fewer than {} batches fit for each rank",
                  job_->key.job, kLeast));
}

bool HeadspaceRun::is_full(const TimedRank& rank) const {
  if (!is_at_gate(rank)) return false;
  if (rank.seen.full && !rank.seen.making) return true;
  // A round has so many steps less than batches, and one that the loop keeps.
  const std::uint64_t lacking = wanted_ - steps_timed() + kLeftOut + 1;
  return rank.seen.ready >= std::min(std::max<std::uint64_t>(lacking, kLeast), left_) ||
         rank.seen.ready + rank.seen.leases >= view_.prefetch;
}

bool HeadspaceRun::fill(job::Turn& until) {
  doing_ = fmt::format("holds the ranks until batches lie ready, in round {}", view_.rounds + 1);
  const bool passed = wait_until([&] {
    return is_due() || std::all_of(ranks_.begin(), ranks_.end(),
                                   [&](const TimedRank& rank) { return is_full(rank); });
  });
  const std::uint64_t ready =
      least([&](const TimedRank& rank) { return is_at_gate(rank) ? rank.seen.ready : 0; });
  if (passed && left_ < kLeast) {
    view_.ended_by = "the epochs that are open end";
  } else if (passed && is_due() && ready < kLeast) {
    view_.ended_by = fmt::format("after {} s, fewer than {} batches lay ready for each rank",
                                 kPatience.count(), kLeast);
  } else if (passed && !hold_streams() && shares_stream()) {
    view_.ended_by = kShared;  // else a rank has ended, as the next look finds
  }
  const bool filled = wait_until([&] {
    return is_due() || std::none_of(ranks_.begin(), ranks_.end(),
                                    [](const TimedRank& rank) { return rank.seen.making; });
  });
  until = least([](const TimedRank& rank) { return rank.seen.turn + rank.seen.ready; });
  return filled;
}

bool HeadspaceRun::round() {
  job::Turn until = 0;
  if (!fill(until)) return false;
  ++view_.rounds;
  doing_ = fmt::format("times steps with data ready, in round {}", view_.rounds);
  begin_timing(kLeftOut);
  gate(until);
  const std::uint64_t before = steps_timed();
  const bool passed = wait_until([&] {
    return is_due() || std::all_of(ranks_.begin(), ranks_.end(),
                                   [&](const TimedRank& rank) { return is_held(rank); });
  });
  end_timing();
  release_streams();
  if (!passed) return false;
  idle_rounds_ = steps_timed() > before ? 0 : idle_rounds_ + 1;
  if (is_due() && steps_timed() < wanted_) {
    view_.ended_by = fmt::format("ranks had waited for {} s until others were through a round",
                                 kPatience.count());
  } else if (idle_rounds_ == kMostIdleRounds) {
    view_.ended_by = "its epochs have too few steps for one to be timed";
  }
  return view_.ended_by.empty();
}

Result<HeadspaceView> HeadspaceRun::measure() {
  Status refused;
  if (!time_as_it_is()) {
    view_.prefetch = 0;
  } else {
    refused = grow();
    if (refused.code() == Code::kAborted) {
      view_.ended_by = refused.message();
      refused = {};
    }
    if (refused.ok()) {
      while (view_.ended_by.empty() && steps_timed() < wanted_ && round()) continue;
      view_.steps_ready = steps_timed();
      if (view_.steps_ready > 0) view_.ready_s = slowest();
    }
  }
  let_go();
  if (!refused.ok()) return tl::unexpected<Status>(refused);
  if (caller_has_gone_) return error(Code::kCancelled, "nobody waits for the measurement");
  return view_;
}

// The job is being measured, while it lives.
class Marked {
 public:
  Marked(Headspace::Measured& measured, stream::JobTag job) : measured_(measured), job_(job) {
    MutexLock lock(measured_.mutex);
    is_first_ = measured_.jobs.insert(job_).second;
  }
  ~Marked() {
    if (!is_first_) return;
    MutexLock lock(measured_.mutex);
    measured_.jobs.erase(job_);
  }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;
  bool is_first() const { return is_first_; }

 private:
  Headspace::Measured& measured_;
  const stream::JobTag job_;
  bool is_first_ = false;
};

}  // namespace

Result<HeadspaceView> Headspace::measure(const job::Caller& caller, const JobName& name,
                                         std::uint32_t steps, const Progress& progress) {
  if (steps < kLeastSteps || steps > kMostSteps)
    return error(Code::kInvalidArgument, fmt::format("{} steps cannot be timed: it may be {} to {}",
                                                     steps, kLeastSteps, kMostSteps));
  JobPtr job;
  {
    MutexLock lock(table_.mutex());
    SPDLD_ASSIGN(job, table_.find_job(caller, name));
  }
  const Marked marked(measured_, job->tag);
  if (!marked.is_first())
    return error(Code::kFailedPrecondition, "job '" + job->key.job + "' is being measured");
  SPDLD_TRY(bring_back(job).with_context(
      "job '" + job->key.job + "' cannot be measured again: " + std::string(kStillGrown)));
  {
    MutexLock lock(measured_.mutex);
    measured_.grown.emplace(job->tag, job);
  }
  auto measured = [&]() -> Result<HeadspaceView> {
    HeadspaceRun run(deps_, table_, changes_, steps, progress);
    SPDLD_TRY(run.begin(job));
    log::info(about(job->key, caller.uid), "job '{}' is measured with its data ready: {}",
              job->key.job, counted(steps, "step"));
    return run.measure();
  }();
  if (const Status back = bring_back(job); !back.ok()) {
    const std::string warning = fmt::format("{}: {}", kStillGrown, back.message());
    log::error(about(job->key), "job '{}': {}", job->key.job, warning);
    if (measured) measured->warning = warning;
  }
  if (measured) {
    log::info(about(job->key, caller.uid), "job '{}' was measured: {} of its steps, {} held{}{}",
              job->key.job, measured->steps_ready, counted(measured->rounds, "time"),
              measured->ended_by.empty() ? "" : "; ended early: ", measured->ended_by);
  }
  return measured;
}

Status Headspace::bring_back(const JobPtr& job) {
  const auto has_it = [&]() SPDLD_REQUIRES(table_.mutex()) {
    return has_prefetch(*job->state.plan, job->state.limits.prefetch.value_or(0));
  };
  const auto is_back = [&] {
    MutexLock lock(table_.mutex());
    return !table_.runs(job) || has_it();
  };
  const auto plan = [&](Change& change) SPDLD_REQUIRES(table_.mutex()) -> Status {
    if (has_it()) return Status(Code::kAborted, "there is nothing to change");
    change.next.plan = with_prefetch(*change.next.plan, change.next.limits.prefetch.value_or(0));
    change.from = hold(*change.job);
    return {};
  };
  Status changed;
  if (!is_back()) {
    streams_.drop_ended();  // they hold slots
    changed = changes_.change_job(job, plan, Changes::Unwritten::kCounts);
  }
  if (!is_back()) return changed;  // where it is, a broken disk may have been told
  MutexLock lock(measured_.mutex);
  measured_.grown.erase(job->tag);
  return {};
}

void Headspace::tick(JobQueues& queues) {
  std::vector<JobPtr> due;
  {
    MutexLock lock(measured_.mutex);
    std::erase_if(measured_.grown, [&](const auto& grown) SPDLD_REQUIRES(measured_.mutex) {
      if (measured_.jobs.contains(grown.first)) return false;
      due.push_back(grown.second);
      return true;
    });
  }
  for (const JobPtr& job : due) {
    const auto keep = [this, job] {
      MutexLock lock(measured_.mutex);
      measured_.grown.emplace(job->tag, job);
    };
    const Status posted = queues.post(job->key, [this, job, keep] {
      if (!bring_back(job).ok()) keep();
    });
    if (!posted.ok()) keep();
  }
}

}  // namespace spdld::session
