// SPDX-License-Identifier: Apache-2.0
#include "session/sessions.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "session/about.h"

namespace spdld::session {
namespace {

constexpr std::size_t kChangesOfUser = 8;  // at once, each of another job: as many as trials

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
      trials_(deps.executor, deps.clock, deps.code),
      streams_(deps.executor, deps.arenas, deps.arena_kind, deps.clock),
      table_(deps_, streams_),
      records_(deps_, table_, streams_),
      keeper_(deps_, table_),
      changes_(deps_, table_),
      headspace_(deps_, streams_, table_, changes_),
      drain_(deps_, table_),
      operator_(deps_, table_, records_, changes_, keeper_, drain_),
      gpus_(deps.devices, table_),
      runner_starts_(deps_),
      planner_(deps_, table_, records_, trials_, gpus_, runner_starts_),
      swaps_(deps_, table_, keeper_, planner_, gpus_),
      new_pipelines_(deps_, trials_),
      changing_("spdld-apply", kChangesOfUser),
      pipelines_(deps_, table_, records_, keeper_, new_pipelines_, swaps_, changing_),
      reports_(deps_, table_),
      queries_(deps_, table_),
      applies_(deps_, table_, planner_, swaps_, changing_),
      attacher_({.deps = deps_,
                 .table = table_,
                 .records = records_,
                 .streams = streams_,
                 .router = router_,
                 .keeper = keeper_,
                 .operators = operator_,
                 .drain = drain_,
                 .pipelines = pipelines_,
                 .gpus = gpus_,
                 .runner_starts = runner_starts_}) {
  deps_.catalogue.set_letting_go([this] { streams_.drop_ended(); });
}

Sessions::~Sessions() {
  stop();
  deps_.catalogue.set_letting_go(nullptr);  // a listing may still come back
}

void Sessions::suspend() {
  {
    MutexLock lock(table_.mutex());
    table_.suspend();
  }
  keeper_.keep();
}

void Sessions::stop() {
  queries_.stop();
  changing_.stop();
  attacher_.stop();
  keeper_.stop();
  keeper_.keep();  // where everybody was, for the next daemon
  std::vector<std::shared_ptr<Consumer>> consumers;
  {
    MutexLock lock(table_.mutex());
    for (const auto& [id, session] : table_.sessions()) {
      session->asker.reset();
      if (session->consumer != nullptr) consumers.push_back(session->consumer);
    }
  }
  for (const auto& consumer : consumers) consumer->end(true);
}

std::size_t Sessions::attached() const {
  MutexLock lock(table_.mutex());
  return static_cast<std::size_t>(
      std::count_if(table_.sessions().begin(), table_.sessions().end(),
                    [](const auto& entry) { return !entry.second->closed; }));
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
  const std::vector<SessionPtr> applying = applies_.waiting();
  struct Listing {
    SessionPtr session;
    pipeline::ListingAsker::Doing doing;
    bool comes_on = false;  // since the last time
  };
  std::vector<Listing> listing;
  {
    MutexLock lock(table_.mutex());
    for (const auto& [id, session] : table_.sessions()) {
      if (session->closed) continue;
      if (session->queued) queued.push_back(session);
      if (session->consumer == nullptr) {
        if (session->asker == nullptr) continue;
        const auto doing = session->asker->doing();
        const bool comes_on = std::exchange(session->seen_doing, doing) != doing;
        using State = pipeline::ListingAsker::Doing::State;
        if (doing.state != State::kNothing)
          listing.push_back({.session = session,
                             .doing = doing,
                             .comes_on = comes_on || doing.state == State::kWaits});
        continue;
      }
      const Consumer::View view = session->consumer->view();
      const engine::Run& run =
          *session->job->state.plan->phase_at(view.progress.sent, view.own)->run;
      const std::uint64_t tasks = run.fetch_stats().tasks() + run.process_stats().tasks();
      const bool works = std::exchange(session->seen_tasks, tasks) != tasks;
      Waiting& waiting = live.emplace_back();
      waiting.session = session;
      waiting.job = session->job->key.job;
      std::optional<engine::Executor::Headway> headway = session->consumer->starved();
      waiting.starves = headway.has_value();
      if (!headway) continue;
      runner_starts_.ask(*session->job, run);
      const bool moves = std::exchange(session->seen_moves, headway->moves) != headway->moves;
      // Rows of other shards are made before its own, or instead of some that do not come.
      waiting.comes_on = moves || (works && !headway->own);
      waiting.stands_at = std::move(headway->doing);
    }
    for (const auto& [key, job] : table_.jobs()) {
      for (const Job::WaitingAttach& attach : job->waiting)
        attach.session->connection->send_progress(0, 0, attach.reason);
    }
  }
  for (const SessionPtr& session : queued)
    session->connection->send_progress(0, 0, "other consumers attach first");
  for (const Listing& waiting : listing) {
    delivery::Connection& connection = *waiting.session->connection;
    runner_starts_.ask(waiting.session, waiting.doing.pools);
    if (waiting.comes_on) {
      connection.send_progress(waiting.doing.items, 0, waiting.doing.what);
    } else {
      connection.send_standstill(waiting.doing.what);
    }
  }
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
                       "'spdlctl get stages' shows them, and 'spdlctl tune JOB weight=W' shifts "
                       "shares"
                     : waiting.stands_at));
    }
  }
}

