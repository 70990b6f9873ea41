// SPDX-License-Identifier: Apache-2.0
// How a consumer comes to its shard: the part of Sessions that runs on the blocking pool.
#include <algorithm>
#include <charconv>
#include <utility>

#include "base/counted.h"
#include "base/log.h"
#include "session/about.h"
#include "session/records.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

std::string shard_text(std::uint32_t shard, std::uint32_t num_shards) {
  return "shard " + std::to_string(shard) + " of " + std::to_string(num_shards);
}

Status about_to_change(const Job& job) {
  return Status(Code::kUnavailable,  // it comes again by itself
                "job '" + job.key.job + "' is about to change: an apply has been prepared");
}

// The number of this consumer among the replicas of its shard.
Result<std::uint32_t> replica_of(const delivery::AttachRequest& request) {
  if (request.replicas == 1) return 0;
  std::uint32_t replica = 0;
  const char* const end = request.replica.data() + request.replica.size();
  const auto parsed = std::from_chars(request.replica.data(), end, replica);
  if (parsed.ec != std::errc() || parsed.ptr != end || replica >= request.replicas)
    return error(Code::kInvalidArgument, "there is no replica '" + request.replica +
                                             "': each of the " + std::to_string(request.replicas) +
                                             " consumers of a shard has a number of its "
                                             "own, 0 to " +
                                             std::to_string(request.replicas - 1));
  return replica;
}

}  // namespace

void Sessions::attach_slowly(const SessionPtr& session, const delivery::AttachRequest& request) {
  {
    MutexLock lock(mutex_);
    session->queued = false;
  }
  Status status;
  try {
    status = try_attach(session, request);
  } catch (const std::exception& thrown) {  // what the request made too large, say
    status = Status(Code::kInternal, std::string("the attach failed: ") + thrown.what());
  }
  if (status.ok()) return;
  const Peer& peer = session->connection->peer();
  log::warn({.job = request.job,
             .pipeline = request.pipeline,
             .session = session->id,
             .pid = peer.pid,
             .uid = peer.uid,
             .has_quota = true},
            "attach of pid {} to pipeline '{}' refused: {}", peer.pid, request.pipeline,
            status.message());
  {
    MutexLock lock(mutex_);
    leave(session);
  }
  session->connection->fail(status);
}

Catalogue::Progress Sessions::progress_to(const SessionPtr& session) {
  return [session](std::uint64_t items, const std::string& what) {
    return session->connection->send_progress(items, 0, what);
  };
}

Status Sessions::try_attach(const SessionPtr& session, const delivery::AttachRequest& request) {
  SPDLD_TRY(check_world(request.num_shards.value_or(1), request.replicas));
  SPDLD_ASSIGN(session->member.replica, replica_of(request));
  SPDLD_ASSIGN(const PipelinePtr base, pipeline_for(session, request));
  const Peer& peer = session->connection->peer();
  JobKey key{.uid = peer.uid, .job = request.job, .pipeline = base->id()};
  Known known;
  if (key.job.empty()) {
    key.job = "private-" + std::to_string(peer.pid) + "-" + std::to_string(session->id);
  } else {
    SPDLD_ASSIGN(known, revive(key, request, peer));
  }
  // A job that goes on needs none of it: it may run an earlier text, with other variables.
  const auto pipeline =
      deps_.catalogue.variant(base, request.vars, request.batch_size, peer, progress_to(session));
  SPDLD_ASSIGN(const Readings readings, readings_for(key, peer, progress_to(session)));
  SPDLD_TRY(claim(session, key, pipeline, request, known.job, readings));
  if (known.begins_anew) forget_run(key);
  const PipelinePtr runs = look_at_data(session);
  SPDLD_TRY(begin(session, request));
  // It has its batches by now. Who came by name knows that the daemon's pipeline counts.
  if (!request.pipeline_yaml.empty()) deps_.catalogue.look_for_changes(*runs);
  return {};
}

PipelinePtr Sessions::look_at_data(const SessionPtr& session) {
  std::vector<PipelinePtr> pipelines;
  {
    MutexLock lock(mutex_);
    for (const Timeline::Cut& cut : session->job->timeline.cuts())
      pipelines.push_back(cut.phase->pipeline);
  }
  for (const PipelinePtr& pipeline : pipelines) pipeline->source->look_again();
  return pipelines.back();
}

