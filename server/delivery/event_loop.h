// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "posix/unique_fd.h"

namespace spdld::delivery {

// One thread's epoll loop: file descriptors, timers, and work that other threads post. Whoever
// calls run() is the loop's thread; functions given to it run there, one at a time, and must not
// block. What was posted before stop() is run; timers that are not due are dropped, as is what
// comes once run() has ended.
class EventLoop {
 public:
  using Task = std::function<void()>;
  using Ready = std::function<void(std::uint32_t events)>;  // EPOLL* bits

  static Result<std::unique_ptr<EventLoop>> create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Any thread.
  void post(Task task);
  void run_after(std::chrono::milliseconds delay, Task task);
  void stop();  // run() returns soon

  // The loop's thread. The fd must be unwatched before it is closed; after unwatch() its function
  // is not called again, even for events that were already there.
  Status watch(int fd, std::uint32_t events, Ready ready);
  Status modify(int fd, std::uint32_t events);
  // Unwatches the fd for so long, and for longer if it cannot be watched then.
  void pause(int fd, std::chrono::milliseconds length, std::uint32_t events, Ready ready);
  void unwatch(int fd);
  void run();

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Watched {
    std::uint64_t serial;  // tells a reused fd number from the one that an event was for
    Ready ready;
  };

  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void wake();
  void run_posted();
  void run_timers();
  int wait_ms();

  const UniqueFd epoll_;
  const UniqueFd wake_;
  std::atomic<bool> stopping_{false};  // set from any thread, read by the loop
  std::unordered_map<int, std::shared_ptr<Watched>> watched_;  // the loop's thread alone
  std::uint64_t next_serial_ = 1;
  Mutex mutex_;
  bool ended_ SPDLD_GUARDED_BY(mutex_) = false;  // run() has, or is about to
  std::vector<Task> posted_ SPDLD_GUARDED_BY(mutex_);
  std::multimap<Time, Task> timers_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::delivery
