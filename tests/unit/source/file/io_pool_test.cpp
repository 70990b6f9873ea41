// SPDX-License-Identifier: Apache-2.0
#include "source/file/io_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace spdld::source {
namespace {

using Pause = std::optional<std::chrono::nanoseconds>;

constexpr std::chrono::hours kNever{1000};

class Task final : public IoTask {
 public:
  explicit Task(std::function<Pause()> body, std::function<void()> cancelled = nullptr)
      : body_(std::move(body)), cancelled_(std::move(cancelled)) {}
  Pause run() override { return body_(); }
  void cancel() override {
    if (cancelled_) cancelled_();
  }

 private:
  std::function<Pause()> body_;
  std::function<void()> cancelled_;
};

std::shared_ptr<Task> task(std::function<Pause()> body, std::function<void()> cancelled = nullptr) {
  return std::make_shared<Task>(std::move(body), std::move(cancelled));
}

// A task that is done once it has run.
std::shared_ptr<Task> once(std::function<void()> body) {
  return task([body = std::move(body)]() -> Pause {
    body();
    return std::nullopt;
  });
}

// Tasks that hang in the kernel, as on a mount whose server is gone, until the test lets them go.
class Hanging {
 public:
  explicit Hanging(int count) {
    for (int i = 0; i < count; ++i) {
      tasks_.push_back(task(
          [gates = gates_]() -> Pause {
            gates->begun.release();
            gates->go.acquire();
            return std::nullopt;
          },
          [gates = gates_] { ++gates->cancelled; }));
    }
  }

  void submit(IoPool& pool, dev_t device) {
    for (auto& task : tasks_) ASSERT_TRUE(pool.submit(device, task).ok());
  }
  void wait_for_begun(int count) {
    for (int i = 0; i < count; ++i) gates_->begun.acquire();
  }
  bool another_begun() { return gates_->begun.try_acquire(); }
  void let_go() { gates_->go.release(static_cast<std::ptrdiff_t>(tasks_.size())); }
  int cancelled() const { return gates_->cancelled; }

 private:
  // The pool's threads may be at them for longer than the test is.
  struct Gates {
    std::counting_semaphore<> begun{0};
    std::counting_semaphore<> go{0};
    std::atomic<int> cancelled = 0;
  };

  const std::shared_ptr<Gates> gates_ = std::make_shared<Gates>();
  std::vector<std::shared_ptr<Task>> tasks_;
};

// While it lives, the process can start no thread.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t endless;
    ::pthread_getattr_default_np(&endless);
    ::pthread_attr_setstacksize(&endless, std::size_t{1} << 50);
    EXPECT_EQ(::pthread_setattr_default_np(&endless), 0);
    ::pthread_attr_destroy(&endless);
  }
  ~NoThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(IoPool, RefusesATaskWhereItCanStartNoThread) {
  IoPool pool({});
  {
    const NoThreads none;
    EXPECT_EQ(pool.submit(1, once([] { FAIL(); })).code(), Code::kResourceExhausted);
    EXPECT_EQ(pool.threads(), 0);
  }
  std::latch done(1);
  ASSERT_TRUE(pool.submit(1, once([&] { done.count_down(); })).ok());
  done.wait();
}

TEST(IoPool, RunsTasksByTheThreadsItHasWhereItCanStartNoMore) {
  Hanging gate(1);
  std::latch done(3);
  IoPool pool({.stuck_after = kNever});
  gate.submit(pool, 1);
  gate.wait_for_begun(1);
  {
    const NoThreads none;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(pool.submit(1, once([&] { done.count_down(); })).ok());
    gate.let_go();
    done.wait();
    EXPECT_EQ(pool.threads(), 1);
  }
}

TEST(IoPool, StartsOneThreadForAllTasksThatMayNotRun) {
  Hanging tasks(100);
  IoPool pool({.threads = 32, .stuck_after = kNever});
  tasks.submit(pool, 1);
  tasks.wait_for_begun(30);
  EXPECT_LE(pool.threads(), 31);
  tasks.let_go();
}

TEST(IoPool, RunsEveryTaskOnce) {
  constexpr int kTasks = 1000;
  std::atomic<int> runs = 0;
  std::latch done(kTasks);
  IoPool pool({.threads = 4, .stuck_after = kNever});
  for (int i = 0; i < kTasks; ++i) {
    ASSERT_TRUE(pool.submit(static_cast<dev_t>(i % 3), once([&] {
                              ++runs;
                              done.count_down();
                            }))
                    .ok());
  }
  done.wait();
  EXPECT_EQ(runs, kTasks);
}

