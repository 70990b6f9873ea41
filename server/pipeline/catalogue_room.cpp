// SPDX-License-Identifier: Apache-2.0
// How many pipelines each user has applied, and may: a part of Catalogue.
#include <map>
#include <string>

#include "base/text/counted.h"
#include "pipeline/catalogue.h"

namespace spdld::pipeline {

std::map<uid_t, std::size_t> Catalogue::count_applied() const {
  std::map<uid_t, std::size_t> applied;
  for (const auto& [name, pipeline] : pipelines_) {
    if (!pipeline->request.from_loader) ++applied[pipeline->owner.uid];
  }
  for (const auto& [name, lost] : lost_) ++applied[lost.owner];
  return applied;
}

std::map<uid_t, std::size_t> Catalogue::applied_by_users() const {
  MutexLock lock(mutex_);
  return count_applied();
}

// A name that counts already may change however many there are.
Status Catalogue::check_room(uid_t caller, const PipelineVersion& pipeline) const {
  if (pipeline.request.from_loader || trusted_.contains(caller) || lost_.contains(pipeline.id()))
    return {};
  const auto known = pipelines_.find(pipeline.id());
  if (known != pipelines_.end() && !known->second->request.from_loader) return {};
  const std::map<uid_t, std::size_t> applied = count_applied();
  const auto own = applied.find(caller);
  const std::size_t count = own == applied.end() ? 0 : own->second;
  if (count < options_.pipelines_per_user) return {};
  return Status(
      Code::kResourceExhausted,
      "pipeline '" + pipeline.name() + "' is not applied: user " + std::to_string(caller) +
          " has " + counted(count, "pipeline") + ", and limits.pipelines allows " +
          std::to_string(options_.pipelines_per_user) +
          ": delete some ('spdlctl delete pipeline NAME'), or have limits.pipelines raised");
}

}  // namespace spdld::pipeline