void Sessions::tick() {
  reports_.take_rates();
  attacher_.attach_again_for_room();
  headspace_.tick(changing_);
  keeper_.tick([this] {
    streams_.tick();
    queries_.forget_texts();
  });
}

void Sessions::attach(const delivery::ConnectionPtr& connection, delivery::AttachRequest request) {
  attacher_.attach(connection, request);
}

void Sessions::query(delivery::Connection& connection, const delivery::QueryRequest& request) {
  queries_.ask(connection, request);
}

void Sessions::apply(delivery::Connection& connection, const delivery::ApplyWish& wish) {
  applies_.apply(connection, wish);
}

void Sessions::release(delivery::Connection& connection, std::uint64_t lease) {
  if (const auto consumer = router_.find(connection)) consumer->release(lease);
}

void Sessions::handed(delivery::Connection& connection, const delivery::HandedNotice& notice) {
  if (const auto consumer = router_.find(connection)) consumer->handed(notice.turn);
}

void Sessions::waited(delivery::Connection& connection, const delivery::WaitedNotice& notice) {
  if (const auto consumer = router_.find(connection)) consumer->note_waited(notice);
}

void Sessions::seek(delivery::Connection& connection, const delivery::SeekRequest& request) {
  const auto consumer = router_.find(connection);
  if (consumer == nullptr) return;
  const Status sought = consumer->seek(request);
  if (!sought.ok()) connection.fail(sought.with_context("seek"));
}

void Sessions::detach(delivery::Connection& connection) {
  const SessionPtr session = table_.find(connection.id());
  if (session == nullptr) return;
  std::shared_ptr<Consumer> consumer;
  {
    MutexLock lock(table_.mutex());
    consumer = session->consumer;
  }
  // First, so that what is kept of the job knows that nobody waits for this one any more.
  if (consumer != nullptr) consumer->end(false);
  bool replicated = false;
  {
    MutexLock lock(table_.mutex());
    session->parting = "closed by its client";
    table_.leave(session, true);
    replicated = session->job != nullptr && session->job->replicas > 1;
  }
  if (replicated) keeper_.keep_soon();  // another daemon would wait for it
}

void Sessions::closed(delivery::Connection& connection, delivery::CloseCause cause) {
  const SessionPtr session = table_.find(connection.id());
  if (session == nullptr) return;
  std::shared_ptr<Consumer> consumer;
  std::string parting;
  std::optional<job::JobKey> job;
  {
    MutexLock lock(table_.mutex());
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
    MutexLock lock(table_.mutex());
    table_.leave(session);
  }
  log::About line = job ? about(*job) : log::About{};
  line.session = session->id;
  line.pid = connection.peer().pid;
  log::info(line, "session {} ({}, {}){} ended: {}", session->id, session->process(),
            connection.client(), job ? " of job '" + job->job + "'" : std::string(), parting);
}

void Sessions::exited(delivery::Connection& connection) {
  SessionPtr session = table_.remove(connection.id());
  if (session == nullptr) return;
  // An attach that was still under way gives out no other now.
  std::shared_ptr<Consumer> consumer = router_.remove(connection.id());
  queries_.forget(connection.id());
  if (consumer == nullptr) return;
  consumer->reclaim();
  const delivery::DeviceMemoryPtr gpu = consumer->gpu();
  consumer.reset();
  session.reset();
  if (gpu != nullptr) attacher_.left_gpu(gpu);
}

}  // namespace spdld::session
