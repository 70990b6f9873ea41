// SPDX-License-Identifier: Apache-2.0
#include "pipeline/pipeline_table.h"

#include <algorithm>

#include "base/log.h"
#include "base/text/counted.h"
#include "base/users/user_database.h"

namespace spdld::pipeline {

Result<PipelinePtr> PipelineTable::number(uid_t caller, const PipelinePtr& pipeline,
                                          std::uint32_t at_least) const {
  const auto known = pipelines_.find(pipeline->id());
  auto numbered = std::make_shared<PipelineVersion>(*pipeline);
  numbered->version = at_least;
  if (known != pipelines_.end()) {
    SPDLD_TRY(may_change(caller, known->first));
    // One that has other variables is another one, though they make the same of it.
    const PipelineVersion& now = *known->second;
    if (now.content_digest == pipeline->content_digest &&
        now.plan->spec.vars == pipeline->plan->spec.vars) {
      // It stays the version that it was; of its directories the last look counts.
      auto same = std::make_shared<PipelineVersion>(now);
      same->source = pipeline->source;
      same->lengths = pipeline->lengths;
      same->closed = pipeline->closed;
      same->listed = pipeline->listed;
      same->request.dataset = pipeline->request.dataset;
      same->request.from_loader = now.request.from_loader && pipeline->request.from_loader;
      // Who applied it counts for its own text alone, where that has code run.
      if (!pipeline->plan->calls.empty()) {
        same->request.yaml = pipeline->request.yaml;
        same->request.file = pipeline->request.file;
        same->request.env = pipeline->request.env;
      }
      same->request.reader = pipeline->request.reader;
      same->reader = pipeline->reader;
      return PipelinePtr(std::move(same));
    }
    numbered->version = std::max(at_least, known->second->version + 1);
  } else if (const auto lost = lost_.find(pipeline->id()); lost != lost_.end()) {
    SPDLD_TRY(may_change(caller, lost->first));
    numbered->version = std::max(at_least, lost->second.version + 1);
  }
  return PipelinePtr(std::move(numbered));
}

Result<PipelinePtr> PipelineTable::numbered(uid_t caller, const PipelinePtr& pipeline,
                                            std::uint32_t at_least) const {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(PipelinePtr numbered, number(caller, pipeline, at_least));
  SPDLD_TRY(check_room(caller, *numbered));
  return numbered;
}

Result<PipelinePtr> PipelineTable::put(uid_t caller, const PipelinePtr& pipeline,
                                       std::uint32_t at_least) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(PipelinePtr numbered, number(caller, pipeline, at_least));
  pipelines_[numbered->id()] = numbered;
  used_.insert(numbered->id());
  lost_.erase(numbered->id());
  return numbered;
}

void PipelineTable::take_back(const PipelinePtr& before) {
  MutexLock lock(mutex_);
  pipelines_[before->id()] = before;
  used_.insert(before->id());
}

Result<PipelinePtr> PipelineTable::put_first(uid_t caller, const PipelinePtr& pipeline) {
  MutexLock lock(mutex_);
  const auto known = pipelines_.find(pipeline->id());
  if (known != pipelines_.end() && known->second->text_digest() == pipeline->text_digest())
    return known->second;
  SPDLD_ASSIGN(PipelinePtr numbered, number(caller, pipeline, 1));
  pipelines_[numbered->id()] = numbered;
  used_.insert(numbered->id());
  return numbered;
}

void PipelineTable::put_lost(const std::string& id, uid_t owner, std::uint32_t version,
                             Status why) {
  MutexLock lock(mutex_);
  lost_[id] = {.owner = owner, .version = version, .why = std::move(why)};
}

void PipelineTable::put_refused(const std::string& file, std::string name, std::string why) {
  MutexLock lock(mutex_);
  refused_[file] = {.name = std::move(name), .why = std::move(why)};
}

void PipelineTable::accept(const std::string& file) {
  MutexLock lock(mutex_);
  refused_.erase(file);
}

bool PipelineTable::has(const std::string& id) const {
  MutexLock lock(mutex_);
  return pipelines_.contains(id) || lost_.contains(id);
}

PipelinePtr PipelineTable::find(const std::string& id) const {
  MutexLock lock(mutex_);
  const auto found = pipelines_.find(id);
  return found == pipelines_.end() ? nullptr : found->second;
}

