// SPDX-License-Identifier: Apache-2.0
// What operators do to jobs and sessions: the part of Sessions behind SessionService.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/counted.h"
#include "base/log.h"
#include "session/about.h"
#include "session/records.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

Status beyond_its_end(const Job& job) {
  return Status(Code::kOutOfRange, "job '" + job.key.job + "' ends with epoch " +
                                       std::to_string(job.max_epochs - 1) +
                                       ", as it was created, and cannot be made longer: create "
                                       "another one with more (--max-epochs), and start its ranks "
                                       "from a saved state");
}

// Of how many shards each step of the job can be, whatever comes after a resize.
std::uint64_t most_shards(const Timeline& timeline) {
  std::uint64_t most = kMaxShards;
  for (const Timeline::Cut& cut : timeline.cuts()) {
    if (cut.phase->tail == Tail::kDrop) most = std::min(most, cut.phase->items / cut.phase->batch);
  }
  return most;
}

std::string name_of(const Job& job, Member member) {
  return (job.replicas > 1 ? "replica " + std::to_string(member.replica) + " of " : "") + "shard " +
         std::to_string(member.shard);
}

// Whom a replica waits for.
std::string away_text(const Job& job, Member member) {
  if (job.absent == AbsentReplica::kGoOn) return {};
  const std::vector<Member> done = job.roll->done();
  for (std::uint32_t replica = 0; replica < job.replicas; ++replica) {
    const Member other{member.shard, replica};
    if (!job.has_consumer(other) && std::find(done.begin(), done.end(), other) == done.end())
      return "; " + name_of(job, other) + " is away, and is waited for: start it again";
  }
  return {};
}

Status check_weight(double weight) {
  constexpr double kMaxWeight = 1000;
  if (weight >= 1 / kMaxWeight && weight <= kMaxWeight) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("a weight of {:g} is not between 0.001 and 1000", weight));
}

}  // namespace

void Sessions::limits_changed(const Job& job) {
  job.meter->set_limit(job.limits.bytes.value_or(0));
  streams_.set_limits(job.tag, {.weight = job.limits.weight,
                                .workers = static_cast<int>(job.limits.cpus.value_or(0))});
}

std::chrono::seconds Sessions::come_back_s() const {
  const auto since = deps_.clock.now() - started_;
  return std::chrono::ceil<std::chrono::seconds>(
      std::max<std::chrono::nanoseconds>(kComeBack - since, std::chrono::nanoseconds(0)));
}

bool Sessions::awaits(const Job& job) const {
  return !job.awaited.empty() && come_back_s().count() > 0;
}

Status Sessions::check_settled(const Job& job) const {
  if (job.tuning != nullptr)
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job +
                      "' is about to be tuned: an apply has been prepared; try again once it is "
                      "committed or aborted");
  if (job.pending)
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job + "' is about to change its pipeline at " +
                      place_text(job.pending->from) +
                      ": an apply has been prepared; try again once it is committed or aborted");
  if (awaits(job))
    return Status(Code::kUnavailable,
                  "job '" + job.key.job + "': " + name_of(job, *job.awaited.begin()) +
                      " was read when the daemon stopped and has not come back yet; try again "
                      "once it is attached, or in " +
                      std::to_string(come_back_s().count()) +
                      " s, when it is no longer waited for");
  if (const SessionPtr behind = yet_to_jump(job)) {
    const StepAt from = behind->consumer->jumps_at().value_or(StepAt{});
    return Status(Code::kUnavailable,
                  "job '" + job.key.job + "': " + name_of(job, behind->member) + " reads on to " +
                      place_text(from) +
                      ", where the last seek takes it elsewhere; try again once it is there" +
                      away_text(job, behind->member));
  }
  return {};
}

SessionPtr Sessions::yet_to_jump(const Job& job) {
  for (const auto& [member, session] : job.members) {
    if (session->consumer != nullptr && session->consumer->jumps_at()) return session;
  }
  return nullptr;
}

StepAt Sessions::hold(Job& job) {
  StepAt begun;
  Consumer* furthest = nullptr;
  for (const auto& [member, session] : job.members) {
    if (session->consumer == nullptr || session->consumer->ended()) continue;
    const StepAt of_this = session->consumer->hold();
    if (furthest == nullptr || of_this > begun) furthest = session->consumer.get();
    begun = std::max(begun, of_this);
  }
  // A cursor from another world or batch size cuts the epoch as the job itself does not. Where the
  // job cannot follow, it changes with the next epoch.
  if (furthest != nullptr) {
    Timeline timeline = furthest->timeline();
    if (timeline.gapless()) job.timeline = std::move(timeline);
  }
  // Who is here no more was given steps, too.
  job.note_frontiers();
  job.frontiers.raise(job.timeline.settled(begun));
  StepAt frontier = std::max(begun, job.frontiers.furthest().value_or(StepAt{}));
  // Who is yet to come begins there.
  if (!job.all_seen()) frontier = std::max(frontier, job.start);
  return job.timeline.settled(frontier);
}

