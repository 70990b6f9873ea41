// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <memory>
#include <utility>

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

  // Until all is freed whose last reference has gone by now. Not on the reaper's thread.
  void wait() {
    auto freed = std::make_shared<std::promise<void>>();
    const std::future<void> done = freed->get_future();
    // The promise ends with the task, also with one that is dropped.
    pool_.post([last = std::move(freed)] {});
    done.wait();
  }

 private:
  BlockingPool pool_{"spdld-reaper", 1};
};

}  // namespace spdld
