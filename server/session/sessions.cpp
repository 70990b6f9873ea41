// SPDX-License-Identifier: Apache-2.0
#include "session/sessions.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace spdld::session {
namespace {

constexpr int kAttachThreads = 4;

}  // namespace

Sessions::Sessions(SessionsDeps deps) : deps_(deps), slow_("spdld-attach", kAttachThreads) {}

Sessions::~Sessions() { stop(); }

void Sessions::stop() {
  slow_.stop();
  std::vector<std::shared_ptr<Feed>> feeds;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) {
      if (session->feed != nullptr) feeds.push_back(session->feed);
    }
  }
  for (const auto& feed : feeds) feed->end();
}

std::size_t Sessions::attached() const {
  MutexLock lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      sessions_.begin(), sessions_.end(), [](const auto& entry) { return !entry.second->closed; }));
}

void Sessions::heartbeat() {
  std::vector<SessionPtr> live;
  std::vector<SessionPtr> queued;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) {
      if (session->closed) continue;
      if (session->feed != nullptr) live.push_back(session);
      if (session->queued) queued.push_back(session);
    }
  }
  for (const SessionPtr& session : queued)
    session->connection->send_progress(0, 0, "other consumers attach first");
  for (const SessionPtr& session : live) {
    const std::string reason = session->feed->waits_for();
    if (!reason.empty())
      session->connection->send_progress(0, 0, "job '" + session->job->key.job + "': " + reason);
  }
}

SessionPtr Sessions::find(const delivery::Connection& connection) const {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(connection.id());
  return found == sessions_.end() ? nullptr : found->second;
}

std::shared_ptr<Feed> Sessions::feed_of(const delivery::Connection& connection) const {
  MutexLock lock(routes_mutex_);
  const auto found = routes_.find(connection.id());
  return found == routes_.end() ? nullptr : found->second;
}

void Sessions::attach(const delivery::ConnectionPtr& connection, delivery::AttachRequest request) {
  auto session = std::make_shared<Session>();
  session->id = connection->id();
  session->connection = connection;
  {
    MutexLock lock(mutex_);
    sessions_[session->id] = session;
  }
  slow_.post([this, session, request = std::move(request)] { attach_slowly(session, request); });
}

void Sessions::release(delivery::Connection& connection, std::uint64_t lease) {
  if (const auto feed = feed_of(connection)) feed->release(lease);
}

void Sessions::seek(delivery::Connection& connection, const delivery::SeekRequest& request) {
  const auto feed = feed_of(connection);
  if (feed == nullptr) return;
  Status sought =
      feed->seek({request.to.epoch, request.to.step}, request.to.position, request.serial);
  if (!sought.ok()) connection.fail(sought.with_context("seek"));
}

void Sessions::query(delivery::Connection& connection, const delivery::QueryRequest& request) {
  const SessionPtr session = find(connection);
  if (session == nullptr) return;
  JobPtr job;
  {
    MutexLock lock(mutex_);
    job = session->job;
  }
  if (job == nullptr) return;
  auto text = std::make_shared<std::string>();
  if (request.kind == wire::QueryKind::kClasses) {
    for (const std::string& name : job->pipeline->source->classes()) {
      *text += name;
      *text += '\0';
    }
    connection.send_blob(wire::BlobKind::kClasses, request.serial, text);
    return;
  }
  nlohmann::json stats{{"job", job->key.job},
                       {"pipeline", job->key.pipeline},
                       {"shard", session->shard},
                       {"replaced", job->failures.replaced()},
                       {"replace_budget", job->failures.budget()},
                       {"stages", nlohmann::json::array()}};
  for (const StageView& stage : stages({.uid = job->key.uid})) {
    if (stage.job != job->key.job || stage.pipeline != job->key.pipeline) continue;
    stats["stages"].push_back({{"stage", stage.stage},
                               {"tasks", stage.tasks},
                               {"failures", stage.failures},
                               {"busy_s", stage.busy_s},
                               {"wait_s", stage.wait_s},
                               {"p50_us", stage.p50_us},
                               {"p99_us", stage.p99_us}});
  }
  // A job's name is what its consumer says, UTF-8 or not.
  *text = stats.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  connection.send_blob(wire::BlobKind::kStats, request.serial, text);
}

