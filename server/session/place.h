// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "delivery/data_server.h"
#include "session/job.h"
#include "store/store.h"

namespace spdld::session {

// Where a consumer begins.
struct Place {
  job::Turn turn = 0;
  job::OwnSeeks own = {};
  bool follows = false;
};

// The request's cursor, as the job's run has it; nothing: it is a place alone.
std::optional<job::Cursor> cursor_of(const Job& job, const delivery::AttachRequest& request);
// Whether the number of shards that the request names is one that the job had at the cursor.
bool fits(const Job& job, const job::Cursor& cursor, std::uint32_t replica,
          const delivery::AttachRequest& request);
// The entry of the request's shard, where the rank begins there: a resize brought the shard.
// Nothing: it begins elsewhere.
std::optional<job::Schedule::Entry> entry_of(const Job& job, job::Member member,
                                             const delivery::AttachRequest& request);
// The first consumer of a job, or of a new run of it, decides where all begin. `awaits`: ranks of
// an earlier daemon are expected, and the job stays where they are.
Status place_first(Job& job, std::uint32_t replica, const delivery::AttachRequest& request,
                   const std::optional<store::StoredPosition>& ledger, bool awaits);
Result<Place> place_of(Job& job, job::Member member, const delivery::AttachRequest& request);

}  // namespace spdld::session