void Sessions::go_on(const Job& job) {
  for (const auto& [member, session] : job.members) {
    if (session->consumer != nullptr) session->consumer->go_on();
  }
}

Result<JobView> Sessions::create_job(const Caller& caller, const JobRequest& request,
                                     const Catalogue::Progress& progress) {
  SPDLD_TRY(check_world(request.num_shards, request.replicas));
  SPDLD_TRY(check_weight(request.limits.weight));
  if (request.job.empty())
    return error(Code::kInvalidArgument, "a job needs a name, by which its ranks attach to it");
  SPDLD_ASSIGN(const PipelinePtr base, deps_.catalogue.named(caller.uid, request.pipeline));
  SPDLD_ASSIGN(const PipelinePtr pipeline,
               deps_.catalogue.variant(base, request.vars, request.batch_size, caller, progress));
  const JobKey key{.uid = caller.uid, .job = request.job, .pipeline = pipeline->id()};

  MutexLock writing(records_);
  MutexLock lock(mutex_);
  if (jobs_.contains(key))
    return error(Code::kAlreadyExists, "job '" + key.job + "' on pipeline '" + key.pipeline +
                                           "' is there already: 'spdlctl delete job " + key.job +
                                           "' removes it");
  SPDLD_TRY(check_room_for_job(key.uid));
  SPDLD_ASSIGN(const JobPtr job,
               make_job(key, pipeline, request.seed.value_or(pipeline->plan->spec.seed),
                        request.num_shards, false));
  job->declared = true;
  job->replicas = request.replicas;
  job->limits = request.limits;
  job->vars = request.vars;
  job->first_vars = request.vars;
  job->batch_size = request.batch_size;
  job->epochs = request.epochs;
  job->max_epochs = request.max_epochs;
  if (request.epochs == EpochMode::kManual) {
    job->open_epochs = 1;
  } else if (request.max_epochs > 0) {
    job->open_epochs = request.max_epochs;
  }
  // What a job of that name, declared or not, left behind is none of its business.
  StoredJob record = job->stored();
  record.kept_unix_ms = job->recorded_unix_ms = unix_ms();
  SPDLD_TRY(deps_.store.put_new_job(record));
  job->frontiers.kept(record.frontiers);
  job->record_is_old = false;
  forget_ended(key);
  broken_.erase(key);
  jobs_[key] = job;
  limits_changed(*job);
  log::info(about(key, caller.uid), "job '{}' on pipeline '{}' created for uid {}: {}, {} epochs",
            key.job, key.pipeline, caller.uid, counted(request.num_shards, "shard"),
            request.epochs == EpochMode::kManual ? "manual" : "automatic");
  return job->view();
}

Result<JobView> Sessions::job(const Caller& caller, const JobName& name) const {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr found, find_job(caller, name));
  return found->view();
}

std::vector<JobView> Sessions::jobs(const Caller& caller) const {
  MutexLock lock(mutex_);
  std::vector<JobView> views;
  for (const auto& [key, job] : jobs_) {
    if (visible(caller, *job)) views.push_back(job->view());
  }
  return views;
}

Result<JobView> Sessions::advance_epoch(const Caller& caller, const JobName& name,
                                        std::optional<std::uint64_t> to) {
  MutexLock writing(records_);
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  if (job->epochs != EpochMode::kManual)
    return error(Code::kFailedPrecondition, "job '" + job->key.job +
                                                "' goes on to the next epoch by itself; create it "
                                                "with manual epochs to say when");
  const std::uint64_t open = to ? *to + 1 : job->open_epochs + 1;
  if (to && open < job->open_epochs)
    return error(Code::kOutOfRange, "epoch " + std::to_string(*to) + " of job '" + job->key.job +
                                        "' lies behind: epoch " +
                                        std::to_string(job->open_epochs - 1) + " is open");
  if (job->max_epochs > 0 && open > job->max_epochs)
    return tl::unexpected<Status>(beyond_its_end(*job));
  const std::uint64_t before = std::exchange(job->open_epochs, open);
  if (Status kept = keep_now(*job); !kept.ok()) {
    job->open_epochs = before;
    return tl::unexpected<Status>(kept);
  }
  for (const auto& [member, session] : job->members) {
    if (session->consumer != nullptr) session->consumer->open_epochs(open, job->last_known());
  }
  return job->view();
}

