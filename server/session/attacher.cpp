// SPDX-License-Identifier: Apache-2.0
#include "session/attacher.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <utility>

#include "base/log.h"
#include "session/about.h"
#include "session/job_texts.h"
#include "session/place.h"

namespace spdld::session {
namespace {

constexpr int kAttachThreads = 5;  // one user has at most one less

// An attach waits for so long for memory on its GPU.
constexpr std::chrono::seconds kRoomPatience{3};

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

// What a consumer asks of its job is done on the keeper's thread.
class Attacher::Host final : public ConsumerHost, public std::enable_shared_from_this<Host> {
 public:
  Host(Keeper& keeper, Operator& operators, const JobPtr& job)
      : keeper_(keeper), operator_(operators), job_(job) {}

  void asks_for_grant() override { keeper_.keep_soon(); }
  void comes_to_planned() override {
    if (placing_.exchange(true)) return;
    post([this](const JobPtr& job) {
      placing_ = false;
      operator_.place_planned(job);
    });
  }
  void comes_to_entry() override {
    post([this](const JobPtr& job) { operator_.find_entries(job); });
  }

 private:
  template <typename Work>
  void post(Work work) {
    keeper_.post([host = shared_from_this(), work] {
      if (const JobPtr job = host->job_.lock()) work(job);
    });
  }

