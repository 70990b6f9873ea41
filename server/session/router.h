// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "session/consumer.h"

namespace spdld::session {

// Maps a connection to its consumer. The map has a lock of its own, taken last, so that work on a
// job under JobTable::mutex() holds up no consumer. Owned by Sessions. Thread-safe.
class Router {
 public:
  // Null: it has none.
  std::shared_ptr<Consumer> find(const delivery::Connection& connection) const;
  void put(std::uint64_t connection, std::shared_ptr<Consumer> consumer);
  // Null: it had none.
  std::shared_ptr<Consumer> remove(std::uint64_t connection);

 private:
  mutable Mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Consumer>> consumers_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session
