// SPDX-License-Identifier: Apache-2.0
// How a consumer comes to its shard: the part of Sessions that runs on the blocking pool.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

constexpr std::uint32_t kSchemaId = 1;

std::string shard_text(std::uint32_t shard, std::uint32_t num_shards) {
  return "shard " + std::to_string(shard) + " of " + std::to_string(num_shards);
}

// What identifies an order to a cursor, and lets its error say how many items there were.
std::string order_text(const source::Order& order) {
  return order.digest() + "-" + std::to_string(order.items);
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
  spdlog::warn("attach of pid {} to pipeline '{}' refused: {}", session->connection->peer().pid,
               request.pipeline, status.message());
  {
    MutexLock lock(mutex_);
    leave(session);
  }
  session->connection->fail(status);
}

Status Sessions::try_attach(const SessionPtr& session, const delivery::AttachRequest& request) {
  if (request.replicas != 1)
    return Status(Code::kInvalidArgument,
                  "replicas=" + std::to_string(request.replicas) +
                      ": this version gives each shard to one consumer; leave replicas at 1");
  if (request.start == wire::StartMode::kLedger)
    return Status(
        Code::kInvalidArgument,
        "start=\"ledger\": this version keeps no ledger; resume from a saved state_dict()");
  SPDLD_ASSIGN(const PipelinePtr pipeline, pipeline_for(session, request));
  SPDLD_TRY(claim(session, pipeline, request));

  const JobPtr job = session->job;
  const engine::Plan& plan = *job->pipeline->plan;
  const std::uint32_t credits =
      std::clamp(request.credits.value_or(static_cast<std::uint32_t>(plan.spec.delivery.prefetch)),
                 wire::kMinCredits, wire::kMaxCredits);
  const delivery::ArenaShape shape{.kind = deps_.arena_kind,
                                   .slot_bytes = plan.layout.slot_bytes(),
                                   .slot_count = plan.slots_for(credits)};
  auto arena = deps_.arenas.take(shape, session->connection->peer().uid);
  if (!arena)
    return arena.error().with_context("pipeline '" + job->key.pipeline + "' needs " +
                                      std::to_string(shape.slot_count) + " slots of " +
                                      delivery::format_bytes(shape.slot_bytes) + " for " +
                                      "shard " + std::to_string(session->shard));
  return begin(session, request, credits, std::move(*arena));
}

// What the consumer is told and what its feed starts from are one, whatever operators do to the job
// meanwhile; and its first seek finds the feed.
Status Sessions::begin(const SessionPtr& session, const delivery::AttachRequest& request,
                       std::uint32_t credits, std::unique_ptr<delivery::Arena> arena) {
  const JobPtr job = session->job;
  const engine::Plan& plan = *job->pipeline->plan;
  const delivery::Arena& memory = *arena;
  delivery::Connection& connection = *session->connection;
  std::shared_ptr<Feed> feed;
  {
    MutexLock lock(mutex_);
    if (session->closed) return Status(Code::kCancelled, "the consumer left while it attached");
    SPDLD_ASSIGN(const Place place, place_of(*job, session->shard, request));
    Timeline timeline = job->timeline;
    // Who lost its connection is still where it was when the job was resized; who comes with a
    // saved cursor comes with all the ranks that there are now.
    if (place.position && request.reconnect) timeline.resume(place.at, *place.position);
    if (place.position && !request.reconnect) timeline.redeal(place.at, *place.position);
    const source::Sharding sharding = timeline.sharding(place.at);
    feed = std::make_shared<Feed>(FeedOptions{.timeline = job->timeline,
                                              .shard = session->shard,
                                              .credits = credits,
                                              .start = place.at,
                                              .own = timeline,
                                              .open_epochs = job->open_epochs,
                                              .last_known = job->last_known(),
                                              .slot_bytes = plan.layout.slot_bytes(),
                                              .schema_id = kSchemaId},
                                  std::move(arena), session->connection, deps_.executor, job);
    session->feed = feed;
    {
      MutexLock routes_lock(routes_mutex_);
      routes_[session->id] = feed;
    }
    connection.send_attached(
        {.session = session->id,
         .items = timeline.items(),
         .steps_per_epoch = timeline.steps_per_epoch(),
         .batch_size = job->batch_size(),
         .seed = static_cast<std::int64_t>(job->seed),
         .shard = session->shard,
         .num_shards = timeline.num_shards(),
         .replicas = 1,
         .credits = credits,
         .start = {.epoch = place.at.epoch,
                   .position = sharding.position_of(std::min(place.at.step, sharding.end_step())),
                   .step = place.at.step},
         .epochs = job->max_epochs,
         .pipeline_version = job->pipeline->version,
         .order_digest = order_text(job->pipeline->order(job->seed)),
         .pipeline = job->key.pipeline,
         .job = job->key.job});
    connection.send_arena_open(memory);
    connection.send_schema(kSchemaId, job->pipeline->version, plan.layout.fields());
    spdlog::info(
        "session {}: pid {} ({}) reads {} of job '{}' on pipeline '{}' from epoch {}, step {}",
        session->id, connection.peer().pid, connection.client(),
        shard_text(session->shard, timeline.num_shards()), job->key.job, job->key.pipeline,
        place.at.epoch, place.at.step);
  }
  feed->bind(deps_.executor.open_stream(job->run, feed));
  return {};
}