Result<JobView> Sessions::seek_job(const Caller& caller, const JobName& name, StepAt to) {
  MutexLock writing(records_);
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  SPDLD_TRY(check_settled(*job));
  SPDLD_TRY(job->timeline.check(to, 0));
  if (job->max_epochs > 0 && to.epoch >= job->max_epochs)
    return tl::unexpected<Status>(beyond_its_end(*job));
  const std::uint64_t end_step = job->timeline.end_step(to.epoch);
  if (to.step > end_step)
    return error(Code::kOutOfRange, "epoch " + std::to_string(to.epoch) + " of job '" +
                                        job->key.job + "' has " + counted(end_step, "step") +
                                        "; there is no step " + std::to_string(to.step));
  // All shards take the same steps before: up to the first one that none has begun.
  job->settle_moves();
  if (job->moves.size() == Job::kMostMoves)
    return error(Code::kFailedPrecondition,
                 "job '" + job->key.job + "' was sought " + std::to_string(Job::kMostMoves) +
                     " times already since all its ranks have read a batch: start those that are "
                     "away again, or wait");
  const StepAt from = hold(*job);
  const std::uint32_t number = ++job->move_count;
  job->moves.push_back(
      {.number = number, .after = job->last_move, .from = from, .to = to, .before = job->timeline});
  const StepAt start_before = std::exchange(job->start, to);
  const Frontiers frontiers_before = job->frontiers;
  job->frontiers.go_to(to);
  job->timeline.redeal(to, job->timeline.position_of(to));
  const Job::Acknowledged there{.at = to, .position = job->timeline.position_of(to)};
  if (Status kept = keep_now(*job, there); !kept.ok()) {
    job->start = start_before;
    job->frontiers = frontiers_before;
    job->timeline = job->moves.back().before;
    job->moves.pop_back();
    go_on(*job);
    return tl::unexpected<Status>(kept);
  }
  for (auto& [member, was] : job->left)
    was = {.next = to,
           .acked = to,
           .acked_position = there.position,
           .moves = was.moves,
           .done = was.done};
  job->last_move = number;
  job->awaited.clear();
  job->rewind_ledger(there);
  for (const auto& [member, session] : job->members) {
    if (session->consumer == nullptr) continue;
    session->consumer->jump({.from = from, .to = to, .timeline = job->timeline, .moves = number});
  }
  go_on(*job);
  log::info(about(job->key), "job '{}' goes on at {} instead of {}", job->key.job, place_text(to),
            place_text(from));
  return job->view();
}

Result<JobView> Sessions::deal_anew(const JobPtr& job, std::uint32_t num_shards,
                                    std::uint64_t skip) {
  SPDLD_TRY(check_settled(*job));
  // From the first step that no shard has begun: held still until all know.
  const StepAt from = hold(*job);
  const std::uint64_t end = job->timeline.end_step(from.epoch);
  const std::uint64_t left_out = std::min(skip, end - std::min(end, from.step));
  const std::uint64_t position = job->timeline.position_of({from.epoch, from.step + left_out});
  // What was left out at this very step before stays so.
  const std::uint64_t all_left_out = left_out + job->timeline.left_out_at(from);
  Timeline before = job->timeline;
  const bool grows = num_shards > job->timeline.num_shards();
  job->timeline.resize(from, position, num_shards, all_left_out);
  job->frontiers.raise(from);
  Status kept = keep_now(*job);
  if (kept.ok()) {
    job->forget_old_cuts();
  } else {
    job->timeline = std::move(before);
  }
  if (kept.ok() && grows) {
    job->began = deps_.clock.now();  // the new ones are yet to come
    job->gathered = false;
  }
  for (const auto& [member, session] : job->members) {
    if (!kept.ok() || session->consumer == nullptr) continue;
    if (Status dealt = session->consumer->resize(from, position, num_shards, all_left_out);
        !dealt.ok())
      session->connection->fail(dealt);
  }
  go_on(*job);
  if (!kept.ok()) return tl::unexpected<Status>(kept);
  log::info(about(job->key), "job '{}' has {} from {} on, which begins at position {}",
            job->key.job, counted(num_shards, "shard"), place_text(from), position);
  return job->view();
}

