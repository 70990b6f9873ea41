// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "session/sessions.h"
#include "session/views.h"

namespace spdld::session {

// A version of a pipeline and the jobs that change to it.
struct Swap {
  pipeline::PipelinePtr pipeline;
  std::vector<JobSwap> jobs = {};
  bool unchanged = false;  // the pipeline was current already
  bool dropped = false;    // of a rollback: only a change that lay ahead of one job was dropped
};

// Applies that change running jobs: all of the jobs and the pipeline's name change, or none. Owned
// by SessionService. Thread-safe; one is planned and carried out at a time.
class Swaps {
 public:
  explicit Swaps(Sessions& sessions);

  // `note` is for the history. Without `jobs` none changes.
  Result<Swap> change(const job::Caller& caller, const pipeline::PipelinePtr& built,
                      std::string note, const std::optional<SwapRequest>& jobs,
                      const pipeline::Catalogue::Progress& progress);

  // The same of a version that was there before. Where all that it does is to drop a change which
  // lies ahead of the one job that `jobs` names, no version is made: a version that was applied for
  // that job, and that no other one has, is taken back, and any other stays.
  Result<Swap> roll_back(const job::Caller& caller, const pipeline::PipelinePtr& built,
                         std::string note, const std::optional<SwapRequest>& jobs,
                         const pipeline::Catalogue::Progress& progress);

  // Plans a change and makes its trial batches, and changes nothing. Each job of the outcome has an
  // outlook.
  Result<Swap> ask(const job::Caller& caller, const pipeline::PipelinePtr& built,
                   const SwapRequest& jobs, const pipeline::Catalogue::Progress& progress);

  // Puts it in the place of the pipeline of its name, and waits for no change that is being
  // planned: of two, the first one counts.
  Result<Swap> replace(const job::Caller& caller, const pipeline::PipelinePtr& built,
                       std::string note);

 private:
  struct Planned {
    uid_t caller = 0;
    pipeline::PipelinePtr pipeline;
    std::vector<PlannedSwap> swaps;
  };

  Result<Planned> plan(const job::Caller& caller, const pipeline::PipelinePtr& built,
                       const std::optional<SwapRequest>& jobs,
                       const pipeline::Catalogue::Progress& progress);
  // Whether it can still be put as what it was planned to be: nothing else of its name was put
  // meanwhile.
  Status check_planned(const Planned& planned) const SPDLD_REQUIRES(sessions_.records());
  Result<Swap> carry_out(const Planned& planned, std::string note);
  // The version that the pipeline had before it was applied for the one job whose change is
  // dropped. Null: the current version stays.
  Result<pipeline::PipelinePtr> before_apply(const Planned& planned,
                                             const pipeline::Catalogue::Progress& progress)
      SPDLD_REQUIRES(sessions_.swapping());
  Result<Swap> drop(const Planned& planned, const pipeline::PipelinePtr& before)
      SPDLD_REQUIRES(sessions_.swapping());
  bool is_current(const pipeline::PipelineVersion& pipeline) const;
  static Swap outcome(const Planned& planned);

  Sessions& sessions_;
};

}  // namespace spdld::session
