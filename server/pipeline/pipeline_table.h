// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/users/trusted_users.h"
#include "pipeline/pipeline_version.h"

namespace spdld::pipeline {

// The pipelines that there are, by id and version, and those that were lost; which of them a
// caller's name means, and whether the caller may change it. Owned by Catalogue. Thread-safe, a
// leaf among the locks: each call is quick and asks no file system.
class PipelineTable {
 public:
  // `pipelines_per_user`: applied ones; trusted users may have more.
  PipelineTable(TrustedUsers trusted, std::size_t pipelines_per_user)
      : trusted_(std::move(trusted)), pipelines_per_user_(pipelines_per_user) {}

  // Returns it with the number that put() would give it: the one that it has already if its content
  // has not changed. Fails if the caller may not change it, or may not have another one.
  Result<PipelinePtr> numbered(uid_t caller, const PipelinePtr& pipeline,
                               std::uint32_t at_least = 1) const SPDLD_EXCLUDES(mutex_);
  // Puts it under its id, as the next version; the same content stays the version it was.
  // `at_least`: versions before were used by an earlier daemon.
  Result<PipelinePtr> put(uid_t caller, const PipelinePtr& pipeline, std::uint32_t at_least = 1)
      SPDLD_EXCLUDES(mutex_);
  // Puts back the version that was there before the current one, under its own number.
  void take_back(const PipelinePtr& before) SPDLD_EXCLUDES(mutex_);
  // Puts one that a loader brings and that nobody has applied yet. One with the same text that
  // another loader has put meanwhile stays instead.
  Result<PipelinePtr> put_first(uid_t caller, const PipelinePtr& pipeline) SPDLD_EXCLUDES(mutex_);
  // Notes one that was applied and cannot be opened: until it is applied again, get() says why, and
  // nothing else takes its place.
  void put_lost(const std::string& id, uid_t owner, std::uint32_t version, Status why)
      SPDLD_EXCLUDES(mutex_);
  // Notes that a file of the configuration was refused, and why, which names it: who asks for a
  // pipeline of this name, and there is none, is told. `name`: as the file says; empty: that is not
  // known. Until the file is refused again, or accepted.
  void put_refused(const std::string& file, std::string name, std::string why)
      SPDLD_EXCLUDES(mutex_);
  void accept(const std::string& file) SPDLD_EXCLUDES(mutex_);
  // Whether it is there, or lost.
  bool has(const std::string& id) const SPDLD_EXCLUDES(mutex_);
  PipelinePtr find(const std::string& id) const SPDLD_EXCLUDES(mutex_);
  // Finds it, or fails: with the reason why it is lost, or as there is none of that id. `text`: the
  // caller's name for it.
  Result<PipelinePtr> get(const std::string& id, uid_t caller, const std::string& text) const
      SPDLD_EXCLUDES(mutex_);
  std::vector<PipelinePtr> all() const SPDLD_EXCLUDES(mutex_);
  // Whether remove() would do it.
  Status check_remove(uid_t caller, const std::string& id) const SPDLD_EXCLUDES(mutex_);
  Status remove(uid_t caller, const std::string& id) SPDLD_EXCLUDES(mutex_);

  // The ids that `text` may mean when the caller says it, the first that exists counts: NAME is the
  // caller's own or else the shared one; /NAME is the shared one; USER/NAME, with a login name or a
  // uid, is that user's, for that user and for admins. Errors: kPermissionDenied for another
  // user's, kNotFound for a user that the machine does not know.
  Result<std::vector<std::string>> ids(uid_t caller, const std::string& text) const;
  // Those of them that exist or are lost.
  Result<std::vector<std::string>> known_ids(uid_t caller, const std::string& text) const
      SPDLD_EXCLUDES(mutex_);
  // The first of known_ids(). kNotFound, with the names that there are, if there is none.
  Result<std::string> resolve(uid_t caller, const std::string& text) const SPDLD_EXCLUDES(mutex_);
  // resolve() and get().
  Result<PipelinePtr> named(uid_t caller, const std::string& text) const SPDLD_EXCLUDES(mutex_);
  // The shortest name by which this caller can ask for the pipeline.
  std::string name_for(uid_t caller, const std::string& id) const SPDLD_EXCLUDES(mutex_);
  // The caller's own and the shared ones; to admins all.
  std::vector<PipelinePtr> visible_to(uid_t caller) const SPDLD_EXCLUDES(mutex_);
  // How many each user has applied; users without any are left out. Those that only a loader
  // brought do not count.
  std::map<uid_t, std::size_t> applied_by_users() const SPDLD_EXCLUDES(mutex_);
  std::size_t pipelines_per_user() const { return pipelines_per_user_; }
  // The users that may have as many pipelines and jobs as they like, and the admins, which may
  // change those of others.
  const TrustedUsers& trusted() const { return trusted_; }
  bool is_admin(uid_t uid) const { return trusted_.is_admin(uid); }
  // The owner of a pipeline that this user applies or brings: all users share an admin's.
  job::PipelineOwner owner_for(uid_t uid) const { return {.uid = uid, .shared = is_admin(uid)}; }

  // Returns it, or the version of it that another call has opened; null: it is closed. It counts as
  // asked for (take_used()).
  PipelinePtr find_open(const PipelinePtr& pipeline) SPDLD_EXCLUDES(mutex_);
  // Puts `open` in the place of `closed`, if that is still there.
  void put_open(const PipelinePtr& closed, const PipelinePtr& open) SPDLD_EXCLUDES(mutex_);
  // Closes those that nobody has and that `may_close` names, which is called under no lock. Returns
  // how many.
  std::size_t close(const std::function<bool(const PipelineVersion&)>& may_close)
      SPDLD_EXCLUDES(mutex_);
  // The ids that were asked for since the last call, or that somebody had then.
  std::set<std::string> take_used() SPDLD_EXCLUDES(mutex_);

 private:
  struct Lost {
    uid_t owner = 0;
    std::uint32_t version = 0;
    Status why;
  };

  struct Refused {
    std::string name;
    std::string why;
  };

  Result<PipelinePtr> number(uid_t caller, const PipelinePtr& pipeline,
                             std::uint32_t at_least) const SPDLD_REQUIRES(mutex_);
  std::map<uid_t, std::size_t> count_applied() const SPDLD_REQUIRES(mutex_);
  Status check_room(uid_t caller, const PipelineVersion& pipeline) const SPDLD_REQUIRES(mutex_);
  Status may_change(uid_t caller, const std::string& id) const;
  std::string why_refused(const std::string& text) const SPDLD_EXCLUDES(mutex_);
  Status absent(uid_t caller, const std::string& text) const SPDLD_EXCLUDES(mutex_);

  const TrustedUsers trusted_;
  const std::size_t pipelines_per_user_;
  mutable Mutex mutex_;
  std::map<std::string, PipelinePtr> pipelines_ SPDLD_GUARDED_BY(mutex_);  // by id
  std::set<std::string> used_ SPDLD_GUARDED_BY(mutex_);                    // of these; take_used()
  std::map<std::string, Lost> lost_ SPDLD_GUARDED_BY(mutex_);              // by id
  std::map<std::string, Refused> refused_ SPDLD_GUARDED_BY(mutex_);        // by file
};

}  // namespace spdld::pipeline