Result<PipelinePtr> Sessions::pipeline_for(const SessionPtr& session,
                                           const delivery::AttachRequest& request) {
  const auto progress = [&](std::uint64_t items, const std::string& what) {
    return session->connection->send_progress(items, 0, what);
  };
  const uid_t uid = session->connection->peer().uid;
  PipelinePtr base;
  if (request.pipeline_yaml.empty()) {
    SPDLD_ASSIGN(base, deps_.catalogue.get(request.pipeline));
  } else {
    ApplyRequest submitted;
    submitted.yaml = request.pipeline_yaml;
    submitted.file = request.pipeline_file;
    submitted.env = request.env;
    SPDLD_ASSIGN(PipelinePtr built, deps_.catalogue.build(uid, submitted, progress));
    base = deps_.catalogue.find(built->name());
    if (base != nullptr && base->content_digest != built->content_digest)
      return error(Code::kAlreadyExists,
                   "the daemon has a pipeline '" + built->name() + "' (version " +
                       std::to_string(base->version) +
                       ") that differs from the one that this loader brings: give it another name, "
                       "or change the daemon's with 'spdlctl apply'");
    if (base == nullptr) {
      SPDLD_ASSIGN(base, deps_.catalogue.put(uid, std::move(built)));
      if (Status kept = deps_.store.put_pipeline({.name = base->name(),
                                                  .version = base->version,
                                                  .owner = base->owner,
                                                  .request = base->request});
          !kept.ok())
        spdlog::warn("{}; a restart will not know pipeline '{}'", kept.message(), base->name());
    }
  }
  return deps_.catalogue.variant(base, request.vars, request.batch_size, progress);
}

Status Sessions::claim(const SessionPtr& session, const PipelinePtr& pipeline,
                       const delivery::AttachRequest& request) {
  const delivery::Peer& peer = session->connection->peer();
  JobKey key{.uid = peer.uid, .job = request.job, .pipeline = pipeline->name()};
  if (key.job.empty())
    key.job = "private-" + std::to_string(peer.pid) + "-" + std::to_string(session->id);

  MutexLock lock(mutex_);
  if (session->closed) return Status(Code::kCancelled, "the consumer left while it attached");
  SPDLD_ASSIGN(const JobPtr job, join_job(key, pipeline, request));
  Status claimed = claim_shard(session, job, request);
  // A job that its first rank made must not stay when that rank does not.
  if (!claimed.ok() && job->shards.empty() && !job->declared) jobs_.erase(key);
  return claimed;
}

