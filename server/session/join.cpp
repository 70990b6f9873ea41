// SPDX-License-Identifier: Apache-2.0
// How a consumer that attaches comes into its job, and to its shard: a part of Sessions.
#include <algorithm>
#include <string>
#include <utility>

#include "base/text/counted.h"
#include "session/job_texts.h"
#include "session/records.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

// Adds the failures of a running job that are not on disk yet.
void add_unkept(const Job& job, KeptFailures& failures) {
  for (const std::uint64_t item : job.failures.replaced_behind(job.replaced_kept))
    failures.replaced.insert(item);
  const std::vector<engine::LoggedFailure> unkept = job.failures.behind(failures.last);
  if (!unkept.empty()) failures.last = unkept.back().number;
}

}  // namespace

Result<bool> Sessions::claim(const SessionPtr& session, const job::JobKey& key,
                             const Result<pipeline::PipelinePtr>& pipeline,
                             const delivery::AttachRequest& request, const JobPtr& revived,
                             const stream::Readings& readings) {
  std::optional<store::StoredPosition> ledger;
  if (request.start == wire::StartMode::kLedger) {
    SPDLD_ASSIGN(ledger, kept_position(key));
  }
  // The disk is asked only for a job that is to be made, as it may be slow.
  std::optional<KeptFailures> failures;
  if (request.job.empty()) failures.emplace();
  for (;; failures = kept_failures(key)) {
    MutexLock lock(mutex_);
    if (waits_for_write(key, session, request)) return false;
    if (failures || !makes_job(key, request))
      return claim(session, key, pipeline, request, revived, readings, ledger,
                   std::move(failures).value_or(KeptFailures()));
  }
}

bool Sessions::waits_for_write(const job::JobKey& key, const SessionPtr& session,
                               const delivery::AttachRequest& request) {
  const auto known = jobs_.find(key);
  if (known == jobs_.end() || !known->second->being_written) return false;
  wait(*known->second, session, request, "its job is being changed, and that is not on disk yet");
  return true;
}

void Sessions::wait(Job& job, const SessionPtr& session, const delivery::AttachRequest& request,
                    std::string reason) {
  session->connection->send_progress(0, 0, reason);
  job.waiting.push_back({session, request, std::move(reason)});
}

bool Sessions::makes_job(const job::JobKey& key, const delivery::AttachRequest& request) const {
  const auto known = jobs_.find(key);
  return known == jobs_.end() ||
         (!known->second->declared && request.incarnation > known->second->incarnation);
}

Result<bool> Sessions::claim(const SessionPtr& session, const job::JobKey& key,
                             const Result<pipeline::PipelinePtr>& pipeline,
                             const delivery::AttachRequest& request, const JobPtr& revived,
                             const stream::Readings& readings,
                             const std::optional<store::StoredPosition>& ledger,
                             KeptFailures failures) {
  if (session->closed) return error(Code::kCancelled, "the consumer left while it attached");
  SPDLD_ASSIGN(const JobPtr job,
               join_job(key, pipeline, request, revived, session->connection->peer(), readings,
                        std::move(failures)));
  if (waits_for_others(*job, request)) {
    wait(*job, session, request, waits_text(*job, *request.shard));
    return false;
  }
  Status claimed =
      place_first(*job, {request.shard.value_or(0), session->member.replica}, request, ledger);
  if (claimed.ok()) claimed = claim_shard(session, job, request);
  if (claimed.ok() && job->members.size() == 1 && !request.reconnect)
    job->new_run = !job->is_private;
  if (claimed.ok()) return true;
  drop_if_unused(job);
  return tl::unexpected<Status>(claimed);
}

