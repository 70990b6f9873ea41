// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "session/sessions.h"
#include "session/views.h"

namespace spdld::session {

// A version of a pipeline and the jobs that change to it.
struct Swap {
  PipelinePtr pipeline;
  std::vector<JobSwap> jobs = {};
  std::string token = {};             // while it is prepared
  std::chrono::milliseconds hold{0};  // for so long no shard goes beyond the point
  bool unchanged = false;             // the pipeline was current already
};

// Applies that change running jobs, in one step or in two: all of the jobs and the pipeline's name
// change, or none. Owned by SessionService. Thread-safe; one is planned and prepared at a time, and
// a commit waits for none of that.
//
// States of one that is made in two steps: prepared (every shard halts at the point; on disk, so
// that a restart of the daemon within the hold forgets nothing); then committed, or aborted by its
// caller, by the end of the hold, or by a restart after which a job could not be brought back.
class Swaps {
 public:
  explicit Swaps(Sessions& sessions);

  // `note` is for the history. Without `jobs` none changes.
  Result<Swap> change(const Caller& caller, const PipelinePtr& built, std::string note,
                      const std::optional<SwapRequest>& jobs, const Catalogue::Progress& progress);

  // Puts it in the place of the pipeline of its name, and waits for no change that is being
  // planned: of two, the first one counts.
  Result<Swap> replace(const Caller& caller, const PipelinePtr& built, std::string note);

  Result<Swap> prepare(const Caller& caller, const PipelinePtr& built, const SwapRequest& jobs,
                       const Catalogue::Progress& progress) SPDLD_EXCLUDES(mutex_);
  // Twice is no error, with an answer like the first one's.
  Result<Swap> commit(const Caller& caller, const std::string& token) SPDLD_EXCLUDES(mutex_);
  // Twice is no error. What is committed is not aborted.
  Status abort(const Caller& caller, const std::string& token) SPDLD_EXCLUDES(mutex_);

  // What an earlier daemon left prepared or has just committed. After the jobs, before the first
  // consumer. What cannot go on is aborted and told to `warn`.
  void restore(const std::function<void(std::string)>& warn) SPDLD_EXCLUDES(mutex_);
  // Fails while a swap of it is prepared: what is promised to it must stay so.
  Status check_free(const std::string& pipeline) const SPDLD_EXCLUDES(mutex_);
  // Every second: aborts what nobody has committed in time.
  void tick() SPDLD_EXCLUDES(mutex_);

 private:
  struct Planned {
    uid_t caller = 0;
    PipelinePtr pipeline;
    std::vector<PlannedSwap> swaps;
    std::chrono::nanoseconds expires{0};
  };

  Result<Planned> plan(const Caller& caller, const PipelinePtr& built, const SwapRequest& jobs,
                       const Catalogue::Progress& progress) SPDLD_REQUIRES(sessions_.swapping());
  // Whether it can still be put as what it was planned to be: nothing else of its name was put, or
  // prepared, meanwhile.
  Status check_planned(const Planned& planned) const SPDLD_REQUIRES(sessions_.records());
  Result<Swap> carry_out(const Planned& planned, std::string note, const std::string& token);
  void drop(const std::string& token, const Planned& planned);
  Result<Planned> restored(const StoredPrepared& kept);
  void remember(const std::string& token, uid_t caller, const Swap& swap) SPDLD_EXCLUDES(mutex_);
  void forget(const std::string& token) SPDLD_EXCLUDES(mutex_);
  std::optional<Planned> prepared(const Caller& caller, const std::string& token) const
      SPDLD_EXCLUDES(mutex_);
  std::optional<Swap> committed(const Caller& caller, const std::string& token) const
      SPDLD_EXCLUDES(mutex_);
  static Swap outcome(const Planned& planned);

  Sessions& sessions_;
  Mutex ending_;  // held while one is committed or aborted; between swapping() and records()
  mutable Mutex mutex_;
  std::map<std::string, Planned> prepared_ SPDLD_GUARDED_BY(mutex_);  // by token
  struct Committed {
    std::string token;
    uid_t caller = 0;
    Swap swap;
  };
  std::deque<Committed> committed_ SPDLD_GUARDED_BY(mutex_);  // the last ones
};

}  // namespace spdld::session