TEST(IoPool, ServesTheUsersOfADeviceInTurn) {
  Hanging gate(1);
  IoPool pool({.threads = 1, .stuck_after = kNever});
  gate.submit(pool, 1);
  gate.wait_for_begun(1);
  std::vector<uid_t> order;
  std::latch done(40);
  const auto submit = [&](uid_t user, int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(pool.submit(1, user, once([&, user] {
                                order.push_back(user);
                                done.count_down();
                              }))
                      .ok());
    }
  };
  submit(7, 35);
  submit(8, 3);
  submit(9, 2);
  gate.let_go();
  done.wait();
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 8),
            (std::vector<uid_t>{7, 8, 9, 7, 8, 9, 7, 8}));
  EXPECT_EQ(std::count(order.begin() + 8, order.end(), 7u), 32);
}

TEST(IoPool, KeepsTheQueuesOfManyUsersApartAndForgetsTheEmptyOnes) {
  constexpr int kUsers = 100;
  const uid_t first = ::geteuid() + 1;  // its turn comes after the gate's, which is our own
  Hanging gate(1);
  IoPool pool({.threads = 1, .stuck_after = kNever});
  gate.submit(pool, 1);
  gate.wait_for_begun(1);
  std::vector<int> order;
  std::latch done(2 * kUsers);
  for (int turn = 0; turn < 2; ++turn) {
    for (int user = 0; user < kUsers; ++user) {
      ASSERT_TRUE(pool.submit(1, first + static_cast<uid_t>(user), once([&, user, turn] {
                                order.push_back(turn * kUsers + user);
                                done.count_down();
                              }))
                      .ok());
    }
  }
  const auto dropped = once([] { FAIL(); });
  ASSERT_TRUE(pool.submit(1, first + 3, dropped).ok());
  pool.withdraw(*dropped);
  gate.let_go();
  done.wait();
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(IoPool, LeavesAFewThreadsToOthersBesideADeviceThatHangs) {
  Hanging hanging(60);
  IoPool pool({.threads = 32, .stuck_after = kNever});
  hanging.submit(pool, 1);
  hanging.wait_for_begun(30);

  std::latch healthy(100);
  ASSERT_TRUE(pool.submit(2, task([&]() -> Pause {
                            healthy.count_down();
                            return healthy.try_wait() ? Pause()
                                                      : Pause(std::chrono::nanoseconds(0));
                          }))
                  .ok());
  healthy.wait();
  EXPECT_FALSE(hanging.another_begun());
  hanging.let_go();
}

TEST(IoPool, StartsAThreadInPlaceOfEachThatIsStuck) {
  Hanging first(3);
  Hanging second(8);
  IoPool pool({.threads = 4, .stuck_after = std::chrono::milliseconds(1)});
  first.submit(pool, 1);
  first.wait_for_begun(3);
  second.submit(pool, 2);
  second.wait_for_begun(2);  // its share, which it had once the others were stuck
  std::binary_semaphore done(0);
  ASSERT_TRUE(pool.submit(3, once([&] { done.release(); })).ok());
  done.acquire();
  first.let_go();
  second.let_go();
}

TEST(IoPool, GivesADeviceWithStuckCallsNoMoreThanItsShare) {
  Hanging hanging(20);
  IoPool pool({.threads = 8, .stuck_after = std::chrono::milliseconds(1)});
  hanging.submit(pool, 1);
  hanging.wait_for_begun(4);
  // Others go on meanwhile, for long enough that all these are stuck.
  for (int i = 0; i < 50; ++i) {
    std::binary_semaphore done(0);
    ASSERT_TRUE(pool.submit(2, task([&, pauses = 2]() mutable -> Pause {
                              if (pauses-- > 0) return std::chrono::milliseconds(1);
                              done.release();
                              return std::nullopt;
                            }))
                    .ok());
    done.acquire();
  }
  int begun = 4;
  while (hanging.another_begun()) ++begun;
  EXPECT_LE(begun, 7) << "what a device alone may have before the first call is stuck";
  hanging.let_go();
}

TEST(IoPool, StartsNoMoreThreadsThanAsManyAgainForThoseThatAreStuck) {
  Hanging first(8);
  Hanging second(8);
  Hanging third(8);
  IoPool pool({.threads = 1, .stuck_after = std::chrono::milliseconds(1)});
  first.submit(pool, 1);
  first.wait_for_begun(1);
  second.submit(pool, 2);
  second.wait_for_begun(1);
  third.submit(pool, 3);
  EXPECT_LE(pool.threads(), 3);  // one looks
  EXPECT_FALSE(third.another_begun());
  first.let_go();
  second.let_go();
  third.wait_for_begun(1);
  third.let_go();
}

TEST(IoPool, HoldsADeviceToItsShareOnlyWhileOthersWait) {
  Hanging first(20);
  Hanging second(20);
  IoPool pool({.threads = 16, .stuck_after = kNever});
  first.submit(pool, 1);
  first.wait_for_begun(15);
  second.submit(pool, 2);
  second.wait_for_begun(1);
  first.let_go();
  second.wait_for_begun(14);  // once the first one has nothing more
  EXPECT_FALSE(second.another_begun());
  second.let_go();
}

TEST(IoPool, RunsMoreTasksAtOnceWhereItMayHaveMoreThreadsAndFewerWhereLess) {
  Hanging first(20);
  Hanging second(20);
  IoPool pool({.threads = 2, .stuck_after = kNever});
  first.submit(pool, 1);
  first.wait_for_begun(1);
  EXPECT_FALSE(first.another_begun());
  pool.set_threads(16);
  first.wait_for_begun(14);
  pool.set_threads(2);
  first.let_go();
  first.wait_for_begun(5);
  second.submit(pool, 2);
  second.wait_for_begun(1);
  EXPECT_FALSE(second.another_begun());
  second.let_go();
}

TEST(IoPool, HasThreadsWhileTheyAreNeeded) {
  IoPool pool({.threads = 64, .stuck_after = kNever, .idle_for = std::chrono::milliseconds(1)});
  EXPECT_EQ(pool.threads(), 0);
  for (int round = 0; round < 3; ++round) {
    Hanging reads(40);
    reads.submit(pool, 1);
    reads.wait_for_begun(40);
    EXPECT_GE(pool.threads(), 40);
    reads.let_go();
    while (pool.threads() > 0) std::this_thread::yield();
  }
}

TEST(IoPool, ServesADeviceEvenWithOneThread) {
  std::binary_semaphore done(0);
  IoPool pool({.threads = 1, .stuck_after = kNever});
  ASSERT_TRUE(pool.submit(9, once([&] { done.release(); })).ok());
  done.acquire();
}

TEST(IoPool, LetsDevicesTakeTurns) {
  Hanging gate(1);
  IoPool pool({.threads = 1, .stuck_after = kNever});
  gate.submit(pool, 5);
  gate.wait_for_begun(1);
  std::vector<int> order;  // written by the one thread only
  std::latch done(6);
  for (const int device : {1, 1, 1, 1, 2, 2}) {
    ASSERT_TRUE(pool.submit(static_cast<dev_t>(device), once([&order, &done, device] {
                              order.push_back(device);
                              done.count_down();
                            }))
                    .ok());
  }
  gate.let_go();
  done.wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 1, 2, 1, 1}));
}

