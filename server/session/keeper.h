// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/blocking_pool.h"
#include "session/job_table.h"

namespace spdld::session {

// Writes the records and positions of jobs to the disk, on a thread of its own, and deletes old
// ones. Owned by Sessions. Thread-safe.
class Keeper {
 public:
  Keeper(const SessionsDeps& deps, JobTable& table);

  // Each second: does `first`, writes and forgets. Returns at once.
  void tick(std::function<void()> first);
  // keep(), soon. Returns at once.
  void keep_soon();
  // On the same thread, one after the other.
  void post(BlockingPool::Task task) { thread_.post(std::move(task)); }
  void stop() { thread_.stop(); }
  // Writes all that has changed of jobs since the last time; holds no consumer up meanwhile.
  void keep() SPDLD_EXCLUDES(table_.mutex(), table_.records());
  // That positions cannot be kept, say.
  std::vector<std::string> warnings() const SPDLD_EXCLUDES(table_.mutex());

  // A loader has brought it: written with the next keep().
  void brought(const pipeline::PipelineVersion& pipeline, uid_t by) SPDLD_EXCLUDES(brought_mutex_);
  bool is_brought(const std::string& pipeline) const SPDLD_EXCLUDES(brought_mutex_);
  // Writes those, before anything else is written of pipelines.
  Status keep_brought(JobTable& table) SPDLD_REQUIRES(table.records())
      SPDLD_EXCLUDES(table.mutex(), brought_mutex_);

 private:
  // All that is not on disk as it is now.
  struct Unkept {
    struct Changed {
      JobPtr job;
      std::uint64_t last_failure = 0;
      std::size_t replaced = 0;
      bool new_run = false;
      job::Turn reserved = 0;  // its consumers may go up to there once the record is on disk
      std::vector<std::shared_ptr<Consumer>> consumers = {};
    };
    std::vector<store::StoredJob> records;
    std::vector<store::StoredPosition> positions;
    std::size_t ended_jobs = 0;  // so many of the first ones are of jobs that have ended
    std::size_t ended_positions = 0;
    std::set<uid_t> ended_users;   // of these jobs
    std::vector<Changed> changed;  // the others
    struct Moved {
      JobPtr job;
      std::uint64_t rewinds = 0;
    };
    std::vector<Moved> moved;  // the other positions
  };
  Unkept unkept(std::uint64_t now) SPDLD_EXCLUDES(table_.mutex());
  // One record that no text can be made of must not keep the others from the disk.
  void leave_out_unwritable(std::vector<store::StoredJob>& records)
      SPDLD_REQUIRES(table_.records());
  // A user's ended jobs are known as long as they are among the last that limits.jobs allows.
  Status forget_ended_beyond_share(const Unkept& kept) SPDLD_EXCLUDES(table_.mutex());
  Status forget_old(std::uint64_t now) SPDLD_EXCLUDES(table_.mutex());  // every hour
  Status forget_listings() SPDLD_EXCLUDES(table_.mutex());
  // Closes the pipelines that nobody has used for some minutes, if it is time.
  void close_unused() SPDLD_EXCLUDES(table_.mutex());

  const SessionsDeps& deps_;
  JobTable& table_;
  std::atomic<bool> will_tick_ = false;  // it has been posted, and has not begun
  std::atomic<bool> will_keep_ = false;
  mutable Mutex brought_mutex_;  // taken last
  std::vector<std::pair<store::StoredPipeline, store::StoredRevision>> brought_
      SPDLD_GUARDED_BY(brought_mutex_);
  std::chrono::nanoseconds paced_at_ SPDLD_GUARDED_BY(table_.mutex()){0};
  std::set<job::JobKey> unwritable_ SPDLD_GUARDED_BY(table_.records());  // that were warned of
  Status failed_ SPDLD_GUARDED_BY(table_.mutex());                       // the last time
  std::chrono::nanoseconds forgot_at_ SPDLD_GUARDED_BY(table_.mutex()){0};
  std::chrono::nanoseconds closed_unused_at_ SPDLD_GUARDED_BY(table_.mutex());
  BlockingPool thread_;
};

}  // namespace spdld::session
