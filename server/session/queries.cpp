// SPDX-License-Identifier: Apache-2.0
#include "session/queries.h"

#include <fmt/format.h>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/counted.h"
#include "session/reports.h"
#include "store/json_text.h"

namespace spdld::session {
namespace {

// Of one consumer: beyond it something asks again and again without waiting for an answer.
constexpr int kMaxQueries = 8;

}  // namespace

Queries::Queries(const SessionsDeps& deps, JobTable& table)
    : deps_(deps), table_(table), threads_("spdld-query", 2) {}

void Queries::ask(delivery::Connection& connection, const delivery::QueryRequest& request) {
  const std::uint64_t id = connection.id();
  bool too_many = false;
  {
    MutexLock lock(mutex_);
    int& waiting = waiting_[id];
    too_many = waiting >= kMaxQueries;
    if (!too_many) ++waiting;
  }
  if (too_many) {
    connection.fail(
        Status(Code::kResourceExhausted, fmt::format("{} queries of one consumer wait "
                                                     "already: read their answers before "
                                                     "you ask again",
                                                     kMaxQueries)));
    return;
  }
  // The pool answers a user's queries one after the other, and so a connection's.
  threads_.post(connection.peer().uid, [this, id, request] {
    try {
      answer(id, request);
    } catch (const std::exception& thrown) {  // no memory, say: the consumer waits for an answer
      if (const SessionPtr session = table_.find(id)) {
        session->connection->fail(
            Status(Code::kInternal, std::string("the query failed: ") + thrown.what()));
      }
    }
    MutexLock lock(mutex_);
    const auto waiting = waiting_.find(id);
    if (waiting != waiting_.end() && --waiting->second == 0) waiting_.erase(waiting);
  });
}

void Queries::forget(std::uint64_t connection) {
  MutexLock lock(mutex_);
  waiting_.erase(connection);
}

Result<std::string> Queries::uris_of(const Job& job, const delivery::QueryRequest& request) const {
  pipeline::PipelinePtr pipeline;
  {
    MutexLock lock(table_.mutex());
    for (const pipeline::PhasePtr& phase : job.phases()) {
      if (phase->order_text() == request.order_digest) pipeline = phase->pipeline;
    }
  }
  if (pipeline == nullptr)
    return error(Code::kFailedPrecondition,
                 "the data that this batch was made of are not those of job '" + job.key.job +
                     "' any more: read batch.uris as the batch comes");
  std::string text;
  for (const std::int64_t item : request.items) {
    if (item < 0 || static_cast<std::uint64_t>(item) >= pipeline->source->size())
      return error(Code::kOutOfRange, "the dataset of pipeline '" + pipeline->name() + "' has " +
                                          counted(pipeline->source->size(), "item") +
                                          ", and none " + std::to_string(item));
    text += pipeline->source->read_uri(static_cast<std::uint64_t>(item));
    text += '\0';
  }
  return text;
}

void Queries::answer(std::uint64_t id, const delivery::QueryRequest& request) {
  SessionPtr session;
  JobPtr job;
  pipeline::PhasePtr phase;
  std::vector<job::StageView> stages;
  {
    MutexLock lock(table_.mutex());
    const auto found = table_.sessions().find(id);
    if (found == table_.sessions().end() || found->second->job == nullptr) return;
    session = found->second;
    job = session->job;
    phase = job->phase();
    if (request.kind == wire::QueryKind::kStats) stages = stages_of(*job, deps_.executor.threads());
  }
  delivery::Connection& connection = *session->connection;
  if (request.kind == wire::QueryKind::kUris) {
    if (auto uris = uris_of(*job, request)) {
      connection.send_blob(wire::BlobKind::kUris, request.serial,
                           std::make_shared<std::string>(*std::move(uris)));
    } else {
      connection.send_refused(request.serial, uris.error());
    }
    return;
  }
  if (request.kind == wire::QueryKind::kClasses) {
    connection.send_blob(wire::BlobKind::kClasses, request.serial,
                         class_texts_.of(phase->pipeline->source),
                         delivery::Connection::Text::kKept);
    return;
  }
  nlohmann::json stats{{"job", job->key.job},
                       {"pipeline", job->key.pipeline},
                       {"shard", session->member.shard},
                       {"replica", session->member.replica},
                       {"shared_rows", job->gain->rows.load(std::memory_order_relaxed)},
                       {"replaced", job->failures.replaced()},
                       {"replace_budget", job->failures.budget()},
                       {"stages", nlohmann::json::array()}};
  for (const job::StageView& stage : stages) {
    stats["stages"].push_back({{"stage", stage.stage},
                               {"tasks", stage.tasks},
                               {"failures", stage.failures},
                               {"busy_s", stage.busy_s},
                               {"wait_s", stage.wait_s},
                               {"p50_us", stage.p50_us},
                               {"p99_us", stage.p99_us}});
  }
  // A job's name comes from its consumer and need not be UTF-8.
  connection.send_blob(wire::BlobKind::kStats, request.serial,
                       std::make_shared<std::string>(store::shown_text(stats)));
}

}  // namespace spdld::session
