// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "spdld/error.h"

namespace spdld::python {

// Lets Python's threads into a Loader one after the other, because libspdld asks for that. A thread
// that waits for its turn holds no GIL and notices Ctrl-C. The thread whose turn it is may come in
// again to read (a signal handler that saves a checkpoint in the middle of a wait), and for nothing
// else.
class Turn {
 public:
  enum class For { kReading, kChanging };

  // Takes the turn until it is destroyed. Throws LeaseError for a change from inside a turn, and
  // nanobind::python_error for Ctrl-C. Call it with the GIL held.
  class Held {
   public:
    Held(Turn& turn, For purpose) : turn_(turn) {
      if (turn.holder_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
        if (purpose == For::kReading) return;
        throw LeaseError(9,
                         "this loader is in the middle of a call on this thread: a signal handler "
                         "or callback may read its state, and do nothing else with it");
      }
      if (!turn.mutex_.try_lock()) wait();
      // Only this thread ever compares it with its own id, so no order is needed.
      turn.holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
      owns_ = true;
    }
    ~Held() {
      if (!owns_) return;
      turn_.holder_.store({}, std::memory_order_relaxed);
      turn_.mutex_.unlock();
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    void wait() {
      for (;;) {
        {
          const nanobind::gil_scoped_release released;
          if (turn_.mutex_.try_lock_for(std::chrono::milliseconds(100))) return;
        }
        if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
      }
    }

    Turn& turn_;
    bool owns_ = false;
  };

 private:
  std::timed_mutex mutex_;
  std::atomic<std::thread::id> holder_{};
};

}  // namespace spdld::python
