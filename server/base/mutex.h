// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// Mutexes that clang's -Wthread-safety understands. Under gcc the annotations vanish.
#if defined(__clang__)
#define SPDLD_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SPDLD_THREAD_ANNOTATION(x)
#endif
#define SPDLD_GUARDED_BY(x) SPDLD_THREAD_ANNOTATION(guarded_by(x))
#define SPDLD_PT_GUARDED_BY(x) SPDLD_THREAD_ANNOTATION(pt_guarded_by(x))
#define SPDLD_REQUIRES(...) SPDLD_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define SPDLD_EXCLUDES(...) SPDLD_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define SPDLD_ACQUIRE(...) SPDLD_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SPDLD_RELEASE(...) SPDLD_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define SPDLD_RETURN_CAPABILITY(x) SPDLD_THREAD_ANNOTATION(lock_returned(x))
#define SPDLD_NO_THREAD_SAFETY_ANALYSIS SPDLD_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace spdld {

class CondVar;

class SPDLD_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() SPDLD_ACQUIRE() { mutex_.lock(); }
  void unlock() SPDLD_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class SPDLD_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SPDLD_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() SPDLD_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits with the mutex held on entry and on return. Spurious wake-ups happen: wait in a loop.
class CondVar {
 public:
  void wait(Mutex& mutex) SPDLD_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False when `timeout` passed first.
  bool wait_for(Mutex& mutex, std::chrono::nanoseconds timeout) SPDLD_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool notified = cv_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }
  void notify_one() { cv_.notify_one(); }
  void notify_all() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace spdld