Result<std::shared_ptr<Consumer>> Sessions::connect(const Session& session,
                                                    const delivery::AttachRequest& request) {
  Job& job = *session.job;
  SPDLD_ASSIGN(const Place place, place_of(job, session.member, request));
  std::vector<Jump> jumps = job.jumps_after(place.moves);
  if (!jumps.empty() && job.pending) return tl::unexpected<Status>(about_to_change(job));
  const Timeline& of_job = job.timeline_after(place.moves);
  Timeline own = of_job;
  if (place.position) own.resume(place.at, *place.position);
  const StepAt from = own.begin_of(session.member.shard, place.at, !place.position);
  own.close_gaps(from);
  const auto prefetch =
      static_cast<std::uint32_t>(own.phase(own.settled(from))->run->plan().spec.delivery.prefetch);
  auto consumer = std::make_shared<Consumer>(
      ConsumerOptions{.timeline = of_job,
                      .own = own,
                      .shard = session.member.shard,
                      .replica = session.member.replica,
                      .replicas = job.replicas,
                      .absent = job.absent,
                      .follows = place.follows,
                      .credits = std::clamp(request.credits.value_or(prefetch), wire::kMinCredits,
                                            wire::kMaxCredits),
                      .start = from,
                      .halt = job.pending ? job.pending->first() : kNever,
                      .moves = place.moves,
                      .moves_seen = std::min(request.moves.value_or(0), place.moves),
                      .alone = job.is_private,
                      .passage = place.passage,
                      .jumps = std::move(jumps),
                      .open_epochs = job.open_epochs,
                      .last_known = job.last_known(),
                      .uid = session.connection->peer().uid,
                      .job = job.tag,
                      .meter = job.meter,
                      .judge = session.job,
                      .gain = job.gain,
                      .roll = job.roll},
      session.connection, streams_);
  SPDLD_TRY(consumer->connect());
  if (!job.pending) return consumer;
  Status ready =
      consumer->prepare_swap(job.pending->from, job.pending->phase, job.pending->planned);
  if (ready.ok()) return consumer;
  consumer->end(false);
  return tl::unexpected<Status>(std::move(ready));
}

// What the consumer is told and what it starts from are one, whatever operators do to the job
// meanwhile; and its first seek finds it.
Status Sessions::begin(const SessionPtr& session, const delivery::AttachRequest& request) {
  std::shared_ptr<Consumer> consumer;
  {
    MutexLock lock(mutex_);
    if (session->closed) return Status(Code::kCancelled, "the consumer left while it attached");
    // What it would be given, the next daemon would not know of. It comes again by itself.
    if (suspended_) return Status(Code::kUnavailable, "the daemon is stopping");
    Job& job = *session->job;
    // The first one of a new run: it waits for all the others.
    if (job.members.size() == 1 && request.start == wire::StartMode::kFresh && !request.reconnect &&
        !awaits(job))
      job.roll->reset();
    SPDLD_ASSIGN(consumer, connect(*session, request));
    session->consumer = consumer;
    // A cursor says where its place is now that others do not know.
    const bool instead =
        request.start == wire::StartMode::kCursor &&
        (job.awaited.contains(session->member) || job.frontiers.returns(session->member));
    job.frontiers.begin(session->member, consumer->view().next, instead);
    job.left.erase(session->member);
    job.awaited.erase(session->member);
    if (!job.began) job.began = deps_.clock.now();
    job.record_is_old = true;
    {
      MutexLock routes_lock(routes_mutex_);
      routes_[session->id] = consumer;
    }
    welcome(*session);
  }
  keep_attached(session);
  consumer->begin();
  return {};
}

