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
// A round goes on after so long with what lies ready, and a rank that has not moved for so long
// ends the measurement.
constexpr std::chrono::seconds kPatience{60};
// The first steps of a round are not those of a training that runs.
constexpr std::size_t kLeftOut = 2;
// A loop that stands still keeps the batches that it has; it may keep so many.
constexpr std::uint32_t kMostKept = 4;

struct TimedRank {
  SessionPtr session;
  StepTimes times;
  Consumer::Timed seen = {};
  std::uint64_t given = 0;  // batches so far
  std::uint32_t kept = 1;   // batches that its loop never gives back while it waits
};

// One measurement. Once it is gone, no rank is held.
class HeadspaceRun {
 public:
  HeadspaceRun(const SessionsDeps& deps, stream::Streams& streams, JobTable& table,
               Changes& changes, std::uint32_t steps, const Headspace::Progress& progress)
      : deps_(deps),
        streams_(streams),
        table_(table),
        changes_(changes),
        progress_(progress),
        wanted_(steps) {}
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
  // Takes down what the ranks have done. False: the measurement is over, for the reason ended_by.
  bool look();
  // Looks until `done()`. False: it is over.
  template <typename Done>
  bool wait_until(const Done& done);
  template <typename Fact>
  std::uint64_t least(const Fact& fact) const;
  std::uint64_t steps_timed() const;
  void begin_timing(std::size_t left_out);
  void end_timing();
  bool stands_still(TimedRank& rank) const;
  void gate(job::Turn until);
  // False: a stream is another job's, too.
  bool make_no_further();
  void make_further();
  void let_go();

  bool time_as_it_is();
  Status grow();
  Status with_slots(std::uint32_t prefetch);
  bool round();
  // Holds the ranks until their slots are full; `until`: the turn before which batches lie ready.
  bool fill(job::Turn& until);
  void shrink();
  double slowest() const;

  const SessionsDeps& deps_;
  stream::Streams& streams_;
  JobTable& table_;
  Changes& changes_;
  const Headspace::Progress& progress_;
  const std::uint64_t wanted_;
  JobPtr job_;
  JobPlanPtr plan_;
  std::vector<TimedRank> ranks_;
  std::vector<SessionPtr> members_;  // those of ranks_
  Leases::Pools before_;  // the slots that ranks had: kept, so that there is room for them again
  job::Turn left_ = job::kNoTurn;  // as of the last look
  std::uint64_t moves_ = 0;        // what the ranks had done by then
  std::chrono::nanoseconds moved_at_{0};
  std::string doing_;
  bool wanted_no_more_ = false;
  bool grown_ = false;
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
    const pipeline::Phase& phase = *plan_->phase(at.version);
    if (!view.gpu.empty() && may_stay_in_main_memory(phase))
      return refused(
          "where its GPU has no room for more batches, all of them would come to lie in main "
          "memory "
          "(on_unavailable: host)");
    view_.steps_per_epoch = plan_->schedule.steps_per_epoch(at);
    view_.prefetch = std::max(view_.prefetch, view.credits);
  }
  for (const SessionPtr& session : members_)
    ranks_.push_back({.session = session, .times = StepTimes(wanted_)});
  left_ = left();
  if (left_ < wanted_ + kLeast)
    return refused(fmt::format("{} are left of the epochs that are open, and {} are to be timed",
                               counted(left_, "step"), counted(wanted_, "step")));
  begin_timing(1);
  for (const TimedRank& rank : ranks_) rank.session->consumer->time(deps_.clock);
  view_.job = job->key.job;
  view_.pipeline = job->key.pipeline;
  view_.ranks = static_cast<std::uint32_t>(ranks_.size());
  moved_at_ = deps_.clock.now();
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
    wanted_no_more_ = true;
    view_.ended_by = "its caller has gone";
    return false;
  }
  std::uint64_t moves = 0;
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
  for (TimedRank& rank : ranks_) {
    rank.seen = rank.session->consumer->take_timed();
    for (const StepTimes::Given& given : rank.seen.given) rank.times.add(given);
    rank.given += rank.seen.given.size();
    moves += rank.given + rank.seen.turn + rank.seen.ready;
    if (rank.seen.over && view_.ended_by.empty())
      view_.ended_by = member_text(*job_, rank.session->member) + " was led elsewhere by its loop";
  }
  if (std::exchange(moves_, moves) != moves) moved_at_ = deps_.clock.now();
  if (view_.ended_by.empty() && deps_.clock.now() - moved_at_ > kPatience)
    view_.ended_by =
        fmt::format("no rank came on for {} s, while it {}", kPatience.count(), doing_);
  return view_.ended_by.empty();
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

bool HeadspaceRun::stands_still(TimedRank& rank) const {
  if (rank.seen.leases > kMostKept || !rank.times.stands_still(deps_.clock.now())) return false;
  rank.kept = rank.seen.leases;
  return true;
}

void HeadspaceRun::gate(job::Turn until) {
  for (const TimedRank& rank : ranks_) rank.session->consumer->gate(until);
}

bool HeadspaceRun::make_no_further() {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const TimedRank& rank) {
    return rank.session->consumer->make_no_further();
  });
}

void HeadspaceRun::make_further() {
  for (const TimedRank& rank : ranks_) rank.session->consumer->make_further();
}

void HeadspaceRun::let_go() {
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
  for (TimedRank& rank : ranks_) rank.times = StepTimes(wanted_);
  return timed;
}

