// SPDX-License-Identifier: Apache-2.0
// Whose pipelines there are, and by which names: a part of Catalogue.
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "session/catalogue.h"

namespace spdld::session {

bool Catalogue::is_admin(uid_t uid) const {
  return uid == ::geteuid() ||
         std::binary_search(options_.admins.begin(), options_.admins.end(), uid);
}

Status Catalogue::may_change(uid_t caller, const std::string& id, uid_t owner) const {
  if (caller == owner || is_admin(caller)) return {};
  return Status(Code::kPermissionDenied,
                "pipeline '" + id + "' belongs to uid " + std::to_string(owner) + ", and uid " +
                    std::to_string(caller) +
                    " is not in access.admins: use another name, or ask an admin");
}

Result<PipelinePtr> Catalogue::number(uid_t caller, const PipelinePtr& pipeline,
                                      std::uint32_t at_least) const {
  const auto known = pipelines_.find(pipeline->id());
  auto numbered = std::make_shared<PipelineVersion>(*pipeline);
  numbered->version = at_least;
  if (known != pipelines_.end()) {
    SPDLD_TRY(may_change(caller, known->first, known->second->owner.uid));
    // One that has other variables is another one, though they make the same of it.
    const PipelineVersion& now = *known->second;
    if (now.content_digest == pipeline->content_digest &&
        now.plan->spec.vars == pipeline->plan->spec.vars) {
      // It stays what it was; of its directories the last look counts.
      auto same = std::make_shared<PipelineVersion>(now);
      same->source = pipeline->source;
      same->listed = pipeline->listed;
      same->request.dataset = pipeline->request.dataset;
      same->request.from_loader = now.request.from_loader && pipeline->request.from_loader;
      same->request.reader = pipeline->request.reader;
      same->reader = pipeline->reader;
      return PipelinePtr(std::move(same));
    }
    numbered->version = std::max(at_least, known->second->version + 1);
    numbered->owner = known->second->owner;
  } else if (const auto lost = lost_.find(pipeline->id()); lost != lost_.end()) {
    SPDLD_TRY(may_change(caller, lost->first, lost->second.owner));
    numbered->version = std::max(at_least, lost->second.version + 1);
    numbered->owner.uid = lost->second.owner;
  }
  return PipelinePtr(std::move(numbered));
}

Result<PipelinePtr> Catalogue::numbered(uid_t caller, const PipelinePtr& pipeline,
                                        std::uint32_t at_least) const {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(PipelinePtr numbered, number(caller, pipeline, at_least));
  SPDLD_TRY(check_room(caller, *numbered));
  return numbered;
}

Result<PipelinePtr> Catalogue::put(uid_t caller, PipelinePtr pipeline, std::uint32_t at_least) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(PipelinePtr numbered, number(caller, pipeline, at_least));
  pipelines_[numbered->id()] = numbered;
  lost_.erase(numbered->id());
  return numbered;
}

Result<PipelinePtr> Catalogue::put_first(uid_t caller, const PipelinePtr& pipeline) {
  MutexLock lock(mutex_);
  const auto known = pipelines_.find(pipeline->id());
  if (known != pipelines_.end() && known->second->text_digest() == pipeline->text_digest())
    return known->second;
  SPDLD_ASSIGN(PipelinePtr numbered, number(caller, pipeline, 1));
  pipelines_[numbered->id()] = numbered;
  return numbered;
}

void Catalogue::put_lost(const std::string& id, uid_t owner, std::uint32_t version, Status why) {
  MutexLock lock(mutex_);
  lost_[id] = {.owner = owner, .version = version, .why = std::move(why)};
}

bool Catalogue::is_lost(const std::string& id) const {
  MutexLock lock(mutex_);
  return lost_.contains(id);
}

PipelinePtr Catalogue::find(const std::string& id) const {
  MutexLock lock(mutex_);
  const auto found = pipelines_.find(id);
  return found == pipelines_.end() ? nullptr : found->second;
}

Result<PipelinePtr> Catalogue::get(const std::string& id, uid_t caller,
                                   const std::string& text) const {
  {
    MutexLock lock(mutex_);
    if (const auto found = pipelines_.find(id); found != pipelines_.end()) return found->second;
    if (const auto lost = lost_.find(id); lost != lost_.end())
      return tl::unexpected<Status>(lost->second.why);
  }
  return tl::unexpected<Status>(absent(caller, text));
}

Result<std::vector<std::string>> Catalogue::ids(uid_t caller, const std::string& text) const {
  return pipeline_ids(text, caller, is_admin(caller));
}

Result<std::vector<std::string>> Catalogue::known_ids(uid_t caller, const std::string& text) const {
  SPDLD_ASSIGN(std::vector<std::string> known, ids(caller, text));
  MutexLock lock(mutex_);
  std::erase_if(known, [this](const std::string& id) SPDLD_REQUIRES(mutex_) {
    return !pipelines_.contains(id) && !lost_.contains(id);
  });
  return known;
}

Result<std::string> Catalogue::resolve(uid_t caller, const std::string& text) const {
  SPDLD_ASSIGN(const std::vector<std::string> known, known_ids(caller, text));
  if (known.empty()) return tl::unexpected<Status>(absent(caller, text));
  return known.front();
}

Result<PipelinePtr> Catalogue::named(uid_t caller, const std::string& text) const {
  SPDLD_ASSIGN(const std::string id, resolve(caller, text));
  return get(id, caller, text);
}

std::string Catalogue::name_for(uid_t caller, const std::string& id) const {
  const std::string own = pipeline_id({.uid = caller, .shared = false}, "");
  if (id.starts_with(own)) return id.substr(own.size());
  // One's own of that name comes before the shared one.
  const bool hidden = is_shared(id) && find(own + id) != nullptr;
  return hidden ? "/" + id : id;
}

Status Catalogue::absent(uid_t caller, const std::string& text) const {
  std::string known;
  for (const PipelinePtr& pipeline : visible_to(caller))
    known += (known.empty() ? "" : ", ") + name_for(caller, pipeline->id());
  return Status(Code::kNotFound, "there is no pipeline '" + text + "'; " +
                                     (known.empty() ? "none has been applied yet: 'spdlctl apply "
                                                      "-f FILE' does it"
                                                    : "there are: " + known));
}

std::vector<PipelinePtr> Catalogue::all() const {
  MutexLock lock(mutex_);
  std::vector<PipelinePtr> result;
  for (const auto& [id, pipeline] : pipelines_) result.push_back(pipeline);
  return result;
}

std::vector<PipelinePtr> Catalogue::visible_to(uid_t caller) const {
  std::vector<PipelinePtr> visible = all();
  if (is_admin(caller)) return visible;
  std::erase_if(visible, [caller](const PipelinePtr& pipeline) {
    return !pipeline->owner.shared && pipeline->owner.uid != caller;
  });
  return visible;
}

Status Catalogue::check_remove(uid_t caller, const std::string& id) const {
  {
    MutexLock lock(mutex_);
    if (const auto known = pipelines_.find(id); known != pipelines_.end())
      return may_change(caller, id, known->second->owner.uid);
    if (const auto lost = lost_.find(id); lost != lost_.end())
      return may_change(caller, id, lost->second.owner);
  }
  return absent(caller, id);
}

Status Catalogue::remove(uid_t caller, const std::string& id) {
  SPDLD_TRY(check_remove(caller, id));
  MutexLock lock(mutex_);
  pipelines_.erase(id);
  lost_.erase(id);
  return {};
}

}  // namespace spdld::session