  Keeper& keeper_;
  Operator& operator_;
  const std::weak_ptr<Job> job_;
  std::atomic<bool> placing_ = false;
};

Attacher::Attacher(const Parts& parts)
    : deps_(parts.deps),
      table_(parts.table),
      records_(parts.records),
      streams_(parts.streams),
      router_(parts.router),
      keeper_(parts.keeper),
      operator_(parts.operators),
      drain_(parts.drain),
      pipelines_(parts.pipelines),
      gpus_(parts.gpus),
      runner_starts_(parts.runner_starts),
      claims_(parts.deps, parts.table, parts.records, parts.streams),
      threads_(std::make_shared<BlockingPool>("spdld-attach", kAttachThreads)) {
  table_.set_attaching([this](const SessionPtr& session, const delivery::AttachRequest& request) {
    post_attach(session, request);
  });
}

void Attacher::attach(const delivery::ConnectionPtr& connection,
                      const delivery::AttachRequest& request) {
  const auto session = std::make_shared<Session>(connection, request);
  {
    MutexLock lock(table_.mutex());
    table_.sessions()[session->id] = session;
  }
  post_attach(session, request);
}

void Attacher::post_attach(const SessionPtr& session, const delivery::AttachRequest& request) {
  session->queued = true;
  threads_->post(session->connection->peer().uid,
                 [this, session, request] { attach_slowly(session, request); });
}

std::shared_ptr<pipeline::ListingAsker> Attacher::asker_of(const SessionPtr& session,
                                                           const delivery::AttachRequest& request) {
  MutexLock lock(table_.mutex());
  if (session->closed) return nullptr;
  if (session->asker == nullptr)
    session->asker =
        std::make_shared<pipeline::ListingAsker>([this, weak = std::weak_ptr(session), request] {
          if (const SessionPtr waits = weak.lock()) post_attach(waits, request);
        });
  return session->asker;
}

void Attacher::attach_slowly(const SessionPtr& session, const delivery::AttachRequest& request) {
  session->queued = false;
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
    MutexLock lock(table_.mutex());
    table_.leave(session);
  }
  session->connection->fail(status);
}

Status Attacher::try_attach(const SessionPtr& session, delivery::AttachRequest request) {
  SPDLD_TRY(check_world(request.num_shards.value_or(1), request.replicas));
  SPDLD_TRY(check_job_name(request.job));
  SPDLD_ASSIGN(const std::uint32_t replica, replica_of(request));
  bool has_place = false;
  {
    MutexLock lock(table_.mutex());
    session->member.replica = replica;
    has_place = session->job != nullptr;
  }
  if (!has_place) {
    SPDLD_TRY(drain_.check_attach(*session, request));
    SPDLD_ASSIGN(has_place, take_place(session, request));
    if (!has_place) return {};
  }
  const pipeline::PipelinePtr runs = look_at_data(session);
  const std::vector<std::string> told = runs->warnings();
  for (bool has_begun = false; !has_begun;) {
    SPDLD_TRY(gpus_.open(session));
    SPDLD_ASSIGN(const std::optional<bool> begun, begin_with_room(session, request));
    if (!begun) return {};
    has_begun = *begun;
  }
  start_runners(*session);
  // It has its batches by now. Who came by name knows that the daemon's pipeline counts.
  if (!request.pipeline_yaml.empty()) tell_of_changes(session->connection, runs, told);
  return {};
}

Result<bool> Attacher::take_place(const SessionPtr& session, delivery::AttachRequest& request) {
  const auto asker = asker_of(session, request);
  if (asker == nullptr) return false;
  SPDLD_ASSIGN(const std::optional<pipeline::PipelinePtr> base,
               pipelines_.find(session, request, *asker));
  if (!base) return false;
  const Peer& peer = session->connection->peer();
  job::JobKey key{.uid = peer.uid, .job = request.job, .pipeline = (*base)->id()};
  std::optional<JobRecords::Revived> known = JobRecords::Revived();
  if (key.job.empty()) {
    key.job = "private-" + std::to_string(peer.pid) + "-" + std::to_string(session->id);
  } else {
    SPDLD_ASSIGN(known, records_.revive(key, request, peer, *asker));
  }
  if (!known) return false;
  // A job that goes on needs none of it: it may run an earlier text, with other variables.
  const auto variant = deps_.catalogue.variant(
      *base, {.vars = request.vars, .batch_size = request.batch_size, .reader = peer}, *asker);
  if (variant && !*variant) return false;
  const auto pipeline = variant.map([](const auto& there) { return *there; });
  SPDLD_ASSIGN(const std::optional<Readings> readings, claims_.readings_for(key, peer, *asker));
  if (!readings) return false;
  return claims_.claim(session, key, pipeline, request, *known, *readings);
}

void Attacher::tell_of_changes(const delivery::ConnectionPtr& connection,
                               const pipeline::PipelinePtr& pipeline,
                               const std::vector<std::string>& told) {
  std::shared_ptr<pipeline::ListingAsker> asker;
  {
    MutexLock lock(table_.mutex());
    std::shared_ptr<pipeline::ListingAsker>& looks = looks_[connection->id()];
    if (looks == nullptr)
      looks = std::make_shared<pipeline::ListingAsker>([this, connection, pipeline, told] {
        threads_->post(connection->peer().uid, [this, connection, pipeline, told] {
          tell_of_changes(connection, pipeline, told);
        });
      });
    asker = looks;
  }
  const auto change = deps_.catalogue.look_for_changes(*pipeline, *asker);
  if (change && !*change) return;
  if (change && !(*change)->empty() && std::find(told.begin(), told.end(), **change) == told.end())
    connection->send_notice(**change);
  MutexLock lock(table_.mutex());
  looks_.erase(connection->id());
}

void Attacher::start_runners(const Session& session) {
  MutexLock lock(table_.mutex());
  if (session.closed || session.job == nullptr) return;
  const Job& job = *session.job;
  for (const pipeline::PhasePtr& phase : job.phases()) runner_starts_.ask(job, *phase->run);
}

pipeline::PipelinePtr Attacher::look_at_data(const SessionPtr& session) {
  std::vector<pipeline::PipelinePtr> pipelines;
  {
    MutexLock lock(table_.mutex());
    const JobPlan& plan = *session->job->state.plan;
    for (const pipeline::PhasePtr& phase : session->job->phases())
      pipelines.push_back(phase->pipeline);
    pipelines.push_back(plan.last_phase()->pipeline);
  }
  for (const pipeline::PipelinePtr& pipeline : pipelines) pipeline->source->look_again();
  return pipelines.back();
}

Result<std::shared_ptr<Consumer>> Attacher::connect(const Session& session,
                                                    const delivery::AttachRequest& request,
                                                    bool gpu_may_have_room,
                                                    stream::DeviceReserve& reserve) {
  Job& job = *session.job;
  SPDLD_ASSIGN(const Place place, place_of(job, session.member, request));
  const JobPlanPtr& plan = job.state.plan;
  // Private jobs are not kept; what they brought is.
  const bool kept = !job.is_private || keeper_.is_brought(job.key.pipeline);
  auto consumer = std::make_shared<Consumer>(
      ConsumerOptions{.plan = plan,
                      .own = place.own,
                      .turn = place.turn,
                      .way = {.shard = session.member.shard,
                              .replica = session.member.replica,
                              .replicas = job.replicas,
                              .absent = job.absent,
                              .follows = place.follows,
                              .gpu_may_have_room = gpu_may_have_room,
                              .credits = request.credits,
                              .uid = session.connection->peer().uid,
                              .job = job.tag,
                              .meter = job.meter,
                              .presence = job.presence},
                      .job = {.host = std::make_shared<Host>(keeper_, operator_, session.job),
                              .judge = session.job,
                              .gain = job.gain},
                      .granted = kept ? 0 : job::kNoTurn,
                      .open_epochs = job.state.open_epochs,
                      .last_known = job.last_known(),
                      .gpu = session.gpu},
      session.connection, streams_);
  SPDLD_TRY(consumer->connect(&reserve));
  return consumer;
}

pipeline::Asked<bool> Attacher::begin_with_room(const SessionPtr& session,
                                                const delivery::AttachRequest& request) {
  auto begun = begin(session, request, true);
  if (begun || begun.error().code() != Code::kResourceExhausted) return begun;
  {
    MutexLock lock(table_.mutex());
    if (session->gpu == nullptr) return begun;
    const std::chrono::nanoseconds now = deps_.clock.now();
    if (!session->room_until) session->room_until = now + kRoomPatience;
    if (now < *session->room_until && !session->closed) {
      ShardClaims::wait(*session->job, session, request,
                        "its GPU is full: another consumer may be leaving it");
      return std::optional<bool>();
    }
  }
  return begin(session, request, false);
}

void Attacher::stop() {
  threads_->stop();
  MutexLock lock(table_.mutex());
  looks_.clear();
}

void Attacher::attach_again_for_room() {
  MutexLock lock(table_.mutex());
  for (const auto& [key, job] : table_.jobs()) {
    const auto waits_for_room = [](const Job::WaitingAttach& waiting) {
      return waiting.session->room_until.has_value();
    };
    std::vector<Job::WaitingAttach>& waiting = job->waiting;
    const auto first =
        std::stable_partition(waiting.begin(), waiting.end(), std::not_fn(waits_for_room));
    for (auto attach = first; attach != waiting.end(); ++attach)
      table_.attach_again(attach->session, attach->request);
    waiting.erase(first, waiting.end());
  }
}

void Attacher::left_gpu(const delivery::DeviceMemoryPtr& gpu) {
  // Behind what gives back its memory.
  gpu->post([this, pool = std::weak_ptr(threads_)] {
    if (const auto slow = pool.lock()) slow->post([this] { attach_again_for_room(); });
  });
}

pipeline::Asked<bool> Attacher::begin(const SessionPtr& session,
                                      const delivery::AttachRequest& request,
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
pipeline::Asked<bool> Attacher::begin(const SessionPtr& session,
                                      const delivery::AttachRequest& request,
                                      bool gpu_may_have_room, stream::DeviceReserve& reserve) {
  std::shared_ptr<Consumer> consumer;
  {
    MutexLock lock(table_.mutex());
    if (session->closed) return error(Code::kCancelled, "the consumer left while it attached");
    const auto held = session->job->members.find(session->member);
    if (held == session->job->members.end() || held->second != session)
      return error(Code::kCancelled, "another one has taken its place while it attached");
    // What it would be given, the next daemon would not know of. It comes again by itself.
    if (table_.suspended()) return error(Code::kUnavailable, "the daemon is stopping");
    Job& job = *session->job;
    if (job.being_written) {
      ShardClaims::wait(job, session, request, ShardClaims::kWaitsForWrite);
      return std::optional<bool>();
    }
    for (const pipeline::PhasePtr& phase : job.phases()) {
      // A swap was prepared meanwhile.
      if (!has_opened_gpu(*session, *phase)) return std::optional(false);
    }
    // The first one of a new run: it waits for all the others.
    if (job.members.size() == 1 && request.start == wire::StartMode::kFresh && !request.reconnect &&
        !table_.awaits(job))
      job.presence->reset();
    SPDLD_ASSIGN(consumer, connect(*session, request, gpu_may_have_room, reserve));
    session->consumer = consumer;
    session->replaced.reset();
    session->gpu.reset();
    job.membership.begin(session->member, consumer->view().progress);
    job.forget_entries();
    if (!job.gathering.began) job.gathering.began = deps_.clock.now();
    job.record.is_old = true;
    router_.put(session->id, consumer);
    welcome(*session);
    table_.attach_again_waiting(job);
  }
  consumer->begin();
  return std::optional(true);
}

void Attacher::welcome(const Session& session) const {
  const Job& job = *session.job;
  const Consumer::Start start = session.consumer->start();
  const pipeline::Phase& phase = *start.phase;
  delivery::Connection& connection = *session.connection;
  std::vector<std::string> warnings = phase.pipeline->warnings();
  for (const std::string& warning : {session.gpu_warning, start.gpu_warning}) {
    if (!warning.empty()) warnings.insert(warnings.begin(), warning);
  }
  connection.send_attached(
      {.session = session.id,
       .items = phase.items,
       .steps_per_epoch = start.steps_per_epoch,
       .batch_size = phase.batch,
       .seed = static_cast<std::int64_t>(job.seed),
       .shard = session.member.shard,
       .num_shards = job.num_shards(),
       .replicas = job.replicas,
       .credits = start.credits,
       .start = {.epoch = start.place.at.epoch,
                 .position = start.place.position,
                 .step = start.place.at.step},
       .in_run = {.run = job.schedule().run(),
                  .branch = job.schedule().branch(),
                  .turn = start.turn},
       .epochs = job.max_epochs,
       .pipeline_version = phase.version(),
       .order_digest = phase.order_text(),
       .pipeline = deps_.pipelines.name_for(connection.peer().uid, job.key.pipeline),
       .job = job.key.job,
       .warnings = std::move(warnings),
       .device = start.gpu});
  log::About line = about(job.key, connection.peer().uid);
  line.session = session.id;
  line.pid = connection.peer().pid;
  log::info(line, "session {}: {} ({}) reads {} of job '{}' on pipeline '{}' from {}", session.id,
            session.process(), connection.client(),
            shard_text(session.member.shard, job.num_shards()), job.key.job, job.key.pipeline,
            place_text(start.place.at));
}

}  // namespace spdld::session
