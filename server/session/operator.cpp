// SPDX-License-Identifier: Apache-2.0
#include "session/operator.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text/counted.h"
#include "engine/explain.h"
#include "session/about.h"
#include "session/job_records.h"
#include "session/job_texts.h"
#include "session/reports.h"
#include "stream/span.h"

namespace spdld::session {
namespace {

Status check_weight(double weight) {
  if (job::is_weight(weight)) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("a weight of {:g} is not between 0.001 and 1000", weight));
}

// The most shards that the job can be resized to: each step of each of its versions can have them.
std::uint64_t most_shards(const Job& job) {
  std::uint64_t most = kMaxShards;
  for (const auto& [version, phase] : job.state.plan->phases) {
    if (phase->tail == Tail::kDrop) most = std::min(most, phase->rows() / phase->batch);
  }
  return most;
}

}  // namespace

Result<job::JobView> Operator::create_job(const job::Caller& caller, const JobRequest& request,
                                          const pipeline::Catalogue::Progress& progress) {
  SPDLD_TRY(check_world(request.num_shards, request.replicas));
  SPDLD_TRY(check_weight(request.limits.weight));
  if (request.job.empty())
    return error(Code::kInvalidArgument, "a job needs a name, by which its ranks attach to it");
  SPDLD_TRY(check_job_name(request.job));
  SPDLD_TRY(drain_.check_create(request.job));
  SPDLD_ASSIGN(const pipeline::PipelinePtr base,
               deps_.pipelines.named(caller.uid, request.pipeline));
  const pipeline::Variation variation{
      .vars = request.vars, .batch_size = request.batch_size, .reader = caller};
  SPDLD_ASSIGN(const pipeline::PipelinePtr pipeline,
               deps_.catalogue.variant(base, variation, progress));
  const job::JobKey key{.uid = caller.uid, .job = request.job, .pipeline = pipeline->id()};

  MutexLock writing(table_.records());
  SPDLD_TRY(drain_.check_create(request.job));  // it may have been drained amid the listing
  KeptFailures failures = records_.kept_failures(key);
  JobPtr job;
  store::StoredJob record;
  {
    MutexLock lock(table_.mutex());
    if (table_.jobs().contains(key))
      return error(Code::kAlreadyExists, "job '" + key.job + "' on pipeline '" +
                                             deps_.pipelines.name_for(caller.uid, key.pipeline) +
                                             "' is there already: 'spdlctl delete job " + key.job +
                                             "' removes it");
    SPDLD_TRY(table_.check_room_for_job(key.uid));
    SPDLD_ASSIGN(job,
                 records_.make_job(key, pipeline, request.seed.value_or(pipeline->plan->spec.seed),
                                   request.num_shards, false, std::move(failures)));
    job->declared = true;
    job->replicas = request.replicas;
    job->state.limits = job->first_limits = request.limits;
    job->state.vars = request.vars;
    job->first_vars = request.vars;
    job->batch_size = request.batch_size;
    job->epochs = request.epochs;
    job->max_epochs = request.max_epochs;
    if (request.epochs == job::EpochMode::kManual) {
      job->state.open_epochs = 1;
    } else if (request.max_epochs > 0) {
      job->state.open_epochs = request.max_epochs;
    }
    job->being_written = true;
    table_.jobs()[key] = job;
    record = stored_job(*job);
  }
  // The new job's record replaces that of an earlier job of the same name, declared or not.
  record.kept_unix_ms = unix_ms();
  const Status kept = deps_.store.put_new_job(record);

  MutexLock lock(table_.mutex());
  table_.end_write(*job);
  if (!kept.ok()) {
    table_.drop_job(job);
    return tl::unexpected<Status>(kept);
  }
  job->record.unix_ms = record.kept_unix_ms;
  job->membership.kept(record.reserved);
  job->record.is_old = false;
  table_.ended().forget(key);
  table_.broken().erase(key);
  table_.limits_changed(*job);
  log::info(about(key, caller.uid), "job '{}' on pipeline '{}' created for uid {}: {}, {} epochs",
            key.job, key.pipeline, caller.uid, counted(request.num_shards, "shard"),
            request.epochs == job::EpochMode::kManual ? "manual" : "automatic");
  return view_of(*job);
}

