// SPDX-License-Identifier: Apache-2.0
#include "session/swaps.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/text/counted.h"
#include "session/records.h"

namespace spdld::session {
namespace {

// For so long shards wait at the point of a prepared swap.
constexpr std::chrono::seconds kHold{30};
constexpr std::size_t kKeptTokens = 100;

std::uint64_t wall_ms(const Clock& clock) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(clock.wall().time_since_epoch())
          .count());
}

std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// Where a job runs with `given` instead of its own.
std::vector<Override> overridden(const std::map<std::string, std::string>& own,
                                 const std::set<std::string>& names,
                                 const std::map<std::string, std::string>& given) {
  std::vector<Override> overrides;
  for (const std::string& name : names) {
    const auto said = own.find(name);
    const auto runs = given.find(name);
    if (said == own.end() || runs == given.end() || said->second == runs->second) continue;
    overrides.push_back({.name = name, .own = said->second, .given = runs->second});
  }
  return overrides;
}

}  // namespace

Swaps::Swaps(Sessions& sessions) : sessions_(sessions) {}

Swap Swaps::outcome(const Planned& planned) {
  Swap swap{.pipeline = planned.pipeline};
  for (const PlannedSwap& of : planned.swaps)
    swap.jobs.push_back({.job = of.job->key.job,
                         .pipeline = of.job->key.pipeline,
                         .version = of.phase->version(),
                         .from = of.from,
                         .tuned = of.tuned,
                         .runs = of.runs,
                         .replaces = of.replaces,
                         .overrides = overridden(of.vars, of.phase->overrides,
                                                 of.phase->pipeline->plan->spec.vars)});
  return swap;
}

Result<Swaps::Planned> Swaps::plan(const Caller& caller, const PipelinePtr& built,
                                   const SwapRequest& jobs, const Catalogue::Progress& progress) {
  Planned planned{.caller = caller.uid, .pipeline = nullptr, .swaps = {}};
  SPDLD_ASSIGN(planned.pipeline, sessions_.deps().catalogue.numbered(caller.uid, built));
  SPDLD_ASSIGN(planned.swaps, sessions_.plan_swaps(caller, planned.pipeline, jobs, progress));
  SPDLD_TRY(sessions_.prepare_swaps(planned.swaps, jobs.at));
  return planned;
}

Status Swaps::check_planned(const Planned& planned) const {
  const PipelineVersion& pipeline = *planned.pipeline;
  SPDLD_ASSIGN(const PipelinePtr now, sessions_.deps().catalogue.numbered(
                                          planned.caller, planned.pipeline, pipeline.version));
  if (now->version == pipeline.version) return {};
  return Status(Code::kAborted, "pipeline '" + pipeline.id() + "' has become version " +
                                    std::to_string(now->version - 1) +
                                    " meanwhile, by another apply or by a loader that brought it: "
                                    "look at it, and apply again if this is still wanted");
}

// Decided once it is on disk; what follows cannot fail.
Result<Swap> Swaps::carry_out(const Planned& planned, std::string note, const std::string& token) {
  const PipelineVersion& pipeline = *planned.pipeline;
  Catalogue& catalogue = sessions_.deps().catalogue;
  MutexLock writing(sessions_.records());
  // Whether it may be put is found out before it is on disk. What was prepared holds its place.
  Status kept = token.empty() ? check_free(pipeline.id()) : Status();
  if (kept.ok()) kept = check_planned(planned);
  SPDLD_FAILPOINT("session.swap.commit");
  if (kept.ok()) kept = sessions_.check_prepared(planned.swaps);
  if (kept.ok())
    kept = sessions_.deps().store.put_pipeline(
        stored_pipeline(pipeline), stored_revision(pipeline, planned.caller, std::move(note)),
        sessions_.stored_after(planned.swaps), token);
  SPDLD_FAILPOINT("session.swap.committed");
  const PipelinePtr before = catalogue.find(pipeline.id());
  if (kept.ok()) {
    if (auto put = catalogue.put(planned.caller, planned.pipeline, pipeline.version); !put)
      kept = std::move(put).error();
  }
  if (!kept.ok()) {
    drop(token, planned);
    return tl::unexpected<Status>(
        kept.with_context("pipeline '" + pipeline.id() + "' and its jobs stay as they are"));
  }
  sessions_.commit_swaps(planned.swaps);
  Swap done = outcome(planned);
  done.unchanged = before != nullptr && before->version == pipeline.version;
  if (!done.unchanged || !planned.swaps.empty())
    log::info({.pipeline = pipeline.id(), .uid = planned.caller},
              "pipeline '{}' version {}: {}, applied by uid {} for new jobs and {}", pipeline.id(),
              pipeline.version, counted(pipeline.source->size(), "item"), planned.caller,
              counted(planned.swaps.size(), "running job"));
  return done;
}

