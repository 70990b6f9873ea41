// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "session/changes.h"
#include "session/keeper.h"
#include "session/swap_plan.h"
#include "session/views.h"

namespace spdld::session {

// A version of a pipeline and the jobs that change to it.
struct Swap {
  pipeline::PipelinePtr pipeline;
  std::vector<JobSwap> jobs = {};
  bool unchanged = false;  // the pipeline was current already
  bool dropped = false;    // of a rollback: only a change that lay ahead of one job was dropped
};

// Carries out an apply that changes running jobs: all of the jobs and the pipeline's name change,
// or none. Owned by Sessions. Thread-safe: of two that are planned at once for one job, the second
// one is planned again.
class Swaps {
 public:
  Swaps(const SessionsDeps& deps, JobTable& table, Keeper& keeper, SwapPlanner& planner,
        GpuOpener& gpus)
      : deps_(deps), table_(table), keeper_(keeper), planner_(planner), gpus_(gpus) {}

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
                       const std::string& note);

  // All shards of all the jobs make ready, each job at a step of its own, and all of them change
  // once `write` has put their records on disk; or nothing is done. `write` is called under
  // JobTable::records() alone.
  using Writing = std::function<Status(const std::vector<store::StoredJob>& records)>;
  Status carry_out(std::vector<PlannedSwap>& swaps, const SwapAt& at, const Writing& write)
      SPDLD_EXCLUDES(table_.mutex(), table_.records());

 private:
  struct Planned {
    uid_t caller = 0;
    pipeline::PipelinePtr pipeline;
    std::vector<PlannedSwap> swaps;
  };

  Result<Planned> plan(const job::Caller& caller, const pipeline::PipelinePtr& built,
                       const std::optional<SwapRequest>& jobs,
                       const pipeline::Catalogue::Progress& progress);
  // Plans again where a job has changed before the plan was carried out.
  using CarryingOut = std::function<Result<Swap>(Planned& planned)>;
  Result<Swap> plan_and(const CarryingOut& carry_out, const job::Caller& caller,
                        const pipeline::PipelinePtr& built, const std::optional<SwapRequest>& jobs,
                        const pipeline::Catalogue::Progress& progress);
  // Fails if another pipeline of the same name was put since the swap was planned.
  Status check_planned(const Planned& planned) const SPDLD_REQUIRES(table_.records());
  // A change that is dropped rather than made, and the version that its pipeline had before that
  // was applied for the one job; null: the current version stays.
  struct Drop {
    pipeline::PipelinePtr before;
  };
  Result<Swap> carry_out(Planned& planned, const SwapAt& at, const std::string& note,
                         const std::optional<Drop>& drop = std::nullopt);
  // Writes the version, with the jobs that change to it: decided once it is on disk.
  Status put(const Planned& planned, const std::string& note,
             const std::vector<store::StoredJob>& jobs, bool& unchanged)
      SPDLD_REQUIRES(table_.records());
  // The version that the pipeline had before it was applied for the job of the dropped change.
  // Null: the current version stays.
  Result<pipeline::PipelinePtr> before_apply(const Planned& planned,
                                             const pipeline::Catalogue::Progress& progress);
  bool is_current(const pipeline::PipelineVersion& pipeline) const;
  static Swap outcome(const Planned& planned);

  Status begin(PlannedSwap& swap, const SwapAt& at)
      SPDLD_REQUIRES(table_.mutex(), table_.records());
  Status prepare(std::vector<PlannedSwap>& swaps, const SwapAt& at, stream::DeviceReserve& reserve)
      SPDLD_REQUIRES(table_.mutex(), table_.records());
  void end(std::vector<PlannedSwap>& swaps, const Status& written)
      SPDLD_REQUIRES(table_.mutex(), table_.records());
  // Whether carry_out() would find a step for each of the jobs, and where that lies ahead.
  // Makes nothing ready.
  Status look_ahead(std::vector<PlannedSwap>& swaps, const SwapAt& at)
      SPDLD_EXCLUDES(table_.mutex(), table_.records());
  // A consumer that attached after the swaps were planned, and so has no GPU open for this phase of
  // them.
  struct Unopened {
    SessionPtr session;
    pipeline::PhasePtr phase;
  };
  static std::vector<Unopened> unopened(const std::vector<PlannedSwap>& swaps);

  const SessionsDeps& deps_;
  JobTable& table_;
  Keeper& keeper_;
  SwapPlanner& planner_;
  GpuOpener& gpus_;
};

}  // namespace spdld::session
