// SPDX-License-Identifier: Apache-2.0
// What each user has of the daemon, and may have: a part of Sessions and SessionService.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/text/counted.h"
#include "session/session_service.h"
#include "session/sessions.h"

namespace spdld::session {

Status Sessions::make_room_for_brought(uid_t uid) {
  pipeline::Catalogue& catalogue = deps_.catalogue;
  if (catalogue.trusted().contains(uid)) return {};
  const std::size_t most = catalogue.pipelines_per_user();
  std::vector<pipeline::PipelinePtr> brought = catalogue.all();
  std::erase_if(brought, [uid](const pipeline::PipelinePtr& pipeline) {
    return pipeline->owner != job::PipelineOwner{.uid = uid, .shared = false} ||
           !pipeline->request.from_loader;
  });
  if (brought.size() < most) return {};
  const auto idle =
      std::find_if(brought.begin(), brought.end(), [this](const pipeline::PipelinePtr& pipeline) {
        return !is_run_or_expected(pipeline->id());
      });
  if (idle == brought.end())
    return Status(Code::kResourceExhausted,
                  fmt::format("user {} reads {} that its loaders brought, and limits.pipelines "
                              "allows {}: let some end, or have limits.pipelines raised",
                              uid, counted(brought.size(), "pipeline"), most));
  const std::string id = (*idle)->id();
  MutexLock writing(records_);
  (void)keep_brought();
  if (Status removed = deps_.store.remove_pipeline(id); !removed.ok())
    spdlog::warn("{}; a restart would bring pipeline '{}' back", removed.message(), id);
  SPDLD_TRY(catalogue.remove(uid, id));
  log::info({.pipeline = id, .uid = uid},
            "pipeline '{}', which a loader brought and no job runs, gives way to another one", id);
  return {};
}

bool Sessions::is_run_or_expected(const std::string& pipeline) const {
  MutexLock lock(mutex_);
  const auto on_it = [&](const job::JobKey& key) { return key.pipeline == pipeline; };
  return std::any_of(expected_.begin(), expected_.end(), on_it) ||
         std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) { return on_it(job.first); });
}

std::size_t Sessions::jobs_of_user(uid_t uid) const {
  const auto theirs = [uid](const auto& job) { return job.first.uid == uid; };
  return static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), theirs) +
                                  std::count_if(broken_.begin(), broken_.end(), theirs));
}

Status Sessions::check_room_for_job(uid_t uid) const {
  const std::size_t most = deps_.jobs_per_user;
  if (deps_.catalogue.trusted().contains(uid)) return {};
  const std::size_t jobs = jobs_of_user(uid);
  if (jobs < most) return {};
  return Status(Code::kResourceExhausted,
                fmt::format("user {} has {} jobs, declared or running, and limits.jobs allows {}: "
                            "delete some ('spdlctl delete job NAME'), let some end, or have "
                            "limits.jobs raised",
                            uid, jobs, most));
}

void Sessions::count_users(std::map<uid_t, UserView>& users) const {
  for (const auto& [uid, waiting] : slow_.waiting()) users[uid].attaches.used = waiting;
  MutexLock lock(mutex_);
  for (const auto& [key, job] : jobs_) {
    UserView& user = users[key.uid];
    ++user.jobs.used;
    user.cpu_s += job->spent().cpu_s;
  }
  for (const auto& [key, why] : broken_) ++users[key.uid].jobs.used;
}

std::vector<UserView> SessionService::users(const job::Caller& caller,
                                            const std::set<uid_t>& also) {
  std::map<uid_t, UserView> users;
  users[caller.uid];
  for (const uid_t uid : also) users[uid];
  const delivery::DataServer* const data = data_.load(std::memory_order_acquire);
  if (data != nullptr) {
    for (const auto& [uid, use] : data->users()) {
      users[uid].connections.used = use.connections;
      users[uid].unattached_bytes.used = use.unattached_bytes;
      users[uid].unread_bytes.used = use.unread_bytes;
    }
  }
  for (const auto& [uid, taken] : catalogue_.listings().users())
    users[uid].listings.used = static_cast<std::uint64_t>(taken);
  if (const BufferMemory* const buffers = catalogue_.buffers()) {
    for (const auto& [uid, bytes] : buffers->used()) users[uid].file_bytes.used = bytes;
  }
  for (const auto& [uid, bytes] : catalogue_.listing_memory().used())
    users[uid].listing_bytes.used = bytes;
  for (const auto& [uid, applied] : catalogue_.applied_by_users())
    users[uid].pipelines.used = applied;
  const SessionsDeps& deps = sessions_.deps();
  for (const auto& [uid, bytes] : deps.budget.used_by_users()) users[uid].arena_bytes.used = bytes;
  sessions_.count_users(users);

  std::vector<UserView> views;
  for (auto& [uid, user] : users) {
    if (uid != caller.uid && !catalogue_.is_admin(caller.uid)) continue;
    user.uid = uid;
    user.arena_bytes.limit = deps.budget.share_bytes(uid);
    if (const BufferMemory* const buffers = catalogue_.buffers())
      user.file_bytes.limit = buffers->limit();
    user.listing_bytes.limit = catalogue_.listing_memory().limit(uid);
    user.listings.limit = static_cast<std::uint64_t>(catalogue_.listings().most_per_user());
    if (!catalogue_.trusted().contains(uid)) {
      user.pipelines.limit = catalogue_.pipelines_per_user();
      user.jobs.limit = deps.jobs_per_user;
    }
    if (data != nullptr) {
      const delivery::DataServerOptions& options = data->options();
      user.connections.limit = options.connections.per_user;
      user.unattached_bytes.limit = options.max_unattached_bytes_per_uid;
      user.unread_bytes.limit = options.max_unread_bytes_per_uid;
    }
    views.push_back(user);
  }
  return views;
}

}  // namespace spdld::session