void Swaps::drop(const std::string& token, const Planned& planned) {
  // First, so that no later daemon holds shards at a point that they have passed by then.
  const Status removed = token.empty() ? Status() : sessions_.deps().store.remove_prepared(token);
  if (!removed.ok())
    spdlog::warn("{}; a restart before its hold ends would find it prepared", removed.message());
  sessions_.abort_swaps(planned.swaps);
}

Result<Swap> Swaps::change(const Caller& caller, const PipelinePtr& built, std::string note,
                           const std::optional<SwapRequest>& jobs,
                           const Catalogue::Progress& progress) {
  MutexLock one_at_a_time(sessions_.swapping());
  SPDLD_TRY(check_free(built->id()));
  if (jobs) {
    SPDLD_ASSIGN(const Planned planned, plan(caller, built, *jobs, progress));
    return carry_out(planned, std::move(note), {});
  }
  Planned alone{.caller = caller.uid, .pipeline = nullptr, .swaps = {}};
  SPDLD_ASSIGN(alone.pipeline, sessions_.deps().catalogue.numbered(caller.uid, built));
  return carry_out(alone, std::move(note), {});
}

Result<Swap> Swaps::replace(const Caller& caller, const PipelinePtr& built, std::string note) {
  Planned alone{.caller = caller.uid, .pipeline = nullptr, .swaps = {}};
  SPDLD_ASSIGN(alone.pipeline, sessions_.deps().catalogue.numbered(caller.uid, built));
  return carry_out(alone, std::move(note), {});
}

Result<Swap> Swaps::prepare(const Caller& caller, const PipelinePtr& built, const SwapRequest& jobs,
                            const Catalogue::Progress& progress) {
  if (jobs.at.kind != SwapAt::Kind::kStep)
    return error(Code::kInvalidArgument,
                 "a swap over several daemons needs a step that all of them can name: --at "
                 "step:EPOCH/N");
  MutexLock one_at_a_time(sessions_.swapping());
  SPDLD_TRY(check_free(built->id()));
  SPDLD_ASSIGN(Planned planned, plan(caller, built, jobs, progress));
  planned.expires = sessions_.deps().clock.now() + kHold;
  StoredPrepared record{.token = new_token(),
                        .until_unix_ms = unix_ms() + static_cast<std::uint64_t>(
                                                         std::chrono::milliseconds(kHold).count()),
                        .caller = caller.uid,
                        .pipeline = stored_pipeline(*planned.pipeline),
                        .swaps = sessions_.stored_swaps(planned.swaps)};
  MutexLock writing(sessions_.records());
  Status kept = check_planned(planned);
  if (kept.ok())
    kept = sessions_.deps().store.put_prepared(record, sessions_.stored_before(planned.swaps));
  if (!kept.ok()) {
    drop({}, planned);
    return tl::unexpected<Status>(std::move(kept));
  }
  Swap swap = outcome(planned);
  swap.token = record.token;
  swap.hold = kHold;
  MutexLock lock(mutex_);
  prepared_[swap.token] = std::move(planned);
  return swap;
}

Status Swaps::check_free(const std::string& pipeline) const {
  MutexLock lock(mutex_);
  for (const auto& [token, planned] : prepared_) {
    if (planned.pipeline->id() != pipeline) continue;
    return Status(Code::kFailedPrecondition,
                  "pipeline '" + pipeline + "' is about to change: an apply of version " +
                      std::to_string(planned.pipeline->version) +
                      " has been prepared; try again once it is committed or aborted, which is "
                      "within " +
                      std::to_string(kHold.count()) + " s");
  }
  return {};
}

std::optional<Swaps::Planned> Swaps::prepared(const Caller& caller,
                                              const std::string& token) const {
  MutexLock lock(mutex_);
  const auto found = prepared_.find(token);
  if (found == prepared_.end() || found->second.caller != caller.uid) return std::nullopt;
  return found->second;
}

void Swaps::forget(const std::string& token) {
  MutexLock lock(mutex_);
  prepared_.erase(token);
}

std::optional<Swap> Swaps::committed(const Caller& caller, const std::string& token) const {
  MutexLock lock(mutex_);
  for (const Committed& done : committed_) {
    if (done.token == token && done.caller == caller.uid) return done.swap;
  }
  return std::nullopt;
}

