// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "session/job_queues.h"
#include "session/swaps.h"

namespace spdld::session {

// Carries out the changes that ranks ask of their jobs by Loader.apply(): those of one job one
// after the other. Owned by Sessions. Thread-safe.
class RankApplies {
 public:
  RankApplies(const SessionsDeps& deps, JobTable& table, SwapPlanner& planner, Swaps& swaps,
              JobQueues& changing)
      : deps_(deps), table_(table), planner_(planner), swaps_(swaps), changing_(changing) {}

  // Returns at once; the answer goes to the connection.
  void apply(delivery::Connection& connection, const delivery::ApplyWish& wish);
  // Sessions whose applies are not answered.
  std::vector<SessionPtr> waiting() const SPDLD_EXCLUDES(mutex_);

 private:
  void forget(const SessionPtr& session) SPDLD_EXCLUDES(mutex_);  // one of its applies is answered
  void answer(const SessionPtr& session, const delivery::ApplyWish& wish);
  // `is_stale`: planned for nothing, as the job changed meanwhile.
  Result<PlannedSwap> apply_vars(const SessionPtr& session, const delivery::ApplyWish& wish,
                                 bool& is_stale);

  const SessionsDeps& deps_;
  JobTable& table_;
  SwapPlanner& planner_;
  Swaps& swaps_;
  JobQueues& changing_;
  mutable Mutex mutex_;
  std::vector<SessionPtr> waiting_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session
