// SPDX-License-Identifier: Apache-2.0
#include "session/drain.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/clock.h"
#include "base/log.h"

namespace spdld::session {
namespace {

std::string since(const store::StoredDrain& drain) {
  return fmt::format("since {:%F %T}Z by uid {}",
                     fmt::gmtime(static_cast<std::time_t>(drain.since_unix_ms / 1000)), drain.by);
}

}  // namespace

Status Drain::restore() {
  SPDLD_ASSIGN(const std::optional<store::StoredDrain> kept, deps_.store.drain());
  if (kept) spdlog::warn("drained {}: no new jobs are taken until 'spdlctl undrain'", since(*kept));
  MutexLock lock(table_.mutex());
  drain_ = kept;
  return {};
}

Result<DrainBegun> Drain::begin(const job::Caller& caller) {
  SPDLD_TRY(deps_.pipelines.trusted().check_admin(caller.uid, "drain"));
  MutexLock writing(table_.records());
  {
    MutexLock lock(table_.mutex());
    if (drain_) return DrainBegun{.drain = view_of(*drain_), .began = false};
  }
  const store::StoredDrain drain{.since_unix_ms = unix_ms(), .by = caller.uid};
  SPDLD_TRY(deps_.store.put_drain(drain));
  spdlog::info("drained by uid {}: no new jobs are taken", caller.uid);
  MutexLock lock(table_.mutex());
  drain_ = drain;
  return DrainBegun{.drain = view_of(drain), .began = true};
}

Result<std::optional<DrainView>> Drain::end(const job::Caller& caller) {
  SPDLD_TRY(deps_.pipelines.trusted().check_admin(caller.uid, "undrain"));
  MutexLock writing(table_.records());
  if (!view()) return std::optional<DrainView>();
  SPDLD_TRY(deps_.store.put_drain(std::nullopt));
  spdlog::info("undrained by uid {}: new jobs are taken again", caller.uid);
  MutexLock lock(table_.mutex());
  const DrainView ended = view_of(*drain_);
  drain_.reset();
  return std::optional(ended);
}

std::optional<DrainView> Drain::view() const {
  MutexLock lock(table_.mutex());
  return drain_ ? std::optional(view_of(*drain_)) : std::nullopt;
}

DrainView Drain::view_of(const store::StoredDrain& drain) const {
  DrainView view{.since_unix_ms = drain.since_unix_ms, .by = drain.by};
  for (const auto& [id, session] : table_.sessions()) view.ranks += session->closed ? 0 : 1;
  if (table_.come_back_s().count() == 0) return view;
  view.awaited_jobs = static_cast<std::uint32_t>(table_.expected().size());
  for (const auto& [key, job] : table_.jobs())
    view.awaited_jobs += job->members.empty() && job->membership.expected() ? 1 : 0;
  return view;
}

bool Drain::is_of_a_run(const Session& session, const delivery::AttachRequest& request) const {
  if (request.reconnect) return true;
  const uid_t uid = session.connection->peer().uid;
  const auto is_named = [&](const job::JobKey& key) {
    return key.uid == uid && key.job == request.job;
  };
  const auto& jobs = table_.jobs();
  const auto& expected = table_.expected();
  const auto& sessions = table_.sessions();
  return std::any_of(jobs.begin(), jobs.end(),
                     [&](const auto& job) { return is_named(job.first); }) ||
         (table_.come_back_s().count() > 0 &&
          std::any_of(expected.begin(), expected.end(), is_named)) ||
         std::any_of(sessions.begin(), sessions.end(), [&](const auto& entry) {
           const Session& other = *entry.second;
           return !other.closed && other.job != nullptr && other.connection->peer().uid == uid &&
                  other.is_process_of(session);
         });
}

Status Drain::check_attach(const Session& session, const delivery::AttachRequest& request) const {
  MutexLock lock(table_.mutex());
  return !drain_ || is_of_a_run(session, request) ? Status() : refusal(request.job);
}

Status Drain::check_create(const std::string& job) const {
  MutexLock lock(table_.mutex());
  return drain_ ? refusal(job) : Status();
}

Status Drain::refusal(const std::string& job) const {
  return Status(
      Code::kFailedPrecondition,
      fmt::format("the daemon is drained {} and takes no new jobs: start {} on another "
                  "node, or have an admin end that with 'spdlctl --address {} undrain'",
                  since(*drain_), job.empty() ? "it" : "job '" + job + "'", deps_.address));
}

}  // namespace spdld::session