Status HeadspaceRun::with_slots(std::uint32_t prefetch) {
  const auto plan = [&](Change& change) SPDLD_REQUIRES(table_.mutex()) -> Status {
    Job& job = *change.job;
    if (job.state.plan != plan_ || job.attached() != members_)
      return Status(Code::kAborted, "the job was changed");
    before_.clear();
    for (const SessionPtr& session : members_) {
      for (auto& slots : session->consumer->slots()) before_.push_back(std::move(slots));
    }
    change.next.plan = with_prefetch(*change.next.plan, prefetch);
    change.from = hold(job);
    // From there on batches lie in the new slots. Not before these are there: a driver may take any
    // time to give memory.
    change.on_prepared = [this, from = change.from] { gate(from); };
    return {};
  };
  const Status changed = changes_.change_job(job_, plan, Changes::Unwritten::kRefused);
  if (!changed.ok()) {
    gate(job::kNoTurn);
    return changed;
  }
  MutexLock lock(table_.mutex());
  plan_ = job_->state.plan;
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
  Status refused;
  for (std::uint32_t prefetch = std::max(most, kLeast); prefetch >= kLeast;
       prefetch = prefetch > kLeast ? std::max(prefetch / 2, kLeast) : 0) {
    refused = with_slots(prefetch);
    if (refused.ok()) {
      view_.prefetch = prefetch;
      grown_ = true;
      return {};
    }
    if (refused.code() != Code::kResourceExhausted) return refused;
  }
  return refused.with_context(
      fmt::format("job '{}' cannot be measured: fewer than {} batches fit for each rank",
                  job_->key.job, kLeast));
}

bool HeadspaceRun::fill(job::Turn& until) {
  doing_ = fmt::format("holds the ranks until batches lie ready, in round {}", view_.rounds + 1);
  const std::uint64_t lacking = wanted_ - std::min(wanted_, steps_timed());
  const auto began = deps_.clock.now();
  const auto full = [&] {
    const std::uint64_t held =
        least([](const TimedRank& rank) { return rank.seen.ready + rank.seen.leases; });
    if (held >= std::min({std::uint64_t{view_.prefetch}, lacking + kLeftOut + 1, left_}))
      return true;
    return deps_.clock.now() - began > kPatience &&
           least([](const TimedRank& rank) { return rank.seen.ready; }) >= kLeast;
  };
  const bool filled = wait_until(full);
  if (filled && left_ < kLeast) {
    view_.ended_by = "the epochs that are open end";
  } else if (filled && !make_no_further()) {
    view_.ended_by = "another job reads the same batches";
  }
  const auto nothing_made = [&] {
    return std::none_of(ranks_.begin(), ranks_.end(),
                        [](const TimedRank& rank) { return rank.seen.making; });
  };
  const bool ready = wait_until(nothing_made);
  view_.longest_hold_s = std::max(view_.longest_hold_s,
                                  std::chrono::duration<double>(deps_.clock.now() - began).count());
  until = least([](const TimedRank& rank) { return rank.seen.turn + rank.seen.ready; });
  return ready;
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
    bool all = true;
    for (TimedRank& rank : ranks_) {
      const bool through = rank.seen.turn >= until && rank.seen.leases <= rank.kept;
      all = (through || stands_still(rank)) && all;
    }
    return all;
  });
  end_timing();
  make_further();
  if (!passed) return false;
  if (steps_timed() == before) view_.ended_by = "its epochs have too few steps for one to be timed";
  return view_.ended_by.empty();
}

// Whatever has happened meanwhile.
void HeadspaceRun::shrink() {
  const Status nothing(Code::kAborted, "there is nothing to change");
  const auto plan = [&](Change& change) SPDLD_REQUIRES(table_.mutex()) -> Status {
    Job& job = *change.job;
    const std::uint32_t prefetch = job.state.limits.prefetch.value_or(0);
    const auto& phases = change.next.plan->phases;
    if (std::all_of(phases.begin(), phases.end(),
                    [&](const auto& phase) { return phase.second->prefetch == prefetch; }))
      return nothing;
    change.next.plan = with_prefetch(*change.next.plan, prefetch);
    change.from = hold(job);
    before_.clear();
    return {};
  };
  streams_.drop_ended();  // those that were made in the slots of before hold these, too
  const Status changed = changes_.change_job(job_, plan, Changes::Unwritten::kCounts);
  if (changed.ok() || changed.code() == Code::kAborted) return;
  MutexLock lock(table_.mutex());
  if (!table_.runs(job_)) return;
  view_.warning =
      fmt::format("its ranks still have {} batches ahead: {}", view_.prefetch, changed.message());
  log::error(about(job_->key), "job '{}': {}", job_->key.job, view_.warning);
}

Result<HeadspaceView> HeadspaceRun::measure() {
  Status refused;
  if (time_as_it_is()) {
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
  if (grown_) {
    shrink();
  } else {
    view_.prefetch = 0;
  }
  if (!refused.ok()) return tl::unexpected<Status>(refused);
  if (wanted_no_more_) return error(Code::kCancelled, "nobody waits for the measurement");
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
  const auto measured = [&]() -> Result<HeadspaceView> {
    HeadspaceRun run(deps_, streams_, table_, changes_, steps, progress);
    SPDLD_TRY(run.begin(job));
    log::info(about(job->key, caller.uid), "job '{}' is measured with its data ready: {}",
              job->key.job, counted(steps, "step"));
    return run.measure();
  }();
  if (measured) {
    log::info(about(job->key, caller.uid), "job '{}' was measured: {} of its steps, {} held{}{}",
              job->key.job, measured->steps_ready, counted(measured->rounds, "time"),
              measured->ended_by.empty() ? "" : "; ended early: ", measured->ended_by);
  }
  return measured;
}

}  // namespace spdld::session
