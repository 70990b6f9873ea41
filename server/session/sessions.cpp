// SPDX-License-Identifier: Apache-2.0
#include "session/sessions.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "session/about.h"

namespace spdld::session {
namespace {

constexpr int kAttachThreads = 5;  // one user has at most one less

// How a session ended whose consumer did not say so.
std::string parting_of(delivery::CloseCause cause) {
  switch (cause) {
    case delivery::CloseCause::kExit: return "its process ended without closing it";
    case delivery::CloseCause::kHangUp: return "its connection was lost";
    case delivery::CloseCause::kProtocol: return "its client broke the protocol";
    case delivery::CloseCause::kOverflow: return "its client did not read what it was sent";
    case delivery::CloseCause::kServer: return "the daemon ended it";
  }
  return "for an unknown reason";
}

}  // namespace

Sessions::Sessions(SessionsDeps deps)
    : deps_(deps),
      trials_(deps.executor, deps.clock),
      started_(deps.clock.now()),
      streams_(deps.executor, deps.arenas, deps.arena_kind, deps.clock),
      closed_unused_at_(started_),
      slow_("spdld-attach", kAttachThreads),
      applying_("spdld-apply", 1),
      queries_("spdld-query", 2),
      keeper_("spdld-keep", 1) {
  deps_.catalogue.set_letting_go([this] { streams_.drop_ended(); });
}

Sessions::~Sessions() { stop(); }

void Sessions::suspend() {
  {
    MutexLock lock(mutex_);
    suspended_ = true;
  }
  keep();
}

void Sessions::stop() {
  queries_.stop();
  applying_.stop();
  slow_.stop();
  keeper_.stop();
  keep();  // where everybody was, for the next daemon
  std::vector<std::shared_ptr<Consumer>> consumers;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) {
      if (session->consumer != nullptr) consumers.push_back(session->consumer);
    }
  }
  for (const auto& consumer : consumers) consumer->end(true);
}

std::vector<std::string> Sessions::warnings() const {
  MutexLock lock(mutex_);
  if (keep_failed_.ok()) return {};
  return {"where jobs are is not kept: " + keep_failed_.message()};
}

std::size_t Sessions::attached() const {
  MutexLock lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      sessions_.begin(), sessions_.end(), [](const auto& entry) { return !entry.second->closed; }));
}

void Sessions::heartbeat() {
  struct Waiting {
    SessionPtr session;
    std::string job;
    bool starves = false;
    bool comes_on = false;  // what it waits for, since the last time
    std::string stands_at;
  };
  std::vector<Waiting> live;
  std::vector<SessionPtr> queued;
  std::vector<SessionPtr> applying;
  {
    MutexLock lock(mutex_);
    applying.assign(applies_.begin(), applies_.end());
    for (const auto& [id, session] : sessions_) {
      if (session->closed) continue;
      if (session->queued) queued.push_back(session);
      if (session->consumer == nullptr) continue;
      const job::StepAt next = session->consumer->view().next;
      const engine::Run& run = *session->job->state.timeline.phase(next)->run;
      const std::uint64_t tasks = run.fetch_stats().tasks() + run.process_stats().tasks();
      const bool works = std::exchange(session->seen_tasks, tasks) != tasks;
      Waiting& waiting = live.emplace_back();
      waiting.session = session;
      waiting.job = session->job->key.job;
      waiting.starves = session->consumer->starves();
      if (!waiting.starves) continue;
      engine::Executor::Headway headway = session->consumer->headway();
      const bool moves = std::exchange(session->seen_moves, headway.moves) != headway.moves;
      // Rows of other shards are made before its own, or instead of some that do not come.
      waiting.comes_on = moves || (works && !headway.own);
      waiting.stands_at = std::move(headway.doing);
    }
    for (const auto& [key, job] : jobs_) {
      for (const Job::WaitingAttach& attach : job->waiting)
        attach.session->connection->send_progress(0, 0, attach.reason);
    }
  }
  for (const SessionPtr& session : queued)
    session->connection->send_progress(0, 0, "other consumers attach first");
  for (const SessionPtr& session : applying)
    session->connection->send_progress(0, 0, "the change of the pipeline is being prepared");
  for (const Waiting& waiting : live) {
    const std::string job = "job '" + waiting.job + "': ";
    delivery::Connection& connection = *waiting.session->connection;
    std::string reason = waiting.session->consumer->waits_for();
    if (reason.empty() && waiting.comes_on) reason = "the next batch is in the making";
    if (!reason.empty()) {
      connection.send_progress(0, 0, job + reason);
    } else if (waiting.starves) {
      connection.send_standstill(
          job + (waiting.stands_at.empty()
                     ? "nothing of its next batch has begun, all threads work for other jobs; "
                       "'spdlctl get stages' shows them, and 'spdlctl job limit --weight' shifts "
                       "shares"
                     : waiting.stands_at));
    }
  }
}