TEST(IoPool, RunsATaskAgainAfterItsPause) {
  int runs = 0;
  std::binary_semaphore done(0);
  IoPool pool({.threads = 2, .stuck_after = kNever});
  ASSERT_TRUE(pool.submit(1, task([&]() -> Pause {
                            if (++runs < 3) return std::chrono::microseconds(100);
                            done.release();
                            return std::nullopt;
                          }))
                  .ok());
  done.acquire();
  EXPECT_EQ(runs, 3);
}

TEST(IoPool, EndsAPauseThoughThreadsThatWereIdleHaveEndedMeanwhile) {
  IoPool pool({.threads = 4, .stuck_after = kNever, .idle_for = std::chrono::milliseconds(1)});
  for (int round = 0; round < 20; ++round) {
    Hanging together(3);  // so that there are as many threads
    together.submit(pool, 1);
    together.wait_for_begun(3);
    std::binary_semaphore ended(0);
    ASSERT_TRUE(pool.submit(2, task([&, first = true]() mutable -> Pause {
                              if (std::exchange(first, false)) return std::chrono::milliseconds(5);
                              ended.release();
                              return std::nullopt;
                            }))
                    .ok());
    together.let_go();
    ended.acquire();
  }
}

TEST(IoPool, EndsAPauseThoughTheThreadThatSawItBeginIsOneTooMany) {
  std::binary_semaphore begun(0);
  std::binary_semaphore go(0);
  std::binary_semaphore ended(0);
  std::latch others(2);
  IoPool pool({.threads = 1, .stuck_after = std::chrono::milliseconds(1), .idle_for = kNever});
  ASSERT_TRUE(pool.submit(1, task([&, first = true]() mutable -> Pause {
                            if (std::exchange(first, false)) {
                              begun.release();
                              go.acquire();
                              return std::chrono::milliseconds(1);
                            }
                            ended.release();
                            return std::nullopt;
                          }))
                  .ok());
  begun.acquire();
  // Once the first one is stuck, other threads come for these, and then sleep for good.
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(pool.submit(2, once([&] { others.count_down(); })).ok());
  }
  others.wait();
  go.release();
  ended.acquire();
}

