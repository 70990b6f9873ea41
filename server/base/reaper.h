// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/blocking_pool.h"

namespace spdld {

// Destroys on a thread of its own what takes long to free, such as a dataset's listing: the last
// reference to it may go anywhere, under any lock or on the thread that all consumers share.
//
// Owned by the daemon; outlives all that it shares. Thread-safe. The destructor frees what is left.
class Reaper {
 public:
  template <typename T>
  std::shared_ptr<T> share(std::unique_ptr<T> owned) {
    return std::shared_ptr<T>(owned.release(), [this](T* unused) {
      // A task that is dropped, because the daemon stops, frees it where it is.
      pool_.post([last = std::shared_ptr<T>(unused)] {});
    });
  }

 private:
  BlockingPool pool_{"spdld-reaper", 1};
};

}  // namespace spdld