Result<job::JobView> Operator::advance_epoch(const job::Caller& caller, const JobName& name,
                                             std::optional<std::uint64_t> to) {
  const auto plan = [&](Change& change) -> Status {
    const Job& job = *change.job;
    const std::uint64_t before = job.state.open_epochs;
    if (job.epochs != job::EpochMode::kManual)
      return Status(Code::kFailedPrecondition,
                    "job '" + job.key.job +
                        "' goes on to the next epoch by itself; create it with manual epochs to "
                        "say when");
    const std::uint64_t open = to ? *to + 1 : before + 1;
    if (to && open < before)
      return Status(Code::kOutOfRange, "epoch " + std::to_string(*to) + " of job '" + job.key.job +
                                           "' lies behind: epoch " + std::to_string(before - 1) +
                                           " is open");
    if (job.max_epochs > 0 && open > job.max_epochs) return beyond_its_end(job);
    change.next.open_epochs = open;
    return {};
  };
  SPDLD_ASSIGN(const JobPtr job, changes_.change_job(caller, name, plan));
  MutexLock lock(table_.mutex());
  for (const SessionPtr& session : job->attached())
    session->consumer->open_epochs(job->state.open_epochs, job->last_known());
  return view_of(*job);
}

Result<std::vector<LiveValue>> Operator::tune_job(const job::Caller& caller, const JobName& name,
                                                  const TuneRequest& request) {
  const auto plan = [&](Change& change) SPDLD_REQUIRES(table_.mutex()) -> Status {
    Job& job = *change.job;
    job::JobLimits& limits = change.next.limits;
    const auto before = limits.prefetch;
    SPDLD_TRY(tune(limits, job.first_limits, request).with_context("job '" + job.key.job + "'"));
    // A measurement may have left another one (headspace.h).
    const bool brings_back = request.names(kPrefetchKey) &&
                             !has_prefetch(*change.next.plan, limits.prefetch.value_or(0));
    if (limits.prefetch == before && !brings_back) return {};
    // The batches from there on are made in other slots.
    change.next.plan = with_prefetch(*change.next.plan, limits.prefetch.value_or(0));
    change.from = hold(job);
    return {};
  };
  JobPtr job;
  if (request.changes_nothing()) {
    MutexLock lock(table_.mutex());
    SPDLD_ASSIGN(job, table_.find_job(caller, name));
  } else {
    SPDLD_ASSIGN(job, changes_.change_job(caller, name, plan));
    log::info(about(job->key, caller.uid), "job '{}' tuned by uid {}: {}", job->key.job, caller.uid,
              text_of(request));
  }
  MutexLock lock(table_.mutex());
  if (table_.runs(job)) table_.limits_changed(*job);
  std::vector<LiveValue> values =
      live_values(job->state.limits, job->first_limits, *job->phase()->pipeline->plan);
  if (job->state.limits.prefetch) return values;
  // What the loaders ask for counts.
  std::set<std::uint32_t> credits;
  for (const SessionPtr& session : job->attached())
    credits.insert(session->consumer->view().credits);
  for (LiveValue& value : values) {
    if (value.key != kPrefetchKey || credits.empty()) continue;
    value.now = std::to_string(*credits.begin());
    if (credits.size() > 1) value.now += " to " + std::to_string(*credits.rbegin());
  }
  return values;
}

Status Operator::check_together(const Change& change, const std::string& what) {
  const Job& job = *change.job;
  struct There {
    job::Member member;
    job::State state;
  };
  std::optional<There> first;
  for (const SessionPtr& session : job.attached()) {
    const job::Member member = session->member;
    const Consumer::View view = session->consumer->view();
    if (view.ended) continue;
    const job::State state =
        job.schedule().locate(std::max(change.from, view.progress.sent), view.own);
    if (member.shard >= state.shards) continue;
    if (!first) first = There{.member = member, .state = state};
    if (state.at() == first->state.at() && state.position == first->state.position) continue;
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job + "' cannot be " + what + ": where this would begin, " +
                      member_text(job, first->member) + " will be at " +
                      place_text(first->state.at()) + " and " + member_text(job, member) + " at " +
                      place_text(state.at()) +
                      "; try again once the loops of all ranks are in the same place");
  }
  return {};
}

Result<job::JobView> Operator::seek_job(const job::Caller& caller, const JobName& name,
                                        job::StepAt to) {
  job::StepAt from;
  const auto plan = [&](Change& change) SPDLD_REQUIRES(table_.mutex()) -> Status {
    Job& job = *change.job;
    SPDLD_TRY(table_.check_settled(job));
    SPDLD_TRY(job::check_place(to));
    if (job.max_epochs > 0 && to.epoch >= job.max_epochs) return beyond_its_end(job);
    const job::Turn turn = hold(job);
    const std::uint64_t end_step =
        job::steps_per_epoch(stream::facts_of(*change.next.plan->last_phase()), job.num_shards());
    if (to.step > end_step)
      return Status(Code::kOutOfRange, "epoch " + std::to_string(to.epoch) + " of job '" +
                                           job.key.job + "' has " + counted(end_step, "step") +
                                           "; there is no step " + std::to_string(to.step));
    change.from = turn;
    SPDLD_TRY(check_together(change, "sought"));
    from = job.schedule().behind(turn, job.furthest().own).at();
    SPDLD_TRY(add_edit(change, {.turn = turn, .change = job::Edit::Seek{to}}));
    change.next.start = to;
    const job::State there = change.next.plan->schedule.locate(turn, {});
    change.goes_to = job::Progress{.sent = turn,
                                   .next = there.at(),
                                   .released = turn,
                                   .at = there.at(),
                                   .position = there.position,
                                   .order = change.next.plan->phase(there.version)->order_text()};
    return {};
  };
  SPDLD_ASSIGN(const JobPtr job, changes_.change_job(caller, name, plan));
  MutexLock lock(table_.mutex());
  log::info(about(job->key), "job '{}' goes on at {} instead of {}", job->key.job, place_text(to),
            place_text(from));
  return view_of(*job);
}

