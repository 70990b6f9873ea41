// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "engine/failure_log.h"
#include "job/job_key.h"
#include "session/job.h"
#include "store/store.h"

namespace spdld::session {

// Jobs that have ended and are not on disk as such yet, and the latest private ones, which never
// are. A plain value: JobTable's, and guarded like it.
class EndedJobs {
 public:
  struct Private {
    job::JobKey key;
    store::StoredEnd end;
    std::vector<engine::LoggedFailure> failures;
  };

  // Keeps the record of a job whose next run takes its place.
  void push(const Job& job);
  // The job has ended. Without `keeps_end`, only its place is kept: the next daemon goes on with
  // it.
  void push(const Job& job, store::StoredEnd end, bool keeps_end);
  void forget(const job::JobKey& key);
  void forget_records(const job::JobKey& key);
  // The first of them are on disk.
  void drop_first(std::size_t records, std::size_t positions);
  // The disk takes none: the latest stay.
  void limit();

  // Oldest first.
  const std::vector<store::StoredJob>& records() const { return records_; }
  const std::vector<store::StoredPosition>& positions() const { return positions_; }
  const std::deque<Private>& privately() const { return privately_; }
  // The last ones: a job may have ended several times since they were written.
  std::optional<store::StoredJob> record(const job::JobKey& key) const;
  std::optional<store::StoredPosition> position(const job::JobKey& key) const;

 private:
  static constexpr std::size_t kMostPrivate = 200;
  static constexpr std::size_t kMostPrivateOfUser = 50;
  void push_private(const Job& job, store::StoredEnd end);

  std::vector<store::StoredJob> records_;
  std::vector<store::StoredPosition> positions_;
  std::deque<Private> privately_;
};

}  // namespace spdld::session
