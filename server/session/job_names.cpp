// SPDX-License-Identifier: Apache-2.0
// Which job a caller means: a part of Sessions.
#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "session/about.h"
#include "session/sessions.h"

namespace spdld::session {

Result<std::optional<job::JobKey>> Sessions::meant(const job::Caller& caller, const JobName& name,
                                                   std::vector<job::JobKey> keys) const {
  const std::vector<std::string>& ids = name.pipelines;
  std::erase_if(keys, [&](const job::JobKey& key) {
    const bool of_user =
        name.of_user && key.uid == name.of_user->uid && key.job == name.of_user->job;
    return (key.job != name.job && !of_user) || !visible(caller, key) ||
           (!ids.empty() && std::find(ids.begin(), ids.end(), key.pipeline) == ids.end());
  });
  // One's own job wins over another's of the same name, and one's own pipeline over a shared one.
  const auto prefer = [&keys](const auto& closer) {
    if (std::any_of(keys.begin(), keys.end(), closer))
      std::erase_if(keys, [&](const job::JobKey& key) { return !closer(key); });
  };
  prefer([&](const job::JobKey& key) { return key.uid == caller.uid; });
  prefer([&](const job::JobKey& key) { return !ids.empty() && key.pipeline == ids.front(); });
  if (keys.empty()) return std::optional<job::JobKey>();
  if (keys.size() == 1) return std::optional(keys.front());
  std::string names;
  for (const job::JobKey& key : keys)
    names += (names.empty() ? "'" : ", '") + deps_.catalogue.name_for(caller.uid, key.pipeline) +
             "' (uid " + std::to_string(key.uid) + ")";
  return error(Code::kInvalidArgument, "there are several jobs '" + name.job + "': " + names +
                                           "; say which with --pipeline, or as USER/" + name.job);
}

Result<JobPtr> Sessions::find_job(const job::Caller& caller, const JobName& name) const {
  std::vector<job::JobKey> running;
  for (const auto& [key, job] : jobs_) running.push_back(key);
  SPDLD_ASSIGN(const std::optional<job::JobKey> found, meant(caller, name, std::move(running)));
  if (found) return jobs_.at(*found);
  const auto awaited = meant(caller, name, {expected_.begin(), expected_.end()});
  if (come_back_s().count() > 0 && (!awaited || *awaited))
    return error(Code::kUnavailable,
                 "job '" + name.job +
                     "' was read when the daemon stopped, and none of its consumers has come "
                     "back yet; try again once one is attached, or in " +
                     std::to_string(come_back_s().count()) + " s, when it is no longer waited for");
  return error(Code::kNotFound,
               "there is no job '" + name.job + "'" +
                   (name.pipelines.empty()
                        ? ""
                        : " on pipeline '" +
                              deps_.catalogue.name_for(caller.uid, name.pipelines.front()) + "'") +
                   " that uid " + std::to_string(caller.uid) +
                   " may see; 'spdlctl get jobs' lists those that run, and with --ended those that "
                   "have ended");
}

Result<std::optional<job::JobKey>> Sessions::forget_job(const job::Caller& caller,
                                                        const JobName& name) {
  SPDLD_ASSIGN(std::vector<job::JobKey> keys, deps_.store.jobs_named(name.job));
  {
    MutexLock lock(mutex_);
    for (const store::StoredPosition& ended : ended_positions_) keys.push_back(ended.key);
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  SPDLD_ASSIGN(const std::optional<job::JobKey> ended, meant(caller, name, std::move(keys)));
  if (!ended) return ended;
  SPDLD_TRY(deps_.store.remove_job(*ended));
  MutexLock lock(mutex_);
  forget_ended(*ended);
  log::info(about(*ended, caller.uid),
            "what was kept of job '{}' on pipeline '{}' deleted by uid {}", ended->job,
            ended->pipeline, caller.uid);
  return ended;
}

}  // namespace spdld::session
