// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "session/job_table.h"
#include "session/views.h"

namespace spdld::session {

// Whether the daemon takes new jobs. While it is drained it takes none, and those that are there go
// on: their ranks come back, and open further loaders. Kept in the store, so that a restart changes
// nothing. Owned by Sessions. Thread-safe.
class Drain {
 public:
  Drain(const SessionsDeps& deps, JobTable& table) : deps_(deps), table_(table) {}

  // Takes over what an earlier daemon was told. Before the first consumer comes.
  Status restore() SPDLD_EXCLUDES(table_.mutex());
  // kPermissionDenied for all but admins. One that is in force stays as it is.
  Result<DrainBegun> begin(const job::Caller& caller) SPDLD_EXCLUDES(table_.mutex());
  // The one that was in force; none: none was.
  Result<std::optional<DrainView>> end(const job::Caller& caller) SPDLD_EXCLUDES(table_.mutex());
  std::optional<DrainView> view() const SPDLD_EXCLUDES(table_.mutex());

  // kFailedPrecondition if it would begin a job and none is taken.
  Status check_attach(const Session& session, const delivery::AttachRequest& request) const
      SPDLD_EXCLUDES(table_.mutex());
  Status check_create(const std::string& job) const SPDLD_EXCLUDES(table_.mutex());

 private:
  Status refusal(const std::string& job) const SPDLD_REQUIRES(table_.mutex());
  DrainView view_of(const store::StoredDrain& drain) const SPDLD_REQUIRES(table_.mutex());
  // Whether the attach belongs to a training run that is here: a rank that has lost the daemon, a
  // loader of a job's name, on whichever pipeline, or of a process that reads already.
  bool is_of_a_run(const Session& session, const delivery::AttachRequest& request) const
      SPDLD_REQUIRES(table_.mutex());

  const SessionsDeps& deps_;
  JobTable& table_;
  std::optional<store::StoredDrain> drain_ SPDLD_GUARDED_BY(table_.mutex());
};

}  // namespace spdld::session