Result<JobPtr> Sessions::join_job(const job::JobKey& key,
                                  const Result<pipeline::PipelinePtr>& pipeline,
                                  const delivery::AttachRequest& request, const JobPtr& revived,
                                  const Credentials& reader, const stream::Readings& readings,
                                  KeptFailures failures) {
  const auto known = jobs_.find(key);
  const JobPtr before = known == jobs_.end() ? revived : known->second;
  // Who lost its daemon goes on with a job that it has.
  if (known == jobs_.end() && !(revived != nullptr && request.reconnect))
    SPDLD_TRY(check_room_for_job(key.uid));
  const bool newer = before != nullptr && request.incarnation > before->incarnation;
  if (before != nullptr && request.incarnation < before->incarnation)
    return error(Code::kFailedPrecondition,
                 "job '" + key.job + "' is at restart " + std::to_string(before->incarnation) +
                     ", and this process belongs to restart " +
                     std::to_string(request.incarnation) + ", which has been evicted");
  if (newer && before->changes() && !before->declared)
    return tl::unexpected<Status>(about_to_change(*before));
  if (before != nullptr) {
    SPDLD_TRY(check_reader(*before, reader, readings, newer));
  }
  JobPtr job = before;
  const bool takes_over = known != jobs_.end() && newer && !before->declared;
  if (takes_over) add_unkept(*before, failures);
  if (before != nullptr && (before->declared || !newer)) {
    SPDLD_TRY(check_facts(*before, request));
  } else {
    if (!pipeline) return tl::unexpected<Status>(pipeline.error());
    const std::uint64_t seed =
        request.seed ? static_cast<std::uint64_t>(*request.seed) : (*pipeline)->plan->spec.seed;
    const std::uint32_t num_shards = request.num_shards.value_or(1);
    // Who goes on from a cursor goes on with what the job has come to run, too.
    const bool goes_on = before != nullptr && request.start != wire::StartMode::kFresh &&
                         before->seed == seed &&
                         same_vars(before->first_vars, before->state.vars, request.vars) &&
                         before->batch_size == request.batch_size;
    if (goes_on) {
      stream::Timeline timeline = before->state.timeline;
      timeline.replace(readings);
      take_over(timeline, request, before->acknowledged().at, num_shards);
      SPDLD_ASSIGN(
          job, make_job(key, std::move(timeline), seed, request.job.empty(), std::move(failures)));
    } else {
      SPDLD_ASSIGN(job, make_job(key, *pipeline, seed, num_shards, request.job.empty(),
                                 std::move(failures)));
    }
    job->state.vars = goes_on ? before->state.vars : request.vars;
    job->first_vars = goes_on ? before->first_vars : request.vars;
    job->batch_size = request.batch_size;
    job->replicas = request.replicas;
    if (before != nullptr) {
      job->state.limits = before->state.limits;
      job->state.move_count = before->state.move_count;
      const Job::Acknowledged last = before->acknowledged();
      job->ledger = before->ledger;
      job->rewind_ledger(last);
      job->ledger.kept_unix_ms = std::max<std::uint64_t>(job->ledger.kept_unix_ms, 1);
    }
  }
  SPDLD_TRY(check_shard(*job, request));
  if (job == before) job->read_by(readings);
  // Nothing can go wrong any more: a newer incarnation takes the job over from what is left of the
  // older one.
  if (newer) {
    for (const auto& [member, session] : before->members) {
      session->parting =
          "evicted by restart " + std::to_string(request.incarnation) + " of its job";
      session->connection->bye(wire::ByeReason::kEvicted,
                               "restart " + std::to_string(request.incarnation) + " of job '" +
                                   key.job + "' has taken over from restart " +
                                   std::to_string(before->incarnation));
    }
    before->members.clear();
    job->membership.clear();
    job->began.reset();
    job->gathered = false;
    if (before == job) job->state.moves.clear();
    job->roll->reset();
  }
  if (takes_over && !before->is_private) push_ended(*before);
  if (job->incarnation != request.incarnation || jobs_[key] != job) job->record_is_old = true;
  job->incarnation = request.incarnation;
  if (before != nullptr && before != job) streams_.forget(before->tag);
  jobs_[key] = job;
  expected_.erase(key);
  limits_changed(*job);
  return job;
}

// A shard that a resize takes away can be read up to the resize: by its process when it reconnects,
// or by another one whose state is not before what the shard has given back. Before a seek of the
// job, nobody knows how much that is.
bool Sessions::finishes_shard(const Job& job, const delivery::AttachRequest& request) {
  if (request.start != wire::StartMode::kCursor || !request.shard) return false;
  const stream::Timeline& timeline =
      job.timeline_after(request.moves.value_or(job.state.move_count));
  const job::StepAt at{request.cursor.epoch, request.cursor.step};
  const bool seeks = &timeline != &job.state.timeline;
  const std::uint32_t num_shards = timeline.sharding(at).segment().num_shards;
  if (*request.shard < timeline.num_shards() || *request.shard >= num_shards) return false;
  if (request.reconnect) return true;
  if (!timeline.has(at, request.cursor.position)) return false;
  const auto read = job.membership.released(*request.shard);
  const auto has_had = [&](const stream::Timeline::Cut& cut) {
    return cut.num_shards == request.num_shards;
  };
  return (seeks || (read && timeline.settled(at) >= *read)) &&
         std::any_of(timeline.cuts().begin(), timeline.cuts().end(), has_had);
}

Status Sessions::check_shard(const Job& job, const delivery::AttachRequest& request) {
  const std::uint32_t num_shards = job.state.timeline.num_shards();
  if (!request.shard || *request.shard < num_shards || finishes_shard(job, request)) return {};
  return Status(Code::kInvalidArgument,
                "job '" + job.key.job + "' has " + counted(num_shards, "shard") +
                    (num_shards == 1 ? ", 0" : ", 0 to " + std::to_string(num_shards - 1)) +
                    "; there is no shard " + std::to_string(*request.shard) +
                    (request.reconnect ? " any more: the job was resized" : ""));
}