void Sessions::tick() {
  {
    MutexLock lock(mutex_);
    take_rates();
  }
  if (will_tick_.exchange(true)) return;  // the disk is slow: one waits already
  keeper_.post([this] {
    will_tick_ = false;
    streams_.tick();
    class_texts_.forget_gone();
    keep();
    close_unused();
  });
}

void Sessions::keep_soon() {
  if (will_keep_.exchange(true)) return;
  keeper_.post([this] {
    will_keep_ = false;
    keep();
  });
}

SessionPtr Sessions::find(std::uint64_t id) const {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

std::shared_ptr<Consumer> Sessions::consumer_of(const delivery::Connection& connection) const {
  MutexLock lock(routes_mutex_);
  const auto found = routes_.find(connection.id());
  return found == routes_.end() ? nullptr : found->second;
}

void Sessions::attach(const delivery::ConnectionPtr& connection, delivery::AttachRequest request) {
  const auto session = std::make_shared<Session>(connection, request);
  {
    MutexLock lock(mutex_);
    sessions_[session->id] = session;
  }
  slow_.post(connection->peer().uid,
             [this, session, request = std::move(request)] { attach_slowly(session, request); });
}

void Sessions::release(delivery::Connection& connection, std::uint64_t lease) {
  if (const auto consumer = consumer_of(connection)) consumer->release(lease);
}

void Sessions::waited(delivery::Connection& connection, const delivery::WaitedNotice& notice) {
  if (const auto consumer = consumer_of(connection)) consumer->note_waited(notice);
}

void Sessions::seek(delivery::Connection& connection, const delivery::SeekRequest& request) {
  const auto consumer = consumer_of(connection);
  if (consumer == nullptr) return;
  Status sought = consumer->seek({request.to.epoch, request.to.step}, request.to.position,
                                 request.skip, request.serial);
  if (!sought.ok()) connection.fail(sought.with_context("seek"));
}

void Sessions::detach(delivery::Connection& connection) {
  const SessionPtr session = find(connection);
  if (session == nullptr) return;
  std::shared_ptr<Consumer> consumer;
  {
    MutexLock lock(mutex_);
    consumer = session->consumer;
  }
  // First, so that what is kept of the job knows that nobody waits for this one any more.
  if (consumer != nullptr) consumer->end(false);
  bool replicated = false;
  {
    MutexLock lock(mutex_);
    session->parting = "closed by its client";
    leave(session, true);
    replicated = session->job != nullptr && session->job->replicas > 1;
  }
  if (replicated) keep_soon();  // another daemon would wait for it
}

void Sessions::closed(delivery::Connection& connection, delivery::CloseCause cause) {
  const SessionPtr session = find(connection);
  if (session == nullptr) return;
  std::shared_ptr<Consumer> consumer;
  std::string parting;
  std::optional<job::JobKey> job;
  {
    MutexLock lock(mutex_);
    if (session->parting.empty()) session->parting = parting_of(cause);
    parting = session->parting;
    if (session->job != nullptr) job = session->job->key;
    session->closed = true;
    consumer = session->consumer;
  }
  // Before another session can take its place: that one must find its slots retired.
  if (consumer != nullptr) {
    consumer->end(true);
    consumer->retire();
  }
  {
    MutexLock lock(mutex_);
    leave(session);
  }
  log::About line = job ? about(*job) : log::About{};
  line.session = session->id;
  line.pid = connection.peer().pid;
  log::info(line, "session {} ({}, {}){} ended: {}", session->id, session->process(),
            connection.client(), job ? " of job '" + job->job + "'" : std::string(), parting);
}

void Sessions::exited(delivery::Connection& connection) {
  SessionPtr session;
  std::shared_ptr<Consumer> consumer;
  {
    MutexLock lock(mutex_);
    const auto found = sessions_.find(connection.id());
    if (found == sessions_.end()) return;
    session = found->second;
    sessions_.erase(found);
    consumer = session->consumer;
    if (consumer != nullptr) {
      const Consumer::View view = consumer->view();
      past_.batches += view.batches;
      past_.rows += view.rows;
    }
  }
  {
    MutexLock lock(routes_mutex_);  // an attach that was still under way gives out no other now
    routes_.erase(connection.id());
    queries_of_.erase(connection.id());
  }
  if (consumer != nullptr) consumer->reclaim();
}

// The place is free for another consumer; a job that nobody declared ends with its last one.
void Sessions::leave(const SessionPtr& session, bool done) {
  session->closed = true;
  session->gpu.reset();  // there will be no consumer to have it
  if (session->job == nullptr) return stop_waiting(session);
  Job& job = *session->job;
  const auto held = job.members.find(session->member);
  if (held == job.members.end() || held->second != session) return;
  job.note_left(*session, done);
  if (!done) job.last_parting = session->parting;
  if (session->consumer != nullptr && !suspended_) job.record_is_old = true;
  job.members.erase(held);
  if (job.members.empty()) end_job(session->job);
}

void Sessions::end_job(const JobPtr& ended) {
  Job& job = *ended;
  if (job.being_written) return;  // end_change() does it
  // All have said good-bye: what their run was yet to do is no matter of the next one.
  if (!job.membership.expected() && job.membership.anyone_left() && job.membership.all_done())
    job.state.moves.clear();
  if (job.declared || job.changes() || !runs(ended)) return;
  job.settle_moves();
  if (job.membership.anyone_left()) {
    store::StoredEnd end{.end = job.end(), .view = job.view(), .stages = stages_of(job)};
    end.view.ledger.at = job.acknowledged().at;
    end.view.rows_per_s.reset();
    for (job::StageView& stage : end.stages) {
      stage.in_flight = 0;
      stage.rows_per_s.reset();
      stage.busy_share.reset();
    }
    end.view.shards.clear();
    end.view.phases.clear();
    log::info(about(job.key), "job '{}' on pipeline '{}' ended at {}: {}", job.key.job,
              job.key.pipeline, place_text(end.end.at), end.end.how);
    if (job.is_private) {
      keep_privately(job, std::move(end));
    } else {
      ended_positions_.push_back(job.stored_position(job.acknowledged()));
      if (!suspended_) {
        push_ended(job);
        ended_jobs_.back().end = std::move(end);
      }
    }
  }
  drop_job(ended);
}

void Sessions::push_ended(const Job& job) {
  ended_jobs_.push_back(job.stored());
  ended_jobs_.back().failures = job.failures.behind(job.failures_kept);
  ended_jobs_.back().replaced = job.failures.replaced_behind(job.replaced_kept);
}

void Sessions::drop_job(const JobPtr& job) {
  for (const pipeline::PhasePtr& phase : job->phases()) {
    if (phase->cache_use != nullptr) phase->cache_use->end();
  }
  streams_.forget(job->tag);
  jobs_.erase(job->key);
  attach_again_waiting(*job);
}

void Sessions::drop_if_unused(const JobPtr& job) {
  if (job->members.empty() && !job->declared && !job->changes()) drop_job(job);
}

void Sessions::keep_privately(const Job& job, store::StoredEnd end) {
  ended_privately_.push_back(
      {.key = job.key, .end = std::move(end), .failures = job.failures.recent()});
  const auto own = [&](const EndedPrivately& ended) { return ended.key.uid == job.key.uid; };
  const auto of_user = static_cast<std::size_t>(
      std::count_if(ended_privately_.begin(), ended_privately_.end(), own));
  if (of_user > kMostEndedPrivatelyOfUser)
    ended_privately_.erase(std::find_if(ended_privately_.begin(), ended_privately_.end(), own));
  if (ended_privately_.size() > kMostEndedPrivately) ended_privately_.pop_front();
}

bool Sessions::visible(const job::Caller& caller, const job::JobKey& key) const {
  return caller.uid == key.uid || deps_.catalogue.is_admin(caller.uid);
}

std::optional<uid_t> Sessions::owner_seen_by(const job::Caller& caller) const {
  if (deps_.catalogue.is_admin(caller.uid)) return std::nullopt;
  return caller.uid;
}

std::map<std::uint32_t, std::uint32_t> Sessions::jobs_on(const std::string& pipeline) const {
  MutexLock lock(mutex_);
  std::map<std::uint32_t, std::uint32_t> by_version;
  for (const auto& [key, job] : jobs_) {
    if (key.pipeline == pipeline) ++by_version[job->phase().version()];
  }
  return by_version;
}

bool Sessions::has_other_phase(const pipeline::Phase& phase) const {
  MutexLock lock(mutex_);
  const std::string id = phase.pipeline->id();
  for (const auto& [key, job] : jobs_) {
    if (key.pipeline != id) continue;
    for (const stream::Timeline::Cut& cut : job->state.timeline.cuts()) {
      if (cut.phase.get() != &phase && cut.phase->version() == phase.version()) return true;
    }
  }
  return false;
}

}  // namespace spdld::session