Result<JobView> Sessions::resize_job(const Caller& caller, const JobName& name,
                                     std::uint32_t num_shards) {
  MutexLock writing(records_);
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  SPDLD_TRY(check_world(num_shards, job->replicas));
  if (num_shards == job->timeline.num_shards()) return job->view();
  SPDLD_TRY(check_settled(*job));
  job->settle_moves();
  // Who has yet to go along with a move reads on in the world that was before it.
  if (!job->moves.empty() && !job->members.empty())
    return error(Code::kUnavailable,
                 "job '" + job->key.job +
                     "': not every rank has given back a batch from behind the last seek; try "
                     "again once it has, and start again who is away");
  for (const Timeline::Cut& cut : job->timeline.cuts()) {
    if (Timeline(cut.phase, num_shards).steps_per_epoch({}) > 0) continue;
    return error(Code::kFailedPrecondition,
                 counted(cut.phase->items, "item") + " make no step of " +
                     counted(num_shards, "shard") + " with batches of " +
                     std::to_string(cut.phase->batch) + ": job '" + job->key.job +
                     "' can have at most " + counted(most_shards(job->timeline), "shard") +
                     ", or more with 'batch: {last: pad}'");
  }
  const auto moves_before = std::exchange(job->moves, {});
  auto dealt = deal_anew(job, num_shards, 0);
  if (!dealt) job->moves = moves_before;
  return dealt;
}

Result<JobView> Sessions::skip_steps(const Caller& caller, const JobName& name,
                                     std::uint64_t steps) {
  MutexLock writing(records_);
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  return deal_anew(job, job->timeline.num_shards(), steps);
}

Result<JobView> Sessions::limit_job(const Caller& caller, const JobName& name,
                                    const LimitChange& change) {
  if (change.weight) SPDLD_TRY(check_weight(*change.weight));
  MutexLock writing(records_);
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(const JobPtr job, find_job(caller, name));
  const JobLimits before = job->limits;
  if (change.weight) job->limits.weight = *change.weight;
  if (change.cpus) job->limits.cpus = change.cpus;
  if (job->limits.cpus == 0U) job->limits.cpus.reset();
  if (change.bytes) job->limits.bytes = change.bytes;
  if (job->limits.bytes == std::uint64_t{0}) job->limits.bytes.reset();
  if (Status kept = keep_now(*job); !kept.ok()) {
    job->limits = before;
    return tl::unexpected<Status>(kept);
  }
  limits_changed(*job);
  return job->view();
}

Result<DeletedJob> Sessions::delete_job(const Caller& caller, const JobName& name) {
  MutexLock writing(records_);
  MutexLock lock(mutex_);
  std::vector<JobKey> broken;
  for (const auto& [key, why] : broken_) broken.push_back(key);
  SPDLD_ASSIGN(const std::optional<JobKey> rests, meant(caller, name, std::move(broken)));
  if (rests) {
    SPDLD_TRY(deps_.store.remove_job(*rests));
    log::info(about(*rests, caller.uid),
              "job '{}' on pipeline '{}', which could not go on, deleted by uid {}", rests->job,
              rests->pipeline, caller.uid);
    broken_.erase(*rests);
    return DeletedJob{};
  }
  const auto found = find_job(caller, name);
  if (!found && found.error().code() == Code::kNotFound) {
    SPDLD_ASSIGN(const bool forgotten, forget_job(caller, name));
    if (forgotten) return DeletedJob{.had_ended = true};
  }
  if (!found) return tl::unexpected<Status>(found.error());
  const JobPtr& job = *found;
  if (!job->is_private) SPDLD_TRY(deps_.store.remove_job(job->key));
  forget_ended(job->key);
  for (const auto& [member, session] : job->members) {
    session->parting = "its job was deleted by uid " + std::to_string(caller.uid);
    session->connection->bye(
        wire::ByeReason::kJobDeleted,
        "job '" + job->key.job + "' was deleted by uid " + std::to_string(caller.uid));
  }
  job->members.clear();
  streams_.forget(job->tag);
  log::info(about(job->key, caller.uid), "job '{}' on pipeline '{}' deleted by uid {}",
            job->key.job, job->key.pipeline, caller.uid);
  jobs_.erase(job->key);
  return DeletedJob{};
}

Status Sessions::evict(const Caller& caller, std::uint64_t id, const std::string& reason) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second->closed || found->second->job == nullptr ||
      !visible(caller, *found->second->job))
    return Status(Code::kNotFound, "there is no session " + std::to_string(id) + " that uid " +
                                       std::to_string(caller.uid) +
                                       " may end; 'spdlctl get sessions' lists what there is");
  const std::string by =
      "uid " + std::to_string(caller.uid) + (reason.empty() ? "" : ": " + reason);
  found->second->parting = "evicted by " + by;
  found->second->connection->bye(wire::ByeReason::kEvicted, "ended by " + by);
  leave(found->second);
  return {};
}

}  // namespace spdld::session