TEST(IoPool, TellsATaskHowLongItHasWaitedInLine) {
  class Asking final : public IoTask {
   public:
    Pause run() override {
      waited.push_back(queued());
      if (waited.size() == 1) return std::chrono::microseconds(1);
      done.release();
      return std::nullopt;
    }
    void cancel() override {}
    std::vector<std::chrono::nanoseconds> waited;
    std::binary_semaphore done{0};
  };
  using Clock = std::chrono::steady_clock;
  Hanging gate(1);
  IoPool pool({.threads = 1, .stuck_after = kNever});
  gate.submit(pool, 1);
  gate.wait_for_begun(1);
  const auto asking = std::make_shared<Asking>();
  ASSERT_TRUE(pool.submit(2, asking).ok());
  const auto submitted = Clock::now();
  while (Clock::now() - submitted < std::chrono::milliseconds(2)) std::this_thread::yield();
  const auto let_go = Clock::now();
  gate.let_go();
  asking->done.acquire();
  ASSERT_EQ(asking->waited.size(), 2U);
  EXPECT_GE(asking->waited[0], let_go - submitted);
  EXPECT_GE(asking->waited[1], asking->waited[0]);
}

TEST(IoPool, TellsOfEachDeviceWhatRunsAndWaits) {
  Hanging slow(3);
  IoPool pool({.threads = 2, .stuck_after = kNever});
  slow.submit(pool, 7);  // one more than it may have, and one for good measure
  slow.wait_for_begun(1);
  std::vector<IoPool::DeviceUse> uses = pool.devices();
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_EQ(uses[0].device, 7U);
  EXPECT_EQ(uses[0].running, 1);
  EXPECT_EQ(uses[0].most, 1);
  EXPECT_EQ(uses[0].waiting, 2U);
  EXPECT_EQ(uses[0].ended, 0U);
  EXPECT_GT(uses[0].longest, std::chrono::nanoseconds(0));
  slow.let_go();
  slow.wait_for_begun(2);
  while (pool.devices()[0].ended < 3) std::this_thread::yield();
  uses = pool.devices();
  EXPECT_EQ(uses[0].running, 0);
  EXPECT_EQ(uses[0].waiting, 0U);
  EXPECT_GT(uses[0].queued, std::chrono::nanoseconds(0));
  EXPECT_GT(uses[0].served, std::chrono::nanoseconds(0));
  EXPECT_EQ(uses[0].longest, std::chrono::nanoseconds(0));
}

TEST(IoPool, TellsOfADeviceWhoseCallsAreStuckThatItMayHaveItsShare) {
  Hanging stuck(4);
  Hanging more(60);  // than it may have: now a thread looks for stuck calls
  IoPool pool({.threads = 32, .stuck_after = std::chrono::milliseconds(1)});
  stuck.submit(pool, 7);
  stuck.wait_for_begun(4);
  while (pool.devices()[0].stuck < 4) std::this_thread::yield();
  EXPECT_EQ(pool.devices()[0].most, 30);  // alone, but for a few
  more.submit(pool, 7);
  while (pool.devices()[0].most != 16) std::this_thread::yield();
  stuck.let_go();
  more.let_go();
}