void Swaps::remember(const std::string& token, uid_t caller, const Swap& swap) {
  MutexLock lock(mutex_);
  committed_.push_back({.token = token, .caller = caller, .swap = swap});
  if (committed_.size() > kKeptTokens) committed_.pop_front();
}

Result<Swap> Swaps::commit(const Caller& caller, const std::string& token) {
  MutexLock one_at_a_time(ending_);
  if (const auto done = committed(caller, token)) return *done;
  const auto planned = prepared(caller, token);
  if (!planned)
    return error(Code::kNotFound,
                 "there is no prepared swap '" + token +
                     "' (any more): it was aborted, or nobody committed it within " +
                     std::to_string(kHold.count()) + " s; jobs go on with what they had");
  const auto swap = carry_out(*planned, {}, token);
  if (swap) remember(token, caller.uid, *swap);
  forget(token);
  return swap;
}

Status Swaps::abort(const Caller& caller, const std::string& token) {
  MutexLock one_at_a_time(ending_);
  if (committed(caller, token))
    return Status(Code::kFailedPrecondition,
                  "swap '" + token + "' is committed: 'spdlctl rollback' goes back");
  const auto planned = prepared(caller, token);
  if (!planned) return {};
  drop(token, *planned);
  forget(token);
  return {};
}

void Swaps::tick() {
  MutexLock one_at_a_time(ending_);
  std::map<std::string, Planned> expired;
  {
    MutexLock lock(mutex_);
    for (const auto& [token, planned] : prepared_) {
      if (sessions_.deps().clock.now() >= planned.expires) expired.emplace(token, planned);
    }
  }
  for (const auto& [token, planned] : expired) {
    log::warn({.pipeline = planned.pipeline->id(), .uid = planned.caller},
              "pipeline '{}': what uid {} has prepared was not committed within {} s: aborted",
              planned.pipeline->id(), planned.caller, kHold.count());
    drop(token, planned);
    forget(token);
  }
}

Result<Swaps::Planned> Swaps::restored(const StoredPrepared& kept) {
  Planned planned{.caller = kept.caller, .pipeline = nullptr, .swaps = {}};
  const StoredPipeline& stored = kept.pipeline;
  SPDLD_ASSIGN(planned.pipeline, sessions_.deps().catalogue.rebuild(
                                     owner_of(stored.id, stored.owner), stored.request,
                                     stored.version, std::nullopt, stored.request.reader, nullptr));
  for (const StoredSwap& swap : kept.swaps) {
    auto again = sessions_.restore_swap(swap);
    if (!again) {
      sessions_.abort_swaps(planned.swaps);
      return tl::unexpected<Status>(again.error().with_context("job '" + swap.key.job + "'"));
    }
    planned.swaps.push_back(std::move(*again));
  }
  return planned;
}

void Swaps::restore(const std::function<void(std::string)>& warn) {
  const auto kept = sessions_.deps().store.prepared();
  if (!kept) return warn("swaps that were prepared are aborted: " + kept.error().message());
  const std::uint64_t now = wall_ms(sessions_.deps().clock);
  for (const StoredPrepared& one : *kept) {
    if (one.committed) {
      Swap swap{.pipeline = sessions_.deps().catalogue.find(one.pipeline.id)};
      if (swap.pipeline == nullptr) continue;  // deleted since
      for (const StoredSwap& of : one.swaps)
        swap.jobs.push_back(
            {.job = of.key.job,
             .pipeline = of.key.pipeline,
             .version = of.phase.version,
             .from = of.from,
             .tuned = of.tuned,
             .runs = of.runs,
             .replaces = of.replaces,
             .overrides = overridden(of.vars, of.phase.overrides, of.phase.request.vars)});
      remember(one.token, one.caller, swap);
      continue;
    }
    const bool in_time = one.until_unix_ms > now;
    auto planned = in_time ? restored(one) : error(Code::kDeadlineExceeded, "its hold has ended");
    if (planned) {
      // However a clock was set meanwhile.
      const auto left = std::min<std::chrono::nanoseconds>(
          kHold, std::chrono::milliseconds(one.until_unix_ms - now));
      planned->expires = sessions_.deps().clock.now() + left;
      MutexLock lock(mutex_);
      prepared_[one.token] = std::move(*planned);
      continue;
    }
    if (in_time)
      warn("pipeline '" + one.pipeline.id +
           "': a swap that was prepared is aborted: " + planned.error().message());
    if (Status removed = sessions_.deps().store.remove_prepared(one.token); !removed.ok())
      warn(removed.message());
  }
}

}  // namespace spdld::session