void Sessions::welcome(const Session& session) const {
  const Job& job = *session.job;
  const Consumer& consumer = *session.consumer;
  const Timeline timeline = consumer.timeline();
  const StepAt start = consumer.start();
  const Phase& phase = *timeline.phase(timeline.settled(start));
  delivery::Connection& connection = *session.connection;
  connection.send_attached(
      {.session = session.id,
       .items = phase.items,
       .steps_per_epoch = timeline.steps_per_epoch(start),
       .batch_size = phase.batch,
       .seed = static_cast<std::int64_t>(job.seed),
       .shard = session.member.shard,
       .num_shards = timeline.num_shards(),
       .replicas = job.replicas,
       .credits = consumer.credits(),
       .start = {.epoch = start.epoch, .position = timeline.position_of(start), .step = start.step},
       .epochs = job.max_epochs,
       .pipeline_version = phase.version(),
       .order_digest = phase.order_text(),
       .pipeline = deps_.catalogue.name_for(connection.peer().uid, job.key.pipeline),
       .job = job.key.job,
       .moves = consumer.moves()});
  log::About line = about(job.key, connection.peer().uid);
  line.session = session.id;
  line.pid = connection.peer().pid;
  log::info(line, "session {}: pid {} ({}) reads {} of job '{}' on pipeline '{}' from {}",
            session.id, connection.peer().pid, connection.client(),
            shard_text(session.member.shard, timeline.num_shards()), job.key.job, job.key.pipeline,
            place_text(start));
}

Result<std::optional<std::string>> Sessions::pipeline_of_job(const std::vector<std::string>& ids,
                                                             uid_t uid, const std::string& job) {
  if (job.empty()) return std::optional<std::string>();
  for (const std::string& id : ids) {
    const JobKey key{.uid = uid, .job = job, .pipeline = id};
    {
      MutexLock lock(mutex_);
      if (jobs_.contains(key)) return std::optional(id);
    }
    SPDLD_ASSIGN(const std::optional<StoredJob> stored, deps_.store.job(key));
    if (stored && !stored->ended) return std::optional(id);
  }
  return std::optional<std::string>();
}

Result<PipelinePtr> Sessions::pipeline_for(const SessionPtr& session,
                                           const delivery::AttachRequest& request) {
  if (!request.pipeline_yaml.empty()) return brought_by(session, request);
  const uid_t uid = session->connection->peer().uid;
  const Catalogue& catalogue = deps_.catalogue;
  SPDLD_ASSIGN(const auto known, catalogue.known_ids(uid, request.pipeline));
  if (known.empty()) return catalogue.named(uid, request.pipeline);  // says what there is
  if (known.size() == 1) return catalogue.get(known.front(), uid, request.pipeline);
  SPDLD_ASSIGN(const auto of_job, pipeline_of_job(known, uid, request.job));
  return catalogue.get(of_job.value_or(known.front()), uid, request.pipeline);
}

Result<PipelinePtr> Sessions::brought_by(const SessionPtr& session,
                                         const delivery::AttachRequest& request) {
  const uid_t uid = session->connection->peer().uid;
  Catalogue& catalogue = deps_.catalogue;
  ApplyRequest submitted;
  submitted.yaml = request.pipeline_yaml;
  submitted.file = request.pipeline_file;
  submitted.env = request.env;
  submitted.from_loader = true;
  submitted.reader = session->connection->peer();
  SPDLD_ASSIGN(const PipelineText text, catalogue.text_of(uid, submitted));
  SPDLD_ASSIGN(std::vector<std::string> known, catalogue.known_ids(uid, text.name));
  if (!known.empty()) {
    SPDLD_ASSIGN(const auto of_job, pipeline_of_job(known, uid, request.job));
    const std::string id = of_job.value_or(known.front());
    SPDLD_ASSIGN(const PipelinePtr base, catalogue.get(id, uid, text.name));
    // What was applied counts, whatever has come to its directories or gone from them since. Who
    // was here before brings what it began with, and an operator may have changed it since.
    if (base->text_digest() == text.digest || request.reconnect) return base;
    // A user's text of a shared one's name becomes the user's own.
    if (of_job || !is_shared(id) || catalogue.is_admin(uid))
      return error(Code::kAlreadyExists,
                   "the daemon has a pipeline '" + catalogue.name_for(uid, id) + "' (version " +
                       std::to_string(base->version) +
                       ") that differs from the one that this loader brings: give it another "
                       "name, or change the daemon's with 'spdlctl apply'");
  }
  SPDLD_TRY(make_room_for_brought(uid));
  SPDLD_ASSIGN(const PipelinePtr built,
               catalogue.build(catalogue.owner_for(uid), submitted, progress_to(session)));
  SPDLD_ASSIGN(const PipelinePtr put, catalogue.put_first(uid, built));
  if (Status kept = deps_.store.put_pipeline(stored_pipeline(*put),
                                             stored_revision(*put, uid, "from a loader"));
      !kept.ok())
    spdlog::warn("{}; a restart will not know pipeline '{}'", kept.message(), put->id());
  return put;
}