Result<job::JobView> Operator::resize_job(const job::Caller& caller, const JobName& name,
                                          std::uint32_t num_shards) {
  {
    MutexLock lock(table_.mutex());
    SPDLD_ASSIGN(const JobPtr job, table_.find_job(caller, name));
    SPDLD_TRY(check_world(num_shards, job->replicas));
    if (num_shards == job->num_shards()) return view_of(*job);
  }
  bool grows = false;
  const auto plan = [&](Change& change) SPDLD_REQUIRES(table_.mutex()) -> Status {
    Job& job = *change.job;
    SPDLD_TRY(table_.check_settled(job));
    for (const auto& [version, phase] : change.next.plan->phases) {
      if (job::steps_per_epoch(stream::facts_of(*phase), num_shards) > 0) continue;
      return Status(Code::kFailedPrecondition,
                    engine::items_text(phase->items, phase->repeat) + " make no step of " +
                        counted(num_shards, "shard") + " with batches of " +
                        std::to_string(phase->batch) + ": job '" + job.key.job +
                        "' can have at most " + counted(most_shards(job), "shard") +
                        ", or more with 'batch: {last: pad}'");
    }
    grows = num_shards > job.num_shards();
    change.from = hold(job);
    SPDLD_TRY(check_together(change, "resized"));
    return add_edit(change,
                    {.turn = change.from, .change = job::Edit::Resize{.shards = num_shards}});
  };
  SPDLD_ASSIGN(const JobPtr job, changes_.change_job(caller, name, plan));
  MutexLock lock(table_.mutex());
  if (grows) {
    job->gathering.began = deps_.clock.now();  // the ranks of the new shards are not attached yet
    job->gathering.over = false;
  }
  log::info(about(job->key), "job '{}' has {} from {} on", job->key.job,
            counted(num_shards, "shard"), place_text(view_of(*job).dealt_from));
  return view_of(*job);
}

Result<job::JobView> Operator::skip_steps(const job::Caller& caller, const JobName& name,
                                          std::uint64_t steps) {
  const auto plan = [&](Change& change) SPDLD_REQUIRES(table_.mutex()) -> Status {
    Job& job = *change.job;
    SPDLD_TRY(table_.check_settled(job));
    change.from = hold(job);
    SPDLD_TRY(check_together(change, "skipped ahead"));
    const Job::Standing furthest = job.furthest();
    if (job.members.empty() && job.membership.anyone_left())
      return Status(Code::kFailedPrecondition,
                    "job '" + job.key.job +
                        "' has no rank attached, so that it is not known where its ranks go on: "
                        "start them, and skip then");
    const job::State there = job.schedule().locate(change.from, furthest.own);
    return add_edit(change, {.turn = change.from,
                             .change = job::Edit::Skip{.epoch = there.epoch, .steps = steps}});
  };
  SPDLD_ASSIGN(const JobPtr job, changes_.change_job(caller, name, plan));
  MutexLock lock(table_.mutex());
  return view_of(*job);
}

void Operator::place_planned(const JobPtr& job) {
  const auto plan = [&](Change& change) SPDLD_REQUIRES(table_.mutex()) -> Status {
    const auto& planned = job->schedule().record().planned;
    if (!planned) return Status(Code::kAborted, "nothing is planned any more");
    const job::Turn frontier = hold(*job);
    job::Turn due = job::kNoTurn;
    for (const SessionPtr& session : job->attached()) {
      const Consumer::View view = session->consumer->view();
      if (view.ended) continue;
      const job::Turn of_this = job->schedule().planned_turn(view.progress.sent, view.own);
      if (of_this <= view.progress.sent) due = std::min(due, of_this);
    }
    if (due == job::kNoTurn) return Status(Code::kAborted, "no rank has come to it");
    change.from = std::max(frontier, due);
    return add_edit(change, {.turn = change.from, .change = job::Edit::Swap{planned->version}});
  };
  const Status placed = changes_.change_job(job, plan, Changes::Unwritten::kCounts);
  if (placed.ok() || placed.code() == Code::kAborted) return;
  log::error(about(job->key), "job '{}' changes its pipeline as planned: {}", job->key.job,
             placed.message());
}