Result<JobPtr> Sessions::join_job(const JobKey& key, const PipelinePtr& pipeline,
                                  const delivery::AttachRequest& request) {
  const auto known = jobs_.find(key);
  const JobPtr before = known == jobs_.end() ? nullptr : known->second;
  const bool newer = before != nullptr && request.incarnation > before->incarnation;
  if (before != nullptr && request.incarnation < before->incarnation)
    return error(Code::kFailedPrecondition,
                 "job '" + key.job + "' is at restart " + std::to_string(before->incarnation) +
                     ", and this process belongs to restart " +
                     std::to_string(request.incarnation) + ", which has been evicted");
  JobPtr job = before;
  if (before != nullptr && (before->declared || !newer)) {
    SPDLD_TRY(check_facts(*before, request));
  } else {
    SPDLD_ASSIGN(job, make_job(key, pipeline,
                               request.seed ? static_cast<std::uint64_t>(*request.seed)
                                            : pipeline->plan->spec.seed,
                               request.num_shards.value_or(1), request.job.empty()));
    job->vars = request.vars;
  }
  SPDLD_TRY(check_shard(*job, request));
  // Nothing can go wrong any more: a newer incarnation takes the job over from what is left of the
  // older one.
  if (newer) {
    for (const auto& [shard, session] : before->shards)
      session->connection->bye(wire::ByeReason::kEvicted,
                               "restart " + std::to_string(request.incarnation) + " of job '" +
                                   key.job + "' has taken over from restart " +
                                   std::to_string(before->incarnation));
    before->shards.clear();
  }
  job->incarnation = request.incarnation;
  jobs_[key] = job;
  return job;
}

Status Sessions::check_shard(const Job& job, const delivery::AttachRequest& request) {
  const std::uint32_t num_shards = job.timeline.num_shards();
  if (!request.shard || *request.shard < num_shards) return {};
  return Status(Code::kInvalidArgument,
                "job '" + job.key.job + "' has " + std::to_string(num_shards) + " shards, 0 to " +
                    std::to_string(num_shards - 1) + "; there is no shard " +
                    std::to_string(*request.shard));
}

Result<JobPtr> Sessions::make_job(JobKey key, PipelinePtr pipeline, std::uint64_t seed,
                                  std::uint32_t num_shards, bool is_private) {
  if (num_shards < 1 || num_shards > kMaxShards)
    return error(Code::kInvalidArgument, "num_shards " + std::to_string(num_shards) +
                                             " is not between 1 and " + std::to_string(kMaxShards));
  const engine::Plan& plan = *pipeline->plan;
  const std::uint64_t items = pipeline->source->size();
  std::set<std::uint64_t> replaced;
  if (!is_private) {
    if (auto kept = deps_.store.replaced(key)) {
      replaced = std::move(*kept);
    } else {
      spdlog::warn("{}; the replacement budget of job '{}' starts anew", kept.error().message(),
                   key.job);
    }
  }
  auto run = std::make_shared<engine::Run>(pipeline->plan, pipeline->source,
                                           source::Sampler(items, plan.spec.shuffle, seed), seed,
                                           deps_.executor.threads(), 1.0, deps_.clock);
  auto job =
      std::make_shared<Job>(std::move(key), std::move(pipeline), std::move(run), seed, num_shards,
                            std::move(replaced), is_private ? nullptr : &deps_.store);
  job->is_private = is_private;
  if (job->timeline.steps_per_epoch() == 0)
    return error(Code::kFailedPrecondition,
                 "pipeline '" + job->key.pipeline + "' has " + std::to_string(items) +
                     " items, and " + std::to_string(num_shards) + " shard(s) with batches of " +
                     std::to_string(job->batch_size()) +
                     " make no single step of them: lower the batch size or the number of shards, "
                     "or set 'batch: {last: pad}'");
  return job;
}

