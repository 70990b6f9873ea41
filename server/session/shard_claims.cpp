// SPDX-License-Identifier: Apache-2.0
#include "session/shard_claims.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text/counted.h"
#include "session/job_texts.h"
#include "session/place.h"

namespace spdld::session {
namespace {

// Adds the failures of a running job that are not on disk yet.
void add_unkept(const Job& job, KeptFailures& failures) {
  for (const std::uint64_t item : job.failures.replaced_behind(job.record.replaced))
    failures.replaced.insert(item);
  const std::vector<engine::LoggedFailure> unkept = job.failures.behind(failures.last);
  if (!unkept.empty()) failures.last = unkept.back().number;
}

}  // namespace

Result<bool> ShardClaims::claim(const SessionPtr& session, const job::JobKey& key,
                                const Result<pipeline::PipelinePtr>& pipeline,
                                const delivery::AttachRequest& request,
                                const JobRecords::Revived& revived, const Readings& readings) {
  std::optional<store::StoredPosition> ledger;
  if (request.start == wire::StartMode::kLedger) {
    SPDLD_ASSIGN(ledger, records_.kept_position(key));
  }
  // The disk is asked only for a job that is to be made, as it may be slow.
  std::optional<KeptFailures> failures;
  if (request.job.empty()) failures.emplace();
  for (;; failures = records_.kept_failures(key)) {
    MutexLock lock(table_.mutex());
    if (waits_for_write(key, session, request)) return false;
    // It has ended since, and its record is to be read.
    if (revived.runs && !table_.jobs().contains(key)) {
      session->asker.reset();
      table_.attach_again(session, request);
      return false;
    }
    if (failures || !makes_job(key, request))
      return claim(session, key, pipeline, request, revived.job, readings, ledger,
                   std::move(failures).value_or(KeptFailures()));
  }
}

bool ShardClaims::waits_for_write(const job::JobKey& key, const SessionPtr& session,
                                  const delivery::AttachRequest& request) {
  const auto known = table_.jobs().find(key);
  if (known == table_.jobs().end() || !known->second->being_written) return false;
  wait(*known->second, session, request, kWaitsForWrite);
  return true;
}

void ShardClaims::wait(Job& job, const SessionPtr& session, const delivery::AttachRequest& request,
                       std::string_view reason) {
  session->connection->send_progress(0, 0, std::string(reason));
  session->asker.reset();  // it is to find the data as they are then
  job.waiting.push_back({session, request, std::string(reason)});
}

bool ShardClaims::makes_job(const job::JobKey& key, const delivery::AttachRequest& request) const {
  const auto known = table_.jobs().find(key);
  return known == table_.jobs().end() ||
         (!known->second->declared && request.incarnation > known->second->incarnation);
}

Result<bool> ShardClaims::claim(const SessionPtr& session, const job::JobKey& key,
                                const Result<pipeline::PipelinePtr>& pipeline,
                                const delivery::AttachRequest& request, const JobPtr& revived,
                                const Readings& readings,
                                const std::optional<store::StoredPosition>& ledger,
                                KeptFailures failures) {
  if (session->closed) return error(Code::kCancelled, "the consumer left while it attached");
  SPDLD_ASSIGN(const JobPtr job,
               join_job(key, pipeline, request, session->member.replica, revived,
                        session->connection->peer(), readings, std::move(failures)));
  if (const auto reason = waits_for_entry(*job, session->member.replica, request)) {
    wait(*job, session, request, *reason);
    return false;
  }
  Status claimed = place_first(*job, session->member.replica, request, ledger, table_.awaits(*job));
  if (claimed.ok()) claimed = check_shard(*job, request);
  if (claimed.ok()) claimed = claim_shard(session, job, request);
  if (claimed.ok() && job->members.size() == 1 && !request.reconnect)
    job->record.may_be_of_other_run = !job->is_private;
  if (claimed.ok()) return true;
  table_.drop_if_unused(job);
  return tl::unexpected<Status>(claimed);
}

pipeline::Asked<Readings> ShardClaims::readings_for(const job::JobKey& key,
                                                    const Credentials& reader,
                                                    const pipeline::ListingAsker& asker) {
  std::vector<pipeline::PhasePtr> phases;
  std::uint64_t seed = 0;
  {
    MutexLock lock(table_.mutex());
    const auto found = table_.jobs().find(key);
    if (found == table_.jobs().end()) return std::optional(Readings());
    phases = found->second->phases();
    seed = found->second->seed;
  }
  std::map<pipeline::PhasePtr, pipeline::PipelinePtr> pipelines;
  for (const pipeline::PhasePtr& phase : phases) {
    SPDLD_ASSIGN(const std::optional<pipeline::PipelinePtr> pipeline,
                 deps_.catalogue.variant(phase->pipeline, {.reader = reader}, asker));
    if (!pipeline) return std::optional<Readings>();
    if (*pipeline != phase->pipeline || phase->closed) pipelines.emplace(phase, *pipeline);
  }
  Readings readings;
  // Phases that share a run go on sharing one.
  std::map<const engine::Run*, std::shared_ptr<engine::Run>> runs;
  for (const auto& [phase, pipeline] : pipelines) {
    SPDLD_ASSIGN(const pipeline::PhasePtr fresh,
                 records_.make_phase(key.uid, pipeline, seed, phase->overrides, phase->prefetch));
    auto same = std::make_shared<pipeline::Phase>(*fresh);
    same->content = phase->content;
    same->run = runs.try_emplace(phase->run.get(), fresh->run).first->second;
    readings.emplace(phase, std::move(same));
  }
  return std::optional(std::move(readings));
}

Status ShardClaims::check_reader(const Job& job, const Credentials& reader,
                                 const Readings& readings, bool alone) const {
  const Credentials of_job = job.state.plan->last_phase()->reader();
  const Credentials as = deps_.catalogue.options().access.normalized(reader);
  const std::vector<pipeline::PhasePtr> phases = job.phases();
  const auto is_theirs = [&as](const pipeline::PhasePtr& phase) {
    return phase->reader() == as && !phase->closed;
  };
  if (std::all_of(phases.begin(), phases.end(), is_theirs)) return {};
  if (!alone && !job.members.empty() && as != of_job)
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job + "' is read with the rights of " + of_job.text() +
                      ", and this process has those of " + reader.text() +
                      ": start all ranks of a job with the same groups");
  // The job has changed since it was looked at. It comes again by itself.
  const bool complete =
      std::all_of(phases.begin(), phases.end(), [&](const pipeline::PhasePtr& phase) {
        return is_theirs(phase) || readings.contains(phase);
      });
  if (!complete || job.being_written)
    return Status(Code::kUnavailable, "job '" + job.key.job + "' is being changed");
  return {};
}

