// SPDX-License-Identifier: Apache-2.0
// How a consumer comes to its shard: the part of Sessions that runs on the blocking pool.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>
#include <utility>

#include "base/log.h"
#include "session/about.h"
#include "session/job_texts.h"
#include "session/records.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

// An attach waits for so long for memory on its GPU. One of the attach threads is taken meanwhile.
constexpr int kRoomTries = 60;
constexpr std::chrono::milliseconds kRoomInterval{50};

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
            "attach of pid {} (uid {}) to pipeline '{}' refused: {}", peer.pid, peer.uid,
            request.pipeline, status.message());
  {
    MutexLock lock(mutex_);
    leave(session);
  }
  session->connection->fail(status);
}

pipeline::Catalogue::Progress Sessions::progress_to(const SessionPtr& session) {
  return [session](std::uint64_t items, const std::string& what) {
    return session->connection->send_progress(items, 0, what);
  };
}

Status Sessions::try_attach(const SessionPtr& session, delivery::AttachRequest request) {
  SPDLD_TRY(check_world(request.num_shards.value_or(1), request.replicas));
  SPDLD_TRY(check_job_name(request.job));
  SPDLD_ASSIGN(const std::uint32_t replica, replica_of(request));
  {
    MutexLock lock(mutex_);
    session->member.replica = replica;
  }
  SPDLD_ASSIGN(const pipeline::PipelinePtr base, pipeline_for(session, request));
  const Peer& peer = session->connection->peer();
  job::JobKey key{.uid = peer.uid, .job = request.job, .pipeline = base->id()};
  JobPtr known;
  if (key.job.empty()) {
    key.job = "private-" + std::to_string(peer.pid) + "-" + std::to_string(session->id);
  } else {
    SPDLD_ASSIGN(known, revive(key, request, peer));
  }
  // A job that goes on needs none of it: it may run an earlier text, with other variables.
  const auto pipeline =
      deps_.catalogue.variant(base, request.vars, request.batch_size, peer, progress_to(session));
  SPDLD_ASSIGN(const stream::Readings readings, readings_for(key, peer, progress_to(session)));
  SPDLD_ASSIGN(const bool claimed, claim(session, key, pipeline, request, known, readings));
  if (!claimed) return {};
  const pipeline::PipelinePtr runs = look_at_data(session);
  const std::vector<std::string> told = runs->warnings();
  for (bool begun = false; !begun;) {
    SPDLD_TRY(open_gpu(session));
    SPDLD_ASSIGN(begun, begin_with_room(session, request));
  }
  // It has its batches by now. Who came by name knows that the daemon's pipeline counts.
  if (request.pipeline_yaml.empty()) return {};
  const auto goes_on = [this](std::uint64_t, const std::string&) {
    MutexLock lock(mutex_);
    return !suspended_;
  };
  const std::string change = deps_.catalogue.look_for_changes(*runs, goes_on);
  if (!change.empty() && std::find(told.begin(), told.end(), change) == told.end())
    session->connection->send_notice(change);
  return {};
}

pipeline::PipelinePtr Sessions::look_at_data(const SessionPtr& session) {
  std::vector<pipeline::PipelinePtr> pipelines;
  {
    MutexLock lock(mutex_);
    for (const stream::Timeline::Cut& cut : session->job->state.timeline.cuts())
      pipelines.push_back(cut.phase->pipeline);
  }
  for (const pipeline::PipelinePtr& pipeline : pipelines) pipeline->source->look_again();
  return pipelines.back();
}

void Sessions::attach_again_waiting(Job& job) {
  if (suspended_) return;
  for (Job::WaitingAttach& waiting : std::exchange(job.waiting, {})) {
    const uid_t uid = waiting.session->connection->peer().uid;
    slow_.post(uid, [this, waiting = std::move(waiting)] {
      attach_slowly(waiting.session, waiting.request);
    });
  }
}

bool Sessions::is_brought(const std::string& pipeline) const {
  return std::any_of(brought_.begin(), brought_.end(),
                     [&](const auto& brought) { return brought.first.id == pipeline; });
}

void Sessions::stop_waiting(const SessionPtr& session) {
  for (const auto& [key, job] : jobs_) {
    const auto is_its = [&](const auto& waiting) { return waiting.session == session; };
    if (std::erase_if(job->waiting, is_its) == 0) continue;
    if (job->waiting.empty()) drop_if_unused(JobPtr(job));
    return;
  }
}

