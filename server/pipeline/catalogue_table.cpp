// SPDX-License-Identifier: Apache-2.0
// The pipelines that there are, by id and version: a part of Catalogue.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/catalogue.h"

namespace spdld::pipeline {

Result<PipelinePtr> Catalogue::number(uid_t caller, const PipelinePtr& pipeline,
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
      // It stays what it was; of its directories the last look counts.
      auto same = std::make_shared<PipelineVersion>(now);
      same->source = pipeline->source;
      same->lengths = pipeline->lengths;
      same->closed = pipeline->closed;
      same->listed = pipeline->listed;
      same->request.dataset = pipeline->request.dataset;
      same->request.from_loader = now.request.from_loader && pipeline->request.from_loader;
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
  used_.insert(numbered->id());
  lost_.erase(numbered->id());
  return numbered;
}

void Catalogue::take_back(const PipelinePtr& before) {
  MutexLock lock(mutex_);
  pipelines_[before->id()] = before;
  used_.insert(before->id());
}

Result<PipelinePtr> Catalogue::put_first(uid_t caller, const PipelinePtr& pipeline) {
  MutexLock lock(mutex_);
  const auto known = pipelines_.find(pipeline->id());
  if (known != pipelines_.end() && known->second->text_digest() == pipeline->text_digest())
    return known->second;
  SPDLD_ASSIGN(PipelinePtr numbered, number(caller, pipeline, 1));
  pipelines_[numbered->id()] = numbered;
  used_.insert(numbered->id());
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

std::vector<PipelinePtr> Catalogue::all() const {
  MutexLock lock(mutex_);
  std::vector<PipelinePtr> result;
  for (const auto& [id, pipeline] : pipelines_) result.push_back(pipeline);
  return result;
}

Status Catalogue::check_remove(uid_t caller, const std::string& id) const {
  {
    MutexLock lock(mutex_);
    if (pipelines_.contains(id) || lost_.contains(id)) return may_change(caller, id);
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

}  // namespace spdld::pipeline
