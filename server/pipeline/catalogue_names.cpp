// SPDX-License-Identifier: Apache-2.0
// Which pipeline a caller's name means, and what the caller may do to it: a part of Catalogue.
#include <string>
#include <utility>
#include <vector>

#include "pipeline/catalogue.h"
#include "pipeline/pipeline_ids.h"

namespace spdld::pipeline {

Status Catalogue::may_change(uid_t caller, const std::string& id) const {
  if (is_admin(caller) || id.starts_with(job::pipeline_id({.uid = caller, .shared = false}, "")))
    return {};
  return Status(
      Code::kPermissionDenied,
      "pipeline '" + id +
          (job::is_shared(id) ? "' is shared by all users" : "' is another user's") + ", and " +
          trusted_.who(caller) +
          " is not in access.admins: ask an admin; a file that you apply becomes your own");
}

Result<std::vector<std::string>> Catalogue::ids(uid_t caller, const std::string& text) const {
  return pipeline_ids(text, caller, trusted_);
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
  const std::string own = job::pipeline_id({.uid = caller, .shared = false}, "");
  if (id.starts_with(own)) return id.substr(own.size());
  // One's own of that name comes before the shared one.
  const bool hidden = job::is_shared(id) && (find(own + id) != nullptr || is_lost(own + id));
  return hidden ? "/" + id : id;
}

Status Catalogue::absent(uid_t caller, const std::string& text) const {
  std::string known;
  for (const PipelinePtr& pipeline : visible_to(caller))
    known += (known.empty() ? "" : ", ") + name_for(caller, pipeline->id());
  const bool is_file = text.ends_with(".yaml") || text.ends_with(".yml");
  return Status(Code::kNotFound, "there is no pipeline '" + text + "'" +
                                     (is_file ? ": a file is first to be applied, 'spdlctl apply "
                                                "-f " +
                                                    text + "', and has its pipeline's name then"
                                              : "") +
                                     "; " +
                                     (known.empty() ? "none has been applied yet: 'spdlctl apply "
                                                      "-f FILE' does it"
                                                    : "there are: " + known));
}

std::vector<PipelinePtr> Catalogue::visible_to(uid_t caller) const {
  std::vector<PipelinePtr> visible = all();
  if (is_admin(caller)) return visible;
  std::erase_if(visible, [caller](const PipelinePtr& pipeline) {
    return !pipeline->owner.shared && pipeline->owner.uid != caller;
  });
  return visible;
}

}  // namespace spdld::pipeline
