// SPDX-License-Identifier: Apache-2.0
#include "delivery/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

#include "base/check.h"

namespace spdld::delivery {
namespace {

// What epoll carries for each fd: its number and a serial that tells it from a later fd of the
// same number.
std::uint64_t event_key(int fd, std::uint64_t serial) {
  return serial << 32 | static_cast<std::uint32_t>(fd);
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return tl::unexpected(errno_status(errno, "epoll_create1"));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return tl::unexpected(errno_status(errno, "eventfd"));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = event_key(wake.get(), 0);
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return tl::unexpected(errno_status(errno, "epoll_ctl"));
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake)));
}

void EventLoop::wake() {
  const std::uint64_t one = 1;
  // EAGAIN means that the counter is full, and then the loop is awake anyhow.
  (void)!::write(wake_.get(), &one, sizeof one);
}

void EventLoop::post(Task task) {
  bool first = false;
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    first = posted_.empty();
    posted_.push_back(std::move(task));
  }
  if (first) wake();
}

void EventLoop::run_after(std::chrono::milliseconds delay, Task task) {
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    timers_.emplace(std::chrono::steady_clock::now() + delay, std::move(task));
  }
  wake();
}

void EventLoop::stop() {
  stopping_.store(true, std::memory_order_relaxed);  // the eventfd orders it
  wake();
}

Status EventLoop::watch(int fd, std::uint32_t events, Ready ready) {
  const std::uint64_t serial = next_serial_++ & 0xffffffff;
  epoll_event event{};
  event.events = events;
  event.data.u64 = event_key(fd, serial);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return errno_status(errno, "watching a file descriptor");
  }
  watched_[fd] = std::make_shared<Watched>(Watched{serial, std::move(ready)});
  return {};
}

Status EventLoop::modify(int fd, std::uint32_t events) {
  const auto found = watched_.find(fd);
  SPDLD_CHECK(found != watched_.end());
  epoll_event event{};
  event.events = events;
  event.data.u64 = event_key(fd, found->second->serial);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    return errno_status(errno, "watching a file descriptor");
  }
  return {};
}

void EventLoop::pause(int fd, std::chrono::milliseconds length, std::uint32_t events, Ready ready) {
  unwatch(fd);
  run_after(length, [this, fd, length, events, ready = std::move(ready)] {
    if (!watch(fd, events, ready).ok()) pause(fd, length, events, ready);
  });
}

void EventLoop::unwatch(int fd) {
  if (watched_.erase(fd) > 0) (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::run() {
  std::array<epoll_event, 64> events;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms());
    SPDLD_CHECK(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t key = events[static_cast<std::size_t>(i)].data.u64;
      const int fd = static_cast<int>(key & 0xffffffff);
      if (fd == wake_.get()) {
        std::uint64_t ignored = 0;
        (void)!::read(fd, &ignored, sizeof ignored);
        continue;
      }
      const auto found = watched_.find(fd);
      if (found == watched_.end() || found->second->serial != key >> 32) continue;
      const std::shared_ptr<Watched> watched = found->second;  // it may unwatch itself
      watched->ready(events[static_cast<std::size_t>(i)].events);
    }
    run_posted();
    run_timers();
  }
  run_posted();
  std::vector<Task>
      posted;  // that came just now; tasks may hold the last share of what has the loop
  std::multimap<Time, Task> timers;
  MutexLock lock(mutex_);
  ended_ = true;
  posted.swap(posted_);
  timers.swap(timers_);
}

void EventLoop::run_posted() {
  std::vector<Task> tasks;
  {
    MutexLock lock(mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) task();
}

void EventLoop::run_timers() {
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      if (timers_.empty() || timers_.begin()->first > std::chrono::steady_clock::now()) return;
      task = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
    }
    task();
  }
}

int EventLoop::wait_ms() {
  MutexLock lock(mutex_);
  if (!posted_.empty()) return 0;
  if (timers_.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first -
                                                                 std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

}  // namespace spdld::delivery