void Operator::find_entries(const JobPtr& job) {
  MutexLock lock(table_.mutex());
  if (!table_.runs(job) || job->being_written || !job->find_entries()) return;
  table_.attach_again_waiting(*job);
  keeper_.keep_soon();
}

// Also of those that wait to attach.
void Operator::end_members(Job& job, const job::Caller& caller) {
  const std::string by = "deleted by uid " + std::to_string(caller.uid);
  const auto end = [&](Session& session) {
    session.parting = "its job was " + by;
    session.connection->bye(wire::ByeReason::kJobDeleted, "job '" + job.key.job + "' was " + by);
  };
  for (const auto& [member, session] : job.members) end(*session);
  for (const Job::WaitingAttach& waiting : std::exchange(job.waiting, {})) end(*waiting.session);
  job.members.clear();
}

Result<std::optional<job::JobKey>> Operator::forget_job(const job::Caller& caller,
                                                        const JobName& name) {
  SPDLD_ASSIGN(std::vector<job::JobKey> keys, deps_.store.jobs_named(name.job));
  {
    MutexLock lock(table_.mutex());
    for (const store::StoredPosition& ended : table_.ended().positions()) keys.push_back(ended.key);
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  SPDLD_ASSIGN(const std::optional<job::JobKey> ended, table_.meant(caller, name, std::move(keys)));
  if (!ended) return ended;
  SPDLD_TRY(deps_.store.remove_job(*ended));
  MutexLock lock(table_.mutex());
  table_.ended().forget(*ended);
  log::info(about(*ended, caller.uid),
            "what was kept of job '{}' on pipeline '{}' deleted by uid {}", ended->job,
            ended->pipeline, caller.uid);
  return ended;
}

Result<DeletedJob> Operator::delete_job(const job::Caller& caller, const JobName& name) {
  MutexLock writing(table_.records());
  JobPtr job;
  std::optional<job::JobKey> key;
  {
    MutexLock lock(table_.mutex());
    std::vector<job::JobKey> there;
    for (const auto& [known, why] : table_.broken()) there.push_back(known);
    for (const auto& [known, running] : table_.jobs()) there.push_back(known);
    SPDLD_ASSIGN(key, table_.meant(caller, name, std::move(there)));
    if (key && !table_.broken().contains(*key)) {
      job = table_.jobs().at(*key);
      job->being_written = true;
    } else if (!key) {
      const auto found = table_.find_job(caller, name);
      if (!found && found.error().code() != Code::kNotFound)
        return tl::unexpected<Status>(found.error());
    }
  }
  if (!key) {
    SPDLD_ASSIGN(const std::optional<job::JobKey> forgotten, forget_job(caller, name));
    if (forgotten) return DeletedJob{.pipeline = forgotten->pipeline, .had_ended = true};
    MutexLock lock(table_.mutex());
    return tl::unexpected<Status>(table_.find_job(caller, name).error());
  }
  const Status removed =
      job != nullptr && job->is_private ? Status() : deps_.store.remove_job(*key);
  MutexLock lock(table_.mutex());
  if (job != nullptr && removed.ok()) end_members(*job, caller);
  if (job != nullptr) table_.end_write(*job);
  if (!removed.ok()) {
    if (job != nullptr && job->members.empty()) table_.end_job(job);
    return tl::unexpected<Status>(removed);
  }
  table_.ended().forget(*key);
  DeletedJob deleted{.pipeline = key->pipeline};
  if (job == nullptr) {
    log::info(about(*key, caller.uid),
              "job '{}' on pipeline '{}', which could not go on, deleted by uid {}", key->job,
              key->pipeline, caller.uid);
    table_.broken().erase(*key);
    return deleted;
  }
  log::info(about(*key, caller.uid), "job '{}' on pipeline '{}' deleted by uid {}", key->job,
            key->pipeline, caller.uid);
  table_.drop_job(job);
  return deleted;
}

Status Operator::evict(const job::Caller& caller, std::uint64_t id, const std::string& reason) {
  MutexLock lock(table_.mutex());
  const auto found = table_.sessions().find(id);
  if (found == table_.sessions().end() || found->second->closed || found->second->job == nullptr ||
      !table_.visible(caller, *found->second->job))
    return Status(Code::kNotFound, "there is no session " + std::to_string(id) + " that " +
                                       deps_.pipelines.trusted().who(caller.uid) +
                                       " may end; 'spdlctl get sessions' lists what there is");
  const std::string by =
      "uid " + std::to_string(caller.uid) + (reason.empty() ? "" : ": " + reason);
  found->second->parting = "evicted by " + by;
  found->second->connection->bye(wire::ByeReason::kEvicted, "ended by " + by);
  table_.leave(found->second);
  return {};
}

}  // namespace spdld::session
