// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "session/deps.h"
#include "session/ended_jobs.h"
#include "session/job.h"
#include "session/views.h"
#include "stream/streams.h"

namespace spdld::session {

// The jobs of the daemon and the sessions of their consumers, with the lock that guards both. The
// other classes of this directory work on it. Owned by Sessions. Thread-safe.
class JobTable {
 public:
  using Jobs = std::map<job::JobKey, JobPtr>;
  using SessionsById = std::map<std::uint64_t, SessionPtr>;

  JobTable(const SessionsDeps& deps, stream::Streams& streams);

  // How an attach begins anew that has waited without a thread: set before the first consumer
  // comes. It only posts, so that any lock may be held.
  using Attaching =
      std::function<void(const SessionPtr& session, const delivery::AttachRequest& request)>;
  void set_attaching(Attaching attaching) { attaching_ = std::move(attaching); }
  void attach_again(const SessionPtr& session, const delivery::AttachRequest& request) const {
    attaching_(session, request);
  }

  // Guards all that follows, each Job and each Session.
  Mutex& mutex() const SPDLD_RETURN_CAPABILITY(mutex_) { return mutex_; }
  // Held while a job changes and its record with it, so that the keeper does not write an older one
  // over that. Taken before mutex(), which comes before Consumer's lock, and that before those of
  // streams. A thread that has it may wait for the disk. Ranks that read, attach or leave do not
  // wait for it; changes that they ask for, and pipelines that they bring, do on threads of their
  // own.
  Mutex& records() SPDLD_RETURN_CAPABILITY(records_) { return records_; }

  Jobs& jobs() SPDLD_REQUIRES(mutex_) { return jobs_; }
  const Jobs& jobs() const SPDLD_REQUIRES(mutex_) { return jobs_; }
  // By connection.
  SessionsById& sessions() SPDLD_REQUIRES(mutex_) { return sessions_; }
  const SessionsById& sessions() const SPDLD_REQUIRES(mutex_) { return sessions_; }
  // Undeclared, read when an earlier daemon died, and not heard of since.
  std::set<job::JobKey>& expected() SPDLD_REQUIRES(mutex_) { return expected_; }
  // Declared jobs that cannot go on, and the reasons.
  std::map<job::JobKey, std::string>& broken() SPDLD_REQUIRES(mutex_) { return broken_; }
  const std::map<job::JobKey, std::string>& broken() const SPDLD_REQUIRES(mutex_) {
    return broken_;
  }
  EndedJobs& ended() SPDLD_REQUIRES(mutex_) { return ended_; }
  const EndedJobs& ended() const SPDLD_REQUIRES(mutex_) { return ended_; }
  // The daemon ends: jobs stay as they are for the next one.
  bool suspended() const SPDLD_REQUIRES(mutex_) { return suspended_; }
  void suspend() SPDLD_REQUIRES(mutex_) { suspended_ = true; }

  SessionPtr find(std::uint64_t session) const SPDLD_EXCLUDES(mutex_);
  // The session's process has exited. Null: there is none.
  SessionPtr remove(std::uint64_t session) SPDLD_EXCLUDES(mutex_);
  // Handed to consumers that are removed.
  struct Handed {
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
  };
  const Handed& gone() const SPDLD_REQUIRES(mutex_) { return gone_; }
  // Visible are a caller's own jobs, and to admins all.
  bool visible(const job::Caller& caller, const job::JobKey& key) const;
  bool visible(const job::Caller& caller, const Job& job) const { return visible(caller, job.key); }
  // The owner of all jobs that the caller sees; none: it sees those of all users.
  std::optional<uid_t> owner_seen_by(const job::Caller& caller) const;
  // The one of these keys that the caller means; none: no such job is among them.
  Result<std::optional<job::JobKey>> meant(const job::Caller& caller, const JobName& name,
                                           std::vector<job::JobKey> keys) const;
  Result<JobPtr> find_job(const job::Caller& caller, const JobName& name) const
      SPDLD_REQUIRES(mutex_);
  std::vector<JobPtr> jobs_of(const job::Caller& caller, const std::string& pipeline) const
      SPDLD_REQUIRES(mutex_);
  // Jobs that run it, by version.
  std::map<std::uint32_t, std::uint32_t> jobs_on(const std::string& pipeline) const
      SPDLD_EXCLUDES(mutex_);
  // Whether a job runs its version, or is to, in any other phase than this one.
  bool has_other_phase(const pipeline::Phase& phase) const SPDLD_EXCLUDES(mutex_);
  bool is_run_or_expected(const std::string& pipeline) const SPDLD_EXCLUDES(mutex_);
  bool runs(const JobPtr& job) const SPDLD_REQUIRES(mutex_);  // nobody deleted or replaced it
  // Whether the user may have another job.
  Status check_room_for_job(uid_t uid) const SPDLD_REQUIRES(mutex_);

  // For so long after the daemon's start, consumers that an earlier daemon had are expected back;
  // then the keeper takes them for away.
  static constexpr std::chrono::seconds kComeBack{60};
  std::chrono::seconds come_back_s() const;  // so much of it is left
  bool awaits(const Job& job) const;
  // Fails with `not_yet` while a consumer of an earlier daemon has not come back.
  Status check_settled(const Job& job, Code not_yet = Code::kFailedPrecondition) const;

  // The session's place is free for another consumer. `done`: its client has said good-bye.
  void leave(const SessionPtr& session, bool done = false) SPDLD_REQUIRES(mutex_);
  // Nobody is attached. A declared job, and one that is about to change, stays.
  void end_job(const JobPtr& job) SPDLD_REQUIRES(mutex_);
  // Removes the job. Work that it has begun comes to its end.
  void drop_job(const JobPtr& job) SPDLD_REQUIRES(mutex_);
  // A job that a rank has made, and that nobody has attached to, must not stay.
  void drop_if_unused(const JobPtr& job) SPDLD_REQUIRES(mutex_);
  void limits_changed(const Job& job);
  void attach_again_waiting(Job& job) SPDLD_REQUIRES(mutex_);
  // Ends the job's write: attaches that waited for it go on.
  void end_write(Job& job) SPDLD_REQUIRES(mutex_);

 private:
  // The session does not wait to attach any more.
  void stop_waiting(const SessionPtr& session) SPDLD_REQUIRES(mutex_);

  const SessionsDeps& deps_;
  stream::Streams& streams_;
  const std::chrono::nanoseconds started_;
  Attaching attaching_;
  Mutex records_;
  mutable Mutex mutex_;
  Jobs jobs_ SPDLD_GUARDED_BY(mutex_);
  SessionsById sessions_ SPDLD_GUARDED_BY(mutex_);
  std::set<job::JobKey> expected_ SPDLD_GUARDED_BY(mutex_);
  std::map<job::JobKey, std::string> broken_ SPDLD_GUARDED_BY(mutex_);
  EndedJobs ended_ SPDLD_GUARDED_BY(mutex_);
  Handed gone_ SPDLD_GUARDED_BY(mutex_);
  bool suspended_ SPDLD_GUARDED_BY(mutex_) = false;
};

}  // namespace spdld::session
