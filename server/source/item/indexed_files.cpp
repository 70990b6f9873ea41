// SPDX-License-Identifier: Apache-2.0
#include "source/item/indexed_files.h"

#include <utility>

namespace spdld::source {

std::optional<Status> IndexedFiles::known(std::uint64_t number, const ItemStamp& now) const {
  MutexLock lock(mutex_);
  const auto found = verdicts_.find(number);
  if (found == verdicts_.end() || found->second.stamp != now) return std::nullopt;
  return found->second.status;
}

void IndexedFiles::remember(std::uint64_t number, const ItemStamp& now, Status status) {
  MutexLock lock(mutex_);
  if (verdicts_.size() >= kMostVerdicts && !verdicts_.contains(number)) verdicts_.clear();
  verdicts_.insert_or_assign(number, Verdict{.stamp = now, .status = std::move(status)});
}

}  // namespace spdld::source