Result<JobPtr> ShardClaims::join_job(const job::JobKey& key,
                                     const Result<pipeline::PipelinePtr>& pipeline,
                                     const delivery::AttachRequest& request, std::uint32_t replica,
                                     const JobPtr& revived, const Credentials& reader,
                                     const Readings& readings, KeptFailures failures) {
  const auto known = table_.jobs().find(key);
  const JobPtr before = known == table_.jobs().end() ? revived : known->second;
  // Who lost its daemon goes on with a job that it has.
  if (known == table_.jobs().end() && !(revived != nullptr && request.reconnect))
    SPDLD_TRY(table_.check_room_for_job(key.uid));
  const bool newer = before != nullptr && request.incarnation > before->incarnation;
  if (before != nullptr && request.incarnation < before->incarnation)
    return error(Code::kFailedPrecondition,
                 "job '" + key.job + "' is at restart " + std::to_string(before->incarnation) +
                     ", and this process belongs to restart " +
                     std::to_string(request.incarnation) + ", which has been evicted");
  if (before != nullptr) {
    SPDLD_TRY(check_reader(*before, reader, readings, newer));
  }
  const bool takes_over = known != table_.jobs().end() && newer && !before->declared;
  if (takes_over) add_unkept(*before, failures);
  JobPtr job = before;
  if (before == nullptr || (newer && !before->declared && !goes_on_in(*before, request))) {
    if (!pipeline) return tl::unexpected<Status>(pipeline.error());
    const std::uint64_t seed =
        request.seed ? static_cast<std::uint64_t>(*request.seed) : (*pipeline)->plan->spec.seed;
    SPDLD_ASSIGN(job, records_.make_job(key, *pipeline, seed, request.num_shards.value_or(1),
                                        request.job.empty(), std::move(failures)));
    job->state.vars = job->first_vars = request.vars;
    job->batch_size = request.batch_size;
    job->replicas = request.replicas;
    if (before != nullptr) {
      job->state.limits = before->state.limits;
      job->first_limits = before->first_limits;
      job->state.plan = with_prefetch(*job->state.plan, job->state.limits.prefetch.value_or(0));
    }
  } else if (before->declared || !newer) {
    SPDLD_TRY(check_facts(*before, replica, request));
  }
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
      before->note_left(*session);
    }
    before->members.clear();
    const job::Progress last = before->acknowledged();
    job->ledger.rewind(last);
    job->ledger.kept_unix_ms = std::max<std::uint64_t>(before->ledger.kept_unix_ms, 1);
    before->membership.start_again();  // all its ranks are others
    job->replicas = request.replicas;
    job->gathering = {};
    job->presence->reset();
  }
  if (takes_over && !before->is_private && job != before) table_.ended().push(*before);
  if (job->incarnation != request.incarnation || table_.jobs()[key] != job)
    job->record.is_old = true;
  job->incarnation = request.incarnation;
  if (before != nullptr && before != job) {
    streams_.forget(before->tag);
    table_.attach_again_waiting(*before);
  }
  table_.jobs()[key] = job;
  table_.expected().erase(key);
  table_.limits_changed(*job);
  return job;
}

bool ShardClaims::goes_on_in(const Job& job, const delivery::AttachRequest& request) {
  return request.start != wire::StartMode::kFresh &&
         job.seed == static_cast<std::uint64_t>(
                         request.seed.value_or(static_cast<std::int64_t>(job.seed))) &&
         same_vars(job.first_vars, job.state.vars, request.vars) &&
         job.batch_size == request.batch_size;
}