Result<PipelinePtr> PipelineTable::get(const std::string& id, uid_t caller,
                                       const std::string& text) const {
  {
    MutexLock lock(mutex_);
    if (const auto found = pipelines_.find(id); found != pipelines_.end()) return found->second;
    if (const auto lost = lost_.find(id); lost != lost_.end())
      return tl::unexpected<Status>(lost->second.why);
  }
  return tl::unexpected<Status>(absent(caller, text));
}

std::vector<PipelinePtr> PipelineTable::all() const {
  MutexLock lock(mutex_);
  std::vector<PipelinePtr> result;
  for (const auto& [id, pipeline] : pipelines_) result.push_back(pipeline);
  return result;
}

Status PipelineTable::check_remove(uid_t caller, const std::string& id) const {
  return has(id) ? may_change(caller, id) : absent(caller, id);
}

Status PipelineTable::remove(uid_t caller, const std::string& id) {
  SPDLD_TRY(check_remove(caller, id));
  MutexLock lock(mutex_);
  pipelines_.erase(id);
  lost_.erase(id);
  return {};
}

Status PipelineTable::may_change(uid_t caller, const std::string& id) const {
  if (is_admin(caller) || id.starts_with(job::pipeline_id({.uid = caller, .shared = false}, "")))
    return {};
  return Status(
      Code::kPermissionDenied,
      "pipeline '" + id +
          (job::is_shared(id) ? "' is shared by all users" : "' is another user's") + ", and " +
          trusted_.who(caller) +
          " is not in access.admins: ask an admin; a file that you apply becomes your own");
}

Result<std::vector<std::string>> PipelineTable::ids(uid_t caller, const std::string& text) const {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos)
    return std::vector{job::pipeline_id({.uid = caller, .shared = false}, text), text};
  const std::string name = text.substr(slash + 1);
  if (slash == 0) return std::vector{name};
  SPDLD_ASSIGN(const uid_t user, find_user(text.substr(0, slash)));
  if (user != caller && !is_admin(caller))
    return error(Code::kPermissionDenied,
                 "pipeline '" + text + "' is another user's, and " + trusted_.who(caller) +
                     " is not in access.admins: the shared one is '/" + name + "'");
  return std::vector{job::pipeline_id({.uid = user, .shared = false}, name)};
}

Result<std::vector<std::string>> PipelineTable::known_ids(uid_t caller,
                                                          const std::string& text) const {
  SPDLD_ASSIGN(std::vector<std::string> known, ids(caller, text));
  std::erase_if(known, [this](const std::string& id) { return !has(id); });
  return known;
}

Result<std::string> PipelineTable::resolve(uid_t caller, const std::string& text) const {
  SPDLD_ASSIGN(const std::vector<std::string> known, known_ids(caller, text));
  if (known.empty()) return tl::unexpected<Status>(absent(caller, text));
  return known.front();
}

Result<PipelinePtr> PipelineTable::named(uid_t caller, const std::string& text) const {
  SPDLD_ASSIGN(const std::string id, resolve(caller, text));
  return get(id, caller, text);
}

std::string PipelineTable::name_for(uid_t caller, const std::string& id) const {
  const std::string own = job::pipeline_id({.uid = caller, .shared = false}, "");
  if (id.starts_with(own)) return id.substr(own.size());
  // One's own of that name comes before the shared one.
  return job::is_shared(id) && has(own + id) ? "/" + id : id;
}

// The end of a sentence about a pipeline that is not there: what became of the file that it may be
// of.
std::string PipelineTable::why_refused(const std::string& text) const {
  const std::string name = text.starts_with('/') ? text.substr(1) : text;
  std::string nameless;
  MutexLock lock(mutex_);
  for (const auto& [file, refused] : refused_) {
    if (refused.name == name) return ": its file was refused: " + refused.why;
    if (refused.name.empty())
      nameless += "; a file that does not say its pipeline's name was refused: " + refused.why;
  }
  return nameless;
}

