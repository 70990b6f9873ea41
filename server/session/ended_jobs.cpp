// SPDX-License-Identifier: Apache-2.0
#include "session/ended_jobs.h"

#include <algorithm>
#include <utility>

#include "session/job_records.h"

namespace spdld::session {
namespace {

template <typename Values>
void erase_first(Values& values, std::size_t count) {
  values.erase(values.begin(),
               values.begin() + static_cast<std::ptrdiff_t>(std::min(count, values.size())));
}

template <typename Values>
auto last_of(const Values& values, const job::JobKey& key) {
  std::optional<typename Values::value_type> last;
  const auto found = std::find_if(values.rbegin(), values.rend(),
                                  [&](const auto& value) { return value.key == key; });
  if (found != values.rend()) last = *found;
  return last;
}

}  // namespace

void EndedJobs::push(const Job& job) {
  store::StoredJob& record = records_.emplace_back(stored_job(job));
  record.failures = job.failures.behind(job.record.last_failure);
  record.replaced = job.failures.replaced_behind(job.record.replaced);
}

void EndedJobs::push(const Job& job, store::StoredEnd end, bool keeps_end) {
  if (job.is_private) return push_private(job, std::move(end));
  positions_.push_back(stored_position(job, job.acknowledged()));
  if (!keeps_end) return;
  push(job);
  records_.back().end = std::move(end);
}

void EndedJobs::push_private(const Job& job, store::StoredEnd end) {
  privately_.push_back({.key = job.key, .end = std::move(end), .failures = job.failures.recent()});
  const auto own = [&](const Private& ended) { return ended.key.uid == job.key.uid; };
  const auto of_user =
      static_cast<std::size_t>(std::count_if(privately_.begin(), privately_.end(), own));
  if (of_user > kMostPrivateOfUser)
    privately_.erase(std::find_if(privately_.begin(), privately_.end(), own));
  if (privately_.size() > kMostPrivate) privately_.pop_front();
}

void EndedJobs::forget(const job::JobKey& key) {
  forget_records(key);
  std::erase_if(positions_, [&](const store::StoredPosition& of) { return of.key == key; });
}

void EndedJobs::forget_records(const job::JobKey& key) {
  std::erase_if(records_, [&](const store::StoredJob& of) { return of.key == key; });
}

void EndedJobs::drop_first(std::size_t records, std::size_t positions) {
  erase_first(records_, records);
  erase_first(positions_, positions);
}

void EndedJobs::limit() {
  const auto beyond = [](std::size_t size) {
    return std::max(size, store::Store::kMostEnded) - store::Store::kMostEnded;
  };
  drop_first(beyond(records_.size()), beyond(positions_.size()));
}

std::optional<store::StoredJob> EndedJobs::record(const job::JobKey& key) const {
  return last_of(records_, key);
}

std::optional<store::StoredPosition> EndedJobs::position(const job::JobKey& key) const {
  return last_of(positions_, key);
}

}  // namespace spdld::session