Status Sessions::check_facts(const Job& job, const delivery::AttachRequest& request) const {
  const auto differs = [&](const char* what, std::uint64_t has, std::uint64_t wants) {
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job + "' has " + what + " " + std::to_string(has) +
                      ", and this consumer wants " + std::to_string(wants) +
                      (job.declared ? ": attach with the job's, or change it with 'spdlctl job'"
                                    : ": attach with the job's, or choose another job name"));
  };
  // Who lost its connection cannot know of a resize since then, and is told of it by the answer.
  const bool missed_a_resize = request.reconnect && job.declared;
  if (request.num_shards && *request.num_shards != job.timeline.num_shards() && !missed_a_resize)
    return differs("num_shards", job.timeline.num_shards(), *request.num_shards);
  if (request.seed && static_cast<std::uint64_t>(*request.seed) != job.seed)
    return differs("seed", job.seed, static_cast<std::uint64_t>(*request.seed));
  if (request.batch_size && *request.batch_size != job.batch_size())
    return differs("batch_size", job.batch_size(), *request.batch_size);
  for (const auto& [name, value] : request.vars) {
    const auto has = job.pipeline->plan->spec.vars.find(name);
    if (has != job.pipeline->plan->spec.vars.end() && has->second != value)
      return Status(Code::kFailedPrecondition, "job '" + job.key.job + "' runs with " + name + "=" +
                                                   has->second + ", and this consumer wants " +
                                                   name + "=" + value +
                                                   ": all ranks of a job must give the same vars");
  }
  return {};
}

Status Sessions::claim_shard(const SessionPtr& session, const JobPtr& job,
                             const delivery::AttachRequest& request) {
  const std::uint32_t num_shards = job->timeline.num_shards();
  std::uint32_t shard = 0;
  if (request.shard) {
    shard = *request.shard;
  } else {
    while (shard < num_shards && job->shards.contains(shard)) ++shard;
    if (shard == num_shards)
      return Status(Code::kResourceExhausted,
                    "job '" + job->key.job + "' has " + std::to_string(num_shards) +
                        " shards, and each has its consumer: resize the job, or let one detach");
  }
  if (const auto held = job->shards.find(shard); held != job->shards.end()) {
    const delivery::Connection& holder = *held->second->connection;
    // The same process comes back after it lost its connection: what it had is of no more use to
    // it.
    if (!request.reconnect || holder.peer().pid != session->connection->peer().pid)
      return Status(Code::kAlreadyExists,
                    shard_text(shard, num_shards) + " of job '" + job->key.job +
                        "' is read by pid " + std::to_string(holder.peer().pid) + " (session " +
                        std::to_string(held->second->id) +
                        "): give each rank its own shard, or end that one with 'spdlctl evict " +
                        std::to_string(held->second->id) + "'");
    held->second->connection->bye(wire::ByeReason::kEvicted, "the same process has reconnected");
  }
  session->job = job;
  session->shard = shard;
  job->shards[shard] = session;
  return {};
}

Result<Sessions::Place> Sessions::place_of(const Job& job, std::uint32_t shard,
                                           const delivery::AttachRequest& request) {
  if (request.start != wire::StartMode::kCursor) {
    StepAt start = job.start;
    // A shard that a resize brought begins where it came to be.
    for (const Timeline::Cut& cut : job.timeline.cuts()) {
      if (shard < job.timeline.sharding(start).segment().num_shards) break;
      start = std::max(start, cut.from);
    }
    return Place{.at = start, .position = std::nullopt};
  }
  const source::Order order = job.pipeline->order(job.seed);
  if (!request.order_digest.empty() && request.order_digest != order_text(order)) {
    source::Cursor cursor{.order = request.order_digest,
                          .items = 0,
                          .seed = order.seed,
                          .epoch = request.cursor.epoch,
                          .position = request.cursor.position,
                          .step = request.cursor.step};
    if (const auto dash = request.order_digest.rfind('-'); dash != std::string::npos) {
      cursor.order = request.order_digest.substr(0, dash);
      cursor.items = std::strtoull(request.order_digest.c_str() + dash + 1, nullptr, 10);
    }
    Status changed = source::check(cursor, order);
    if (changed.ok())
      changed = Status(Code::kInvalidArgument, "the cursor's order '" + request.order_digest +
                                                   "' is none that this daemon gave out");
    return tl::unexpected<Status>(changed.with_context("pipeline '" + job.key.pipeline + "'"));
  }
  const Place place{.at = {request.cursor.epoch, request.cursor.step},
                    .position = request.cursor.position};
  SPDLD_TRY(job.timeline.check(place.at, *place.position));
  return place;
}

}  // namespace spdld::session