Status PipelineTable::absent(uid_t caller, const std::string& text) const {
  std::string why = "there is no pipeline '" + text + "'";
  if (text.ends_with(".yaml") || text.ends_with(".yml"))
    why += ": a file is first to be applied, 'spdlctl apply -f " + text +
           "', and has its pipeline's name then";
  why += why_refused(text);
  std::string known;
  for (const PipelinePtr& pipeline : visible_to(caller))
    known += (known.empty() ? "; there are: " : ", ") + name_for(caller, pipeline->id());
  if (known.empty()) known = "; none has been applied yet: 'spdlctl apply -f FILE' does it";
  return Status(Code::kNotFound, why + known);
}

std::vector<PipelinePtr> PipelineTable::visible_to(uid_t caller) const {
  std::vector<PipelinePtr> visible = all();
  if (is_admin(caller)) return visible;
  std::erase_if(visible, [caller](const PipelinePtr& pipeline) {
    return !pipeline->owner.shared && pipeline->owner.uid != caller;
  });
  return visible;
}

std::map<uid_t, std::size_t> PipelineTable::count_applied() const {
  std::map<uid_t, std::size_t> applied;
  for (const auto& [name, pipeline] : pipelines_) {
    if (!pipeline->request.from_loader) ++applied[pipeline->owner.uid];
  }
  for (const auto& [name, lost] : lost_) ++applied[lost.owner];
  return applied;
}

std::map<uid_t, std::size_t> PipelineTable::applied_by_users() const {
  MutexLock lock(mutex_);
  return count_applied();
}

// A name that counts already may change however many there are.
Status PipelineTable::check_room(uid_t caller, const PipelineVersion& pipeline) const {
  if (pipeline.request.from_loader || trusted_.contains(caller) || lost_.contains(pipeline.id()))
    return {};
  const auto known = pipelines_.find(pipeline.id());
  if (known != pipelines_.end() && !known->second->request.from_loader) return {};
  const std::size_t count = count_applied()[caller];
  if (count < pipelines_per_user_) return {};
  return Status(
      Code::kResourceExhausted,
      "pipeline '" + pipeline.name() + "' is not applied: user " + std::to_string(caller) +
          " has " + counted(count, "pipeline") + ", and limits.pipelines allows " +
          std::to_string(pipelines_per_user_) +
          ": delete some ('spdlctl delete pipeline NAME'), or have limits.pipelines raised");
}

PipelinePtr PipelineTable::find_open(const PipelinePtr& pipeline) {
  MutexLock lock(mutex_);
  const auto found = pipelines_.find(pipeline->id());
  if (found != pipelines_.end()) used_.insert(pipeline->id());
  if (!pipeline->closed) return pipeline;
  const bool is_open = found != pipelines_.end() && !found->second->closed &&
                       found->second->version == pipeline->version &&
                       found->second->content_digest == pipeline->content_digest;
  return is_open ? found->second : nullptr;
}

void PipelineTable::put_open(const PipelinePtr& closed, const PipelinePtr& open) {
  MutexLock lock(mutex_);
  const auto found = pipelines_.find(closed->id());
  if (found != pipelines_.end() && found->second == closed) found->second = open;
}

std::size_t PipelineTable::close(const std::function<bool(const PipelineVersion&)>& may_close) {
  std::size_t count = 0;
  const std::vector<PipelinePtr> there = all();
  for (const PipelinePtr& pipeline : there) {
    if (pipeline->closed || !may_close(*pipeline)) continue;
    const std::string id = pipeline->id();
    PipelinePtr closed = pipeline->closed_copy();
    {
      MutexLock lock(mutex_);
      const auto found = pipelines_.find(id);
      // Nobody else has it: that of `there` is the second reference.
      if (found == pipelines_.end() || found->second != pipeline || pipeline.use_count() > 2 ||
          pipeline->source.use_count() > 1)
        continue;
      found->second = std::move(closed);
    }
    ++count;
    log::info({.pipeline = id}, "pipeline '{}' is closed, as nobody uses it: {}", id,
              counted(pipeline->source->size(), "item"));
  }
  return count;
}

std::set<std::string> PipelineTable::take_used() {
  std::set<std::string> used;
  MutexLock lock(mutex_);
  used.swap(used_);
  for (const auto& [id, pipeline] : pipelines_) {
    // A job has it, or its source.
    if (pipeline.use_count() > 1 || pipeline->source.use_count() > 1) used_.insert(id);
  }
  return used;
}

}  // namespace spdld::pipeline