Result<std::shared_ptr<Consumer>> Sessions::connect(const Session& session,
                                                    const delivery::AttachRequest& request,
                                                    bool gpu_may_have_room,
                                                    stream::DeviceReserve& reserve) {
  Job& job = *session.job;
  SPDLD_ASSIGN(const Place place, place_of(job, session.member, request));
  std::vector<Jump> jumps = job.jumps_after(place.moves);
  if (!jumps.empty() && job.pending) return tl::unexpected<Status>(about_to_change(job));
  const stream::Timeline& of_job = job.timeline_after(place.moves);
  stream::Timeline own = of_job;
  if (place.position) own.resume(place.at, *place.position);
  const job::StepAt from = own.begin_of(session.member.shard, place.at, !place.position);
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
                      .halt = job.pending ? job.pending->first() : job::kNever,
                      .moves = place.moves,
                      .moves_seen = std::min(request.moves.value_or(0), place.moves),
                      .alone = job.is_private,
                      .passage = place.passage,
                      .jumps = std::move(jumps),
                      // Private jobs are not kept; what they brought is.
                      .granted = job.is_private && !is_brought(job.key.pipeline) ? kUnlimited : 0,
                      .ask_for_grant = [this] { keep_soon(); },
                      .open_epochs = job.state.open_epochs,
                      .last_known = job.last_known(),
                      .uid = session.connection->peer().uid,
                      .job = job.tag,
                      .gpu = session.gpu,
                      .gpu_may_have_room = gpu_may_have_room,
                      .meter = job.meter,
                      .judge = session.job,
                      .gain = job.gain,
                      .roll = job.roll},
      session.connection, streams_);
  SPDLD_TRY(consumer->connect(&reserve));
  if (!job.pending) return consumer;
  Status ready =
      consumer->prepare_swap(job.pending->from, job.pending->phase, job.pending->planned, &reserve);
  if (ready.ok()) return consumer;
  consumer->end(false);
  return tl::unexpected<Status>(std::move(ready));
}

// Asked again and again, as a process that has ended may give back memory there, too, which nobody
// tells the daemon.
Result<bool> Sessions::begin_with_room(const SessionPtr& session,
                                       const delivery::AttachRequest& request) {
  for (int waited = 0; waited < kRoomTries; ++waited) {
    auto begun = begin(session, request, true);
    if (begun || begun.error().code() != Code::kResourceExhausted || !may_get_room(*session))
      return begun;
    if (waited == 0)
      session->connection->send_progress(0, 0,
                                         "its GPU is full: maybe somebody is just leaving it");
    std::this_thread::sleep_for(kRoomInterval);
  }
  return begin(session, request, false);
}

// Who fails to come to a change that is prepared is through with its job.
bool Sessions::may_get_room(const Session& session) const {
  MutexLock lock(mutex_);
  return session.gpu != nullptr && !session.job->pending;
}

Result<bool> Sessions::begin(const SessionPtr& session, const delivery::AttachRequest& request,
                             bool gpu_may_have_room) {
  stream::DeviceReserve reserve;
  for (;;) {
    auto begun = begin(session, request, gpu_may_have_room, reserve);
    if (begun || !reserve.lacks()) return begun;
    reserve.fill();
  }
}

// What the consumer is told and what it starts from are one, whatever operators do to the job
// meanwhile; and its first seek finds it.
Result<bool> Sessions::begin(const SessionPtr& session, const delivery::AttachRequest& request,
                             bool gpu_may_have_room, stream::DeviceReserve& reserve) {
  std::shared_ptr<Consumer> consumer;
  {
    MutexLock lock(mutex_);
    await_written(session->job->key);
    if (session->closed) return error(Code::kCancelled, "the consumer left while it attached");
    const auto held = session->job->members.find(session->member);
    if (held == session->job->members.end() || held->second != session)
      return error(Code::kCancelled, "another one has taken its place while it attached");
    // What it would be given, the next daemon would not know of. It comes again by itself.
    if (suspended_) return error(Code::kUnavailable, "the daemon is stopping");
    Job& job = *session->job;
    for (const pipeline::PhasePtr& phase : job.phases()) {
      if (!has_opened_gpu(*session, *phase)) return false;  // a swap was prepared meanwhile
    }
    // The first one of a new run: it waits for all the others.
    if (job.members.size() == 1 && request.start == wire::StartMode::kFresh && !request.reconnect &&
        !awaits(job))
      job.roll->reset();
    SPDLD_ASSIGN(consumer, connect(*session, request, gpu_may_have_room, reserve));
    session->consumer = consumer;
    session->gpu.reset();
    job.membership.begin(session->member, consumer->view().next,
                         request.start == wire::StartMode::kCursor);
    if (!job.began) job.began = deps_.clock.now();
    job.record_is_old = true;
    {
      MutexLock routes_lock(routes_mutex_);
      routes_[session->id] = consumer;
    }
    welcome(*session);
    attach_again_waiting(job);
  }
  consumer->begin();
  return true;
}

void Sessions::welcome(const Session& session) const {
  const Job& job = *session.job;
  const Consumer& consumer = *session.consumer;
  const stream::Timeline timeline = consumer.timeline();
  const job::StepAt start = consumer.start();
  const pipeline::Phase& phase = *timeline.phase(timeline.settled(start));
  delivery::Connection& connection = *session.connection;
  std::vector<std::string> warnings = phase.pipeline->warnings();
  for (const std::string& warning : {session.gpu_warning, consumer.gpu_warning()}) {
    if (!warning.empty()) warnings.insert(warnings.begin(), warning);
  }
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
       .moves = consumer.moves(),
       .warnings = std::move(warnings),
       .device = consumer.reads_on()});
  log::About line = about(job.key, connection.peer().uid);
  line.session = session.id;
  line.pid = connection.peer().pid;
  log::info(line, "session {}: {} ({}) reads {} of job '{}' on pipeline '{}' from {}", session.id,
            session.process(), connection.client(),
            shard_text(session.member.shard, timeline.num_shards()), job.key.job, job.key.pipeline,
            place_text(start));
}

}  // namespace spdld::session
