// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/blocking_pool.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "delivery/arena.h"
#include "delivery/data_server.h"
#include "engine/executor.h"
#include "session/catalogue.h"
#include "session/job.h"
#include "session/store.h"

namespace spdld::session {

// The parts of the daemon that sessions work with; all outlive them.
struct SessionsDeps {
  Catalogue& catalogue;
  engine::Executor& executor;
  delivery::ArenaPool& arenas;
  delivery::ArenaBudget& budget;
  Store& store;
  const Clock& clock;
  delivery::ArenaKind arena_kind = delivery::ArenaKind::kMemfd;
};

// The jobs and who is attached to them. Answers consumers on the dispatcher's thread; what may
// block goes to a pool of its own. Operators come in through SessionService, from gRPC's threads.
// Thread-safe. Owned by the daemon; stop() before the executor goes.
class Sessions final : public delivery::DataService {
 public:
  explicit Sessions(SessionsDeps deps);
  ~Sessions() override;

  // Declared jobs that an earlier daemon kept. Before the first consumer comes.
  Status restore() SPDLD_EXCLUDES(mutex_);
  // Ends every session and waits for attaches under way.
  void stop() SPDLD_EXCLUDES(mutex_);
  // Every few seconds: tells those who wait why, and that the daemon lives.
  void heartbeat() SPDLD_EXCLUDES(mutex_);
  // Consumers that are attached, or attaching.
  std::size_t attached() const SPDLD_EXCLUDES(mutex_);

  // delivery::DataService
  void attach(const delivery::ConnectionPtr& connection, delivery::AttachRequest request) override;
  void release(delivery::Connection& connection, std::uint64_t lease) override;
  void seek(delivery::Connection& connection, const delivery::SeekRequest& request) override;
  void query(delivery::Connection& connection, const delivery::QueryRequest& request) override;
  void detach(delivery::Connection& connection) override;
  void closed(delivery::Connection& connection, delivery::CloseCause cause) override;
  void exited(delivery::Connection& connection) override;

  // For SessionService. Visible are a caller's own jobs, and all to root and admins.
  Result<JobView> create_job(const Caller& caller, const JobRequest& request)
      SPDLD_EXCLUDES(mutex_);
  Result<JobView> job(const Caller& caller, std::string_view job, std::string_view pipeline) const
      SPDLD_EXCLUDES(mutex_);
  std::vector<JobView> jobs(const Caller& caller) const SPDLD_EXCLUDES(mutex_);
  Result<JobView> advance_epoch(const Caller& caller, std::string_view job,
                                std::string_view pipeline, std::optional<std::uint64_t> to)
      SPDLD_EXCLUDES(mutex_);
  Result<JobView> seek_job(const Caller& caller, std::string_view job, std::string_view pipeline,
                           StepAt to) SPDLD_EXCLUDES(mutex_);
  Result<JobView> resize_job(const Caller& caller, std::string_view job, std::string_view pipeline,
                             std::uint32_t num_shards) SPDLD_EXCLUDES(mutex_);
  Status delete_job(const Caller& caller, std::string_view job, std::string_view pipeline)
      SPDLD_EXCLUDES(mutex_);
  std::vector<SessionView> sessions(const Caller& caller) const SPDLD_EXCLUDES(mutex_);
  Status evict(const Caller& caller, std::uint64_t session, const std::string& reason)
      SPDLD_EXCLUDES(mutex_);
  std::vector<StageView> stages(const Caller& caller) const SPDLD_EXCLUDES(mutex_);
  std::vector<FailureView> failures(const Caller& caller) const SPDLD_EXCLUDES(mutex_);
  std::uint32_t jobs_on(const std::string& pipeline) const SPDLD_EXCLUDES(mutex_);
  struct Totals {
    std::uint32_t sessions = 0;
    std::uint32_t jobs = 0;
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
  };
  Totals totals() const SPDLD_EXCLUDES(mutex_);

  const SessionsDeps& deps() const { return deps_; }

 private:
  // On the blocking pool.
  void attach_slowly(const SessionPtr& session, const delivery::AttachRequest& request);
  Status try_attach(const SessionPtr& session, const delivery::AttachRequest& request);
  Result<PipelinePtr> pipeline_for(const SessionPtr& session,
                                   const delivery::AttachRequest& request);
  // The job that the request means, and the session's shard in it.
  Status claim(const SessionPtr& session, const PipelinePtr& pipeline,
               const delivery::AttachRequest& request) SPDLD_EXCLUDES(mutex_);
  // Sends the consumer on its way. Its last word: whatever fails has failed before.
  Status begin(const SessionPtr& session, const delivery::AttachRequest& request,
               std::uint32_t credits, std::unique_ptr<delivery::Arena> arena)
      SPDLD_EXCLUDES(mutex_);
  Result<JobPtr> join_job(const JobKey& key, const PipelinePtr& pipeline,
                          const delivery::AttachRequest& request) SPDLD_REQUIRES(mutex_);
  Status check_facts(const Job& job, const delivery::AttachRequest& request) const;
  static Status check_shard(const Job& job, const delivery::AttachRequest& request);
  Status claim_shard(const SessionPtr& session, const JobPtr& job,
                     const delivery::AttachRequest& request) SPDLD_REQUIRES(mutex_);
  Result<JobPtr> make_job(JobKey key, PipelinePtr pipeline, std::uint64_t seed,
                          std::uint32_t num_shards, bool is_private);
  // Where a consumer begins.
  struct Place {
    StepAt at;
    std::optional<std::uint64_t> position;  // as its cursor says
  };
  static Result<Place> place_of(const Job& job, std::uint32_t shard,
                                const delivery::AttachRequest& request);

  Result<JobPtr> find_job(const Caller& caller, std::string_view job,
                          std::string_view pipeline) const SPDLD_REQUIRES(mutex_);
  bool visible(const Caller& caller, const Job& job) const;
  SessionPtr find(const delivery::Connection& connection) const SPDLD_EXCLUDES(mutex_);
  std::shared_ptr<Feed> feed_of(const delivery::Connection& connection) const
      SPDLD_EXCLUDES(routes_mutex_);
  void leave(const SessionPtr& session) SPDLD_REQUIRES(mutex_);

  const SessionsDeps deps_;
  mutable Mutex mutex_;
  std::map<JobKey, JobPtr> jobs_ SPDLD_GUARDED_BY(mutex_);
  std::map<std::uint64_t, SessionPtr> sessions_ SPDLD_GUARDED_BY(mutex_);  // by connection
  Totals past_ SPDLD_GUARDED_BY(mutex_);                                   // of sessions that ended
  // Where releases go, by connection. A lock of its own, taken last: a job that is written to disk
  // under mutex_ must hold up no consumer.
  mutable Mutex routes_mutex_;
  std::map<std::uint64_t, std::shared_ptr<Feed>> routes_ SPDLD_GUARDED_BY(routes_mutex_);
  BlockingPool slow_;
};

}  // namespace spdld::session