void Sessions::detach(delivery::Connection& connection) {
  const SessionPtr session = find(connection);
  if (session == nullptr) return;
  std::shared_ptr<Feed> feed;
  {
    MutexLock lock(mutex_);
    leave(session);
    feed = session->feed;
  }
  if (feed != nullptr) feed->end();
}

void Sessions::closed(delivery::Connection& connection, delivery::CloseCause cause) {
  const SessionPtr session = find(connection);
  if (session == nullptr) return;
  std::shared_ptr<Feed> feed;
  {
    MutexLock lock(mutex_);
    leave(session);
    feed = session->feed;
  }
  spdlog::info("session {} (pid {}, {}) ended: {}", session->id, connection.peer().pid,
               connection.client(), delivery::close_cause_name(cause));
  if (feed == nullptr) return;
  feed->end();
  feed->retire();
}

void Sessions::exited(delivery::Connection& connection) {
  SessionPtr session;
  std::shared_ptr<Feed> feed;
  {
    MutexLock lock(mutex_);
    const auto found = sessions_.find(connection.id());
    if (found == sessions_.end()) return;
    session = found->second;
    sessions_.erase(found);
    feed = session->feed;
    if (feed != nullptr) {
      const Feed::View view = feed->view();
      past_.batches += view.batches;
      past_.rows += view.rows;
    }
  }
  {
    MutexLock lock(routes_mutex_);  // an attach that was still under way gives out no other now
    routes_.erase(connection.id());
  }
  if (feed == nullptr) return;
  if (auto arena = feed->reclaim()) deps_.arenas.give_back(std::move(arena), connection.peer().uid);
}

// The shard is free for another consumer; a job that nobody declared ends with its last one.
void Sessions::leave(const SessionPtr& session) {
  session->closed = true;
  if (session->job == nullptr) return;
  Job& job = *session->job;
  const auto held = job.shards.find(session->shard);
  if (held == job.shards.end() || held->second != session) return;
  job.shards.erase(held);
  if (job.shards.empty() && !job.declared) jobs_.erase(job.key);
}

bool Sessions::visible(const Caller& caller, const Job& job) const {
  return caller.uid == job.key.uid || deps_.catalogue.is_admin(caller.uid);
}

Result<JobPtr> Sessions::find_job(const Caller& caller, std::string_view job,
                                  std::string_view pipeline) const {
  std::vector<JobPtr> matches;
  for (const auto& [key, candidate] : jobs_) {
    if (key.job == job && (pipeline.empty() || key.pipeline == pipeline) &&
        visible(caller, *candidate))
      matches.push_back(candidate);
  }
  // One's own job wins over another's of the same name.
  if (matches.size() > 1) {
    const auto own = std::partition(matches.begin(), matches.end(), [&](const JobPtr& match) {
      return match->key.uid == caller.uid;
    });
    if (own - matches.begin() == 1) matches.resize(1);
  }
  if (matches.size() == 1) return matches.front();
  if (matches.empty()) {
    return error(Code::kNotFound,
                 "there is no job '" + std::string(job) + "'" +
                     (pipeline.empty() ? "" : " on pipeline '" + std::string(pipeline) + "'") +
                     " that uid " + std::to_string(caller.uid) +
                     " may see; 'spdlctl get jobs' lists what there is");
  }
  std::string names;
  for (const JobPtr& match : matches)
    names += (names.empty() ? "'" : ", '") + match->key.pipeline + "' (uid " +
             std::to_string(match->key.uid) + ")";
  return error(Code::kInvalidArgument, "job '" + std::string(job) +
                                           "' runs on several pipelines: " + names +
                                           "; say which with --pipeline");
}

std::uint32_t Sessions::jobs_on(const std::string& pipeline) const {
  MutexLock lock(mutex_);
  return static_cast<std::uint32_t>(
      std::count_if(jobs_.begin(), jobs_.end(),
                    [&](const auto& entry) { return entry.first.pipeline == pipeline; }));
}

}  // namespace spdld::session