std::optional<std::string> ShardClaims::waits_for_entry(
    const Job& job, std::uint32_t replica, const delivery::AttachRequest& request) const {
  if (!request.shard || *request.shard >= job.num_shards()) return std::nullopt;
  const auto entry = entry_of(job, {.shard = *request.shard, .replica = replica}, request);
  if (!entry) return std::nullopt;
  // The others say where it begins: by coming back, or by beginning afresh.
  const bool alone = job.members.empty() && !table_.awaits(job) && !request.reconnect &&
                     request.start == wire::StartMode::kFresh;
  if (entry->place && !alone) return std::nullopt;
  const auto tells_nothing = [&](const auto& known) {
    if (known.second->consumer == nullptr) return false;
    const job::OwnSeeks own = known.second->consumer->view().own;
    return !own.empty() && own.front().turn > entry->turn;
  };
  if (!entry->place && !job.members.empty() && !job.membership.expected() &&
      std::all_of(job.members.begin(), job.members.end(), tells_nothing))
    return std::nullopt;
  return waits_text(job, *request.shard);
}

Status ShardClaims::check_shard(const Job& job, const delivery::AttachRequest& request) {
  const std::uint32_t num_shards = job.num_shards();
  if (!request.shard || *request.shard < num_shards) return {};
  // A rank of a shard that goes reads it up to the resize.
  const auto cursor = cursor_of(job, request);
  if (cursor && *request.shard < job.schedule().behind(cursor->turn, {}).shards) return {};
  return Status(Code::kInvalidArgument,
                "job '" + job.key.job + "' has " + counted(num_shards, "shard") +
                    (num_shards == 1 ? ", 0" : ", 0 to " + std::to_string(num_shards - 1)) +
                    "; there is no shard " + std::to_string(*request.shard) +
                    (request.reconnect ? " any more: the job was resized" : ""));
}

Status ShardClaims::check_facts(const Job& job, std::uint32_t replica,
                                const delivery::AttachRequest& request) {
  const auto differs = [&](const std::string& what, std::uint64_t has, std::uint64_t wants,
                           const std::string& way_out) {
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job + "' has " + what + " " + std::to_string(has) +
                      ", and this consumer asks for " + what + " " + std::to_string(wants) + ": " +
                      way_out + ", or name another job (job=)");
  };
  // A rank that comes back may not know of what was done to the job since then, and is told by the
  // answer.
  const auto cursor = cursor_of(job, request);
  const bool back = request.reconnect || (cursor && fits(job, *cursor, replica, request));
  if (request.replicas != job.replicas)
    return differs("replicas", job.replicas, request.replicas, "give the job's (replicas=)");
  // With no other rank there, the rest of the epoch may be dealt out to another world.
  const bool alone = job.members.empty() && !job.declared;
  if (request.num_shards && *request.num_shards != job.num_shards() && !back && !alone)
    return differs("num_shards", job.num_shards(), *request.num_shards,
                   "start as many ranks as the job has (num_shards is world_size unless given), or "
                   "'spdlctl job resize " +
                       job.key.job + " --shards " + std::to_string(*request.num_shards) + "'");
  if (request.seed && static_cast<std::uint64_t>(*request.seed) != job.seed)
    return differs("seed", job.seed, static_cast<std::uint64_t>(*request.seed),
                   "give the job's (seed=), or none");
  if (request.reconnect) return {};
  const auto phases = [&](auto has) {
    const auto& known = job.state.plan->phases;
    return std::any_of(known.begin(), known.end(),
                       [&](const auto& phase) { return has(*phase.second); });
  };
  if (request.batch_size &&
      !phases([&](const pipeline::Phase& phase) { return phase.batch == *request.batch_size; }))
    return differs("batch_size", job.phase()->batch, *request.batch_size,
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
                                                 job.phase()->pipeline->plan->spec.vars.at(name) +
                                                 ", and this consumer wants " + name + "=" + value +
                                                 ": all ranks of a job must give the same vars");
  }
  return {};
}

Status ShardClaims::taken_by(const Session& holder, const Job& job, const Session& asks) {
  const std::string id = std::to_string(holder.id);
  const std::string place =
      (job.replicas > 1 ? "replica " + std::to_string(holder.member.replica) + " of " : "") +
      shard_text(holder.member.shard, job.num_shards()) + " of job '" + job.key.job + "'";
  if (holder.is_process_of(asks))
    return Status(Code::kAlreadyExists,
                  place + " is read by another Loader of this process (session " + id +
                      "): close() that Loader first; a notebook may keep it alive in its output");
  return Status(Code::kAlreadyExists,
                place + " is read by " + holder.process() + " (session " + id +
                    "): give each rank its own shard, or end that one with 'spdlctl evict " + id +
                    "'");
}

Status ShardClaims::claim_shard(const SessionPtr& session, const JobPtr& job,
                                const delivery::AttachRequest& request) {
  const std::uint32_t num_shards = job->num_shards();
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
  session->asker.reset();
  session->member = member;
  job->members[member] = session;
  return {};
}

}  // namespace spdld::session