Status Sessions::check_facts(const Job& job, const delivery::AttachRequest& request) {
  const auto differs = [&](const std::string& what, std::uint64_t has, std::uint64_t wants,
                           const std::string& way_out) {
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job + "' has " + what + " " + std::to_string(has) +
                      ", and this consumer asks for " + what + " " + std::to_string(wants) + ": " +
                      way_out + ", or name another job (job=)");
  };
  // Who lost its connection, or comes to finish a shard, may not know of what was done to the job
  // since then, and is told by the answer.
  const bool back = request.reconnect || finishes_shard(job, request);
  if (request.replicas != job.replicas)
    return differs("replicas", job.replicas, request.replicas, "give the job's (replicas=)");
  if (request.num_shards && *request.num_shards != job.state.timeline.num_shards() && !back)
    return differs("num_shards", job.state.timeline.num_shards(), *request.num_shards,
                   "start as many ranks as the job has (num_shards is world_size unless given), or "
                   "'spdlctl job resize " +
                       job.key.job + " --shards " + std::to_string(*request.num_shards) + "'");
  if (request.seed && static_cast<std::uint64_t>(*request.seed) != job.seed)
    return differs("seed", job.seed, static_cast<std::uint64_t>(*request.seed),
                   "give the job's (seed=), or none");
  if (back) return {};
  const auto phases = [&](auto has) {
    return std::any_of(job.state.timeline.cuts().begin(), job.state.timeline.cuts().end(),
                       [&](const stream::Timeline::Cut& cut) { return has(*cut.phase); });
  };
  if (request.batch_size &&
      !phases([&](const pipeline::Phase& phase) { return phase.batch == *request.batch_size; }))
    return differs("batch_size", job.phase().batch, *request.batch_size,
                   "give the job's (batch_size=), or none");
  for (const auto& [name, value] : request.vars) {
    const auto has = [&name = name, &value = value](const pipeline::Phase& phase) {
      const auto& vars = phase.pipeline->plan->spec.vars;
      const auto found = vars.find(name);
      return found == vars.end() || found->second == value;
    };
    // An operator's value stands in for the job's own, which its ranks may go on to give.
    const auto says = [&name = name, &value = value](const auto& vars) {
      const auto own = vars.find(name);
      return own != vars.end() && own->second == value;
    };
    if (phases(has) || says(job.state.vars) || says(job.first_vars)) continue;
    return Status(Code::kFailedPrecondition, "job '" + job.key.job + "' runs with " + name + "=" +
                                                 job.phase().pipeline->plan->spec.vars.at(name) +
                                                 ", and this consumer wants " + name + "=" + value +
                                                 ": all ranks of a job must give the same vars");
  }
  return {};
}

Status Sessions::taken_by(const Session& holder, const Job& job, const Session& asks) {
  const std::string id = std::to_string(holder.id);
  const std::string place =
      (job.replicas > 1 ? "replica " + std::to_string(holder.member.replica) + " of " : "") +
      shard_text(holder.member.shard, job.state.timeline.num_shards()) + " of job '" + job.key.job +
      "'";
  if (holder.is_process_of(asks))
    return Status(Code::kAlreadyExists,
                  place + " is read by another Loader of this process (session " + id +
                      "): close() that Loader first; a notebook may keep it alive in its output");
  return Status(Code::kAlreadyExists,
                place + " is read by " + holder.process() + " (session " + id +
                    "): give each rank its own shard, or end that one with 'spdlctl evict " + id +
                    "'");
}

Status Sessions::claim_shard(const SessionPtr& session, const JobPtr& job,
                             const delivery::AttachRequest& request) {
  const std::uint32_t num_shards = job->state.timeline.num_shards();
  job::Member member{.shard = 0, .replica = session->member.replica};
  if (request.shard) {
    member.shard = *request.shard;
  } else {
    while (member.shard < num_shards && job->members.contains(member)) ++member.shard;
    if (member.shard == num_shards)
      return Status(Code::kResourceExhausted,
                    "job '" + job->key.job + "' has " + counted(num_shards, "shard") +
                        ", and each has its consumer: resize the job, or let one detach");
  }
  if (const auto held = job->members.find(member); held != job->members.end()) {
    // The same process comes back after it lost its connection: what it had is of no more use to
    // it.
    if (!request.reconnect || !held->second->may_be_process_of(*session))
      return taken_by(*held->second, *job, *session);
    held->second->parting = "its process has reconnected";
    held->second->connection->bye(wire::ByeReason::kEvicted, "the same process has reconnected");
    job->note_left(*held->second);
    if (held->second->consumer != nullptr) {
      held->second->consumer->end(true);
      held->second->consumer->retire();
    }
  }
  session->job = job;
  session->member = member;
  job->members[member] = session;
  return {};
}

}  // namespace spdld::session