TEST(IoPool, HoldsNoThreadDuringAPause) {
  std::binary_semaphore paused(0);
  IoPool pool({.threads = 1, .stuck_after = kNever});
  ASSERT_TRUE(pool.submit(1, task([&]() -> Pause {
                            paused.release();
                            return std::chrono::hours(1);
                          }))
                  .ok());
  paused.acquire();
  std::binary_semaphore done(0);
  ASSERT_TRUE(pool.submit(1, once([&] { done.release(); })).ok());
  done.acquire();
}

TEST(IoPool, EndsAPauseThoughTheThreadThatSawItBeginHangs) {
  Hanging gate(1);
  Hanging next(1);
  std::binary_semaphore began(0);
  std::binary_semaphore may_pause(0);
  std::binary_semaphore ended(0);
  IoPool pool({.threads = 2, .stuck_after = kNever});
  gate.submit(pool, 1);  // so that one thread is left
  gate.wait_for_begun(1);
  ASSERT_TRUE(pool.submit(2, task([&, first = true]() mutable -> Pause {
                            if (std::exchange(first, false)) {
                              began.release();
                              may_pause.acquire();
                              return std::chrono::milliseconds(1);
                            }
                            ended.release();
                            return std::nullopt;
                          }))
                  .ok());
  began.acquire();
  next.submit(pool, 3);  // waits for the thread that has the pausing task
  gate.let_go();
  may_pause.release();
  next.wait_for_begun(1);
  ended.acquire();
  next.let_go();
}

// A task that waits to be resumed, and is done the second time.
struct Resumable {
  std::binary_semaphore begun{0};
  std::binary_semaphore done{0};
  std::binary_semaphore cancelled{0};
  std::atomic<int> runs = 0;
  std::shared_ptr<Task> task = std::make_shared<Task>(
      [this]() -> Pause {
        begun.release();
        if (++runs == 1) return IoTask::kUntilResumed;
        done.release();
        return std::nullopt;
      },
      [this] { cancelled.release(); });
};

TEST(IoPool, RunsATaskAgainOnceItIsResumedAndHoldsNoThreadUntilThen) {
  Resumable waiting;
  IoPool pool({.threads = 1, .stuck_after = kNever});
  ASSERT_TRUE(pool.submit(1, waiting.task).ok());
  std::binary_semaphore other(0);
  ASSERT_TRUE(pool.submit(1, once([&] { other.release(); })).ok());
  other.acquire();
  EXPECT_EQ(waiting.runs, 1);
  pool.resume(*waiting.task);
  waiting.done.acquire();
}

TEST(IoPool, RunsATaskAgainThatIsResumedBeforeItWaits) {
  std::atomic<int> runs = 0;
  std::binary_semaphore done(0);
  IoPool pool({.threads = 1, .stuck_after = kNever});
  IoTask* self = nullptr;
  const auto early = task([&]() -> Pause {
    if (++runs == 1) {
      pool.resume(*self);
      return IoTask::kUntilResumed;
    }
    done.release();
    return std::nullopt;
  });
  self = early.get();
  ASSERT_TRUE(pool.submit(1, early).ok());
  done.acquire();
  EXPECT_EQ(runs, 2);
}

TEST(IoPool, CancelsATaskThatWaitsToBeResumedWhenItStops) {
  Resumable waiting;
  IoPool pool({.threads = 1, .stuck_after = kNever});
  ASSERT_TRUE(pool.submit(1, waiting.task).ok());
  waiting.begun.acquire();
  pool.stop();
  waiting.cancelled.acquire();
  pool.resume(*waiting.task);
  EXPECT_TRUE(pool.idle_within(std::chrono::hours(1)));
  EXPECT_EQ(waiting.runs, 1);
}

TEST(IoPool, DropsATaskThatIsWithdrawnWhileItWaitsToBeResumed) {
  Resumable waiting;
  IoPool pool({.threads = 1, .max_tasks = 1});
  ASSERT_TRUE(pool.submit(1, waiting.task).ok());
  waiting.begun.acquire();
  pool.withdraw(*waiting.task);
  std::binary_semaphore other(0);
  while (!pool.submit(1, once([&] { other.release(); })).ok()) std::this_thread::yield();
  other.acquire();
  pool.resume(*waiting.task);
  EXPECT_EQ(waiting.runs, 1);
}