Status Sessions::claim(const SessionPtr& session, const JobKey& key,
                       const Result<PipelinePtr>& pipeline, const delivery::AttachRequest& request,
                       const JobPtr& revived, const Readings& readings) {
  std::optional<StoredPosition> ledger;
  if (request.start == wire::StartMode::kLedger) {
    SPDLD_ASSIGN(ledger, kept_position(key));
  }
  MutexLock lock(mutex_);
  if (session->closed) return Status(Code::kCancelled, "the consumer left while it attached");
  SPDLD_ASSIGN(const JobPtr job,
               join_job(key, pipeline, request, revived, session->connection->peer(), readings));
  Status claimed = place_first(*job, request, ledger);
  if (claimed.ok()) claimed = claim_shard(session, job, request);
  if (claimed.ok() && job->members.size() == 1 && !request.reconnect)
    job->new_run = !job->is_private;
  // A job that its first rank made must not stay when that rank does not.
  if (!claimed.ok() && job->members.empty() && !job->declared && !job->changes()) {
    jobs_.erase(key);
    streams_.forget(job->tag);
  }
  return claimed;
}

Result<JobPtr> Sessions::join_job(const JobKey& key, const Result<PipelinePtr>& pipeline,
                                  const delivery::AttachRequest& request, const JobPtr& revived,
                                  const Credentials& reader, const Readings& readings) {
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
  if (before != nullptr && (before->declared || !newer)) {
    SPDLD_TRY(check_facts(*before, request));
  } else {
    if (!pipeline) return tl::unexpected<Status>(pipeline.error());
    const std::uint64_t seed =
        request.seed ? static_cast<std::uint64_t>(*request.seed) : (*pipeline)->plan->spec.seed;
    const std::uint32_t num_shards = request.num_shards.value_or(1);
    // Who goes on from a cursor goes on with what the job has come to run, too.
    const bool goes_on = before != nullptr && request.start != wire::StartMode::kFresh &&
                         before->seed == seed && same_vars(*before, request.vars) &&
                         before->batch_size == request.batch_size;
    if (goes_on) {
      Timeline timeline = before->timeline;
      timeline.replace(readings);
      take_over(timeline, request, before->acknowledged().at, num_shards);
      SPDLD_ASSIGN(job, make_job(key, std::move(timeline), seed, request.job.empty()));
    } else {
      SPDLD_ASSIGN(job, make_job(key, *pipeline, seed, num_shards, request.job.empty()));
    }
    job->vars = goes_on ? before->vars : request.vars;
    job->first_vars = goes_on ? before->first_vars : request.vars;
    job->batch_size = request.batch_size;
    job->replicas = request.replicas;
    if (before != nullptr) {
      job->limits = before->limits;
      job->move_count = before->move_count;
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
    job->awaited.clear();
    job->began.reset();
    job->gathered = false;
    if (before == job) {
      job->left.clear();
      job->frontiers.clear();
      job->moves.clear();
    }
    job->roll->reset();
  }
  if (job->incarnation != request.incarnation || jobs_[key] != job) job->record_is_old = true;
  job->incarnation = request.incarnation;
  if (before != nullptr && before != job) streams_.forget(before->tag);
  jobs_[key] = job;
  expected_.erase(key);
  limits_changed(*job);
  return job;
}

Status Sessions::check_shard(const Job& job, const delivery::AttachRequest& request) {
  const std::uint32_t num_shards = job.timeline.num_shards();
  if (!request.shard || *request.shard < num_shards) return {};
  // Who comes back to a shard that is left out from some step on still has the steps before.
  const StepAt at{request.cursor.epoch, request.cursor.step};
  if (request.reconnect && request.start == wire::StartMode::kCursor &&
      *request.shard < job.timeline_after(request.moves.value_or(job.move_count))
                           .sharding(at)
                           .segment()
                           .num_shards)
    return {};
  return Status(Code::kInvalidArgument,
                "job '" + job.key.job + "' has " + counted(num_shards, "shard") +
                    (num_shards == 1 ? ", 0" : ", 0 to " + std::to_string(num_shards - 1)) +
                    "; there is no shard " + std::to_string(*request.shard) +
                    (request.reconnect ? " any more: the job was resized" : ""));
}

Status Sessions::check_facts(const Job& job, const delivery::AttachRequest& request) {
  const auto differs = [&](const char* what, std::uint64_t has, std::uint64_t wants) {
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job + "' has " + what + " " + std::to_string(has) +
                      ", and this consumer wants " + std::to_string(wants) +
                      (job.declared ? ": attach with the job's, or change it with 'spdlctl job'"
                                    : ": attach with the job's, or choose another job name"));
  };
  // Who lost its connection cannot know of what was done to the job since then, and is told by the
  // answer.
  const bool back = request.reconnect;
  if (request.replicas != job.replicas) return differs("replicas", job.replicas, request.replicas);
  if (request.num_shards && *request.num_shards != job.timeline.num_shards() && !back)
    return differs("num_shards", job.timeline.num_shards(), *request.num_shards);
  if (request.seed && static_cast<std::uint64_t>(*request.seed) != job.seed)
    return differs("seed", job.seed, static_cast<std::uint64_t>(*request.seed));
  if (back) return {};
  const auto phases = [&](auto has) {
    return std::any_of(job.timeline.cuts().begin(), job.timeline.cuts().end(),
                       [&](const Timeline::Cut& cut) { return has(*cut.phase); });
  };
  if (request.batch_size &&
      !phases([&](const Phase& phase) { return phase.batch == *request.batch_size; }))
    return differs("batch_size", job.phase().batch, *request.batch_size);
  for (const auto& [name, value] : request.vars) {
    const auto has = [&name = name, &value = value](const Phase& phase) {
      const auto& vars = phase.pipeline->plan->spec.vars;
      const auto found = vars.find(name);
      return found == vars.end() || found->second == value;
    };
    // An operator's value stands in for the job's own, which its ranks may go on to give.
    const auto says = [&name = name, &value = value](const auto& vars) {
      const auto own = vars.find(name);
      return own != vars.end() && own->second == value;
    };
    if (phases(has) || says(job.vars) || says(job.first_vars)) continue;
    return Status(Code::kFailedPrecondition, "job '" + job.key.job + "' runs with " + name + "=" +
                                                 job.phase().pipeline->plan->spec.vars.at(name) +
                                                 ", and this consumer wants " + name + "=" + value +
                                                 ": all ranks of a job must give the same vars");
  }
  return {};
}

