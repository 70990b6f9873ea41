// SPDX-License-Identifier: Apache-2.0
#include "session/router.h"

#include <utility>

namespace spdld::session {

std::shared_ptr<Consumer> Router::find(const delivery::Connection& connection) const {
  MutexLock lock(mutex_);
  const auto found = consumers_.find(connection.id());
  return found == consumers_.end() ? nullptr : found->second;
}

void Router::put(std::uint64_t connection, std::shared_ptr<Consumer> consumer) {
  MutexLock lock(mutex_);
  consumers_[connection] = std::move(consumer);
}

std::shared_ptr<Consumer> Router::remove(std::uint64_t connection) {
  MutexLock lock(mutex_);
  auto removed = consumers_.extract(connection);
  return removed.empty() ? nullptr : std::move(removed.mapped());
}

}  // namespace spdld::session