TEST(IoPool, DropsATaskThatIsWithdrawnWhileItWaitsOrPauses) {
  Hanging gate(1);
  std::binary_semaphore paused(0);
  IoPool pool({.threads = 1, .stuck_after = kNever});
  auto pausing = task([&]() -> Pause {
    paused.release();
    return std::chrono::hours(1);
  });
  ASSERT_TRUE(pool.submit(1, pausing).ok());
  paused.acquire();
  gate.submit(pool, 1);
  gate.wait_for_begun(1);
  std::vector<int> ran;  // written by the one thread only
  std::binary_semaphore done(0);
  std::vector<std::shared_ptr<Task>> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(once([&ran, i] { ran.push_back(i); }));
    ASSERT_TRUE(pool.submit(1, waiting.back()).ok());
  }
  pool.withdraw(*pausing);
  for (const std::size_t i : {0U, 2U, 3U}) pool.withdraw(*waiting[i]);
  EXPECT_EQ(pausing.use_count(), 1) << "the pool keeps nothing of it";
  EXPECT_EQ(waiting[3].use_count(), 1);
  auto last = once([&] { done.release(); });  // behind one that was the last
  ASSERT_TRUE(pool.submit(1, last).ok());
  gate.let_go();
  done.acquire();
  EXPECT_EQ(ran, std::vector<int>{1});
}

TEST(IoPool, LetsATaskThatIsWithdrawnWhileItRunsPauseNoMore) {
  std::binary_semaphore began(0);
  std::binary_semaphore go(0);
  std::binary_semaphore done(0);
  IoPool pool({.threads = 1, .stuck_after = kNever});
  const auto withdrawn = task([&]() -> Pause {
    began.release();
    go.acquire();
    return std::chrono::nanoseconds(0);
  });
  ASSERT_TRUE(pool.submit(1, withdrawn).ok());
  began.acquire();
  pool.withdraw(*withdrawn);
  go.release();
  for (int i = 0; i < 2; ++i) {  // a pause of nothing would be over by then
    ASSERT_TRUE(pool.submit(1, once([&] { done.release(); })).ok());
    done.acquire();
  }
  EXPECT_FALSE(began.try_acquire());
}

TEST(IoPool, RefusesMoreTasksThanItHolds) {
  Hanging hanging(3);
  IoPool pool({.threads = 2, .max_tasks = 3});
  hanging.submit(pool, 1);
  const Status status = pool.submit(2, once([] {}));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_NE(status.message().find('3'), std::string::npos);
  hanging.let_go();
}

TEST(IoPool, CancelsEveryTaskThatHasNotEndedWhenItStopsThoughOneHangs) {
  int cancelled = 0;  // by the thread that stops it
  std::binary_semaphore paused(0);
  Hanging hanging(1);
  IoPool pool({.threads = 1, .stuck_after = kNever});
  ASSERT_TRUE(pool.submit(1, task(
                                 [&]() -> Pause {
                                   paused.release();
                                   return std::chrono::hours(1);
                                 },
                                 [&] { ++cancelled; }))
                  .ok());
  paused.acquire();
  hanging.submit(pool, 1);
  hanging.wait_for_begun(1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pool.submit(1, task(
                                   []() -> Pause {
                                     ADD_FAILURE() << "it began after the stop";
                                     return std::nullopt;
                                   },
                                   [&] { ++cancelled; }))
                    .ok());
  }
  pool.stop();
  EXPECT_EQ(cancelled, 4);
  EXPECT_EQ(hanging.cancelled(), 1);
  EXPECT_FALSE(pool.idle_within(std::chrono::nanoseconds(0)));
  pool.stop();
  EXPECT_EQ(cancelled, 4) << "once each";
  hanging.let_go();
  EXPECT_TRUE(pool.idle_within(std::chrono::hours(1)));
}

TEST(IoPool, RefusesTasksOnceStopped) {
  IoPool pool({.threads = 1, .stuck_after = kNever});
  pool.stop();
  EXPECT_EQ(pool.submit(1, once([] {})).code(), Code::kCancelled);
}

TEST(IoPool, ServesDevicesThatComeAndGo) {
  IoPool pool({.threads = 2, .stuck_after = kNever});
  for (dev_t device = 1; device <= 500; ++device) {
    std::binary_semaphore done(0);
    ASSERT_TRUE(pool.submit(device, once([&] { done.release(); })).ok());
    done.acquire();
  }
}

}  // namespace
}  // namespace spdld::source