Status Sessions::claim_shard(const SessionPtr& session, const JobPtr& job,
                             const delivery::AttachRequest& request) {
  const std::uint32_t num_shards = job->timeline.num_shards();
  Member member{.shard = 0, .replica = session->member.replica};
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
    const delivery::Connection& holder = *held->second->connection;
    // The same process comes back after it lost its connection: what it had is of no more use to
    // it.
    if (!request.reconnect || holder.peer().pid != session->connection->peer().pid)
      return Status(
          Code::kAlreadyExists,
          (job->replicas > 1 ? "replica " + std::to_string(member.replica) + " of " : "") +
              shard_text(member.shard, num_shards) + " of job '" + job->key.job +
              "' is read by pid " + std::to_string(holder.peer().pid) + " (session " +
              std::to_string(held->second->id) +
              "): give each rank its own shard, or end that one with 'spdlctl evict " +
              std::to_string(held->second->id) + "'");
    held->second->parting = "its process has reconnected";
    held->second->connection->bye(wire::ByeReason::kEvicted, "the same process has reconnected");
    job->note_left(*held->second);
    if (held->second->consumer != nullptr) held->second->consumer->end(true);
  }
  session->job = job;
  session->member = member;
  job->members[member] = session;
  return {};
}

}  // namespace spdld::session
