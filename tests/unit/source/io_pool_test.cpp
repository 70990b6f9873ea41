// SPDX-License-Identifier: Apache-2.0
#include "source/io_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <semaphore>
#include <utility>
#include <vector>

namespace spdld::source {
namespace {

using Pause = std::optional<std::chrono::nanoseconds>;

class Task final : public IoTask {
 public:
  explicit Task(std::function<Pause(bool)> body) : body_(std::move(body)) {}
  Pause run(bool stopped) override { return body_(stopped); }

 private:
  std::function<Pause(bool)> body_;
};

// Tasks that hang in the kernel, as on a mount whose server is gone, until the test lets them go.
class Hanging {
 public:
  explicit Hanging(int count) {
    for (int i = 0; i < count; ++i) {
      tasks_.push_back(std::make_unique<Task>([this](bool stopped) -> Pause {
        if (stopped) return std::nullopt;
        begun_.release();
        go_.acquire();
        return std::nullopt;
      }));
    }
  }

  void submit(IoPool& pool, dev_t device) {
    for (auto& task : tasks_) ASSERT_TRUE(pool.submit(device, *task).ok());
  }
  void wait_for_begun(int count) {
    for (int i = 0; i < count; ++i) begun_.acquire();
  }
  bool another_begun() { return begun_.try_acquire(); }
  void let_go() { go_.release(static_cast<std::ptrdiff_t>(tasks_.size())); }

 private:
  std::vector<std::unique_ptr<Task>> tasks_;
  std::counting_semaphore<> begun_{0};
  std::counting_semaphore<> go_{0};
};

TEST(IoPool, RunsEveryTaskOnce) {
  constexpr int kTasks = 1000;
  std::atomic<int> runs = 0;
  std::latch done(kTasks);
  std::vector<std::unique_ptr<Task>> tasks;
  IoPool pool({.threads = 4});
  for (int i = 0; i < kTasks; ++i) {
    tasks.push_back(std::make_unique<Task>([&](bool) -> Pause {
      ++runs;
      done.count_down();
      return std::nullopt;
    }));
    ASSERT_TRUE(pool.submit(static_cast<dev_t>(i % 3), *tasks.back()).ok());
  }
  done.wait();
  EXPECT_EQ(runs, kTasks);
}

TEST(IoPool, KeepsHalfOfItsThreadsFromADeviceThatHangs) {
  Hanging hanging(20);
  IoPool pool({.threads = 8});
  hanging.submit(pool, 1);
  hanging.wait_for_begun(4);

  std::latch healthy(100);
  Task task([&](bool) -> Pause {
    healthy.count_down();
    return healthy.try_wait() ? Pause() : Pause(std::chrono::nanoseconds(0));
  });
  ASSERT_TRUE(pool.submit(2, task).ok());
  healthy.wait();
  EXPECT_FALSE(hanging.another_begun());
  hanging.let_go();
}

TEST(IoPool, KeepsAThreadForTheThirdDeviceWhenTwoHang) {
  Hanging first(8);
  Hanging second(8);
  IoPool pool({.threads = 4});
  first.submit(pool, 1);
  first.wait_for_begun(2);
  second.submit(pool, 2);
  second.wait_for_begun(1);
  std::binary_semaphore done(0);
  Task healthy([&](bool) -> Pause {
    done.release();
    return std::nullopt;
  });
  ASSERT_TRUE(pool.submit(3, healthy).ok());
  done.acquire();
  EXPECT_FALSE(first.another_begun());
  EXPECT_FALSE(second.another_begun());
  first.let_go();
  second.let_go();
}

TEST(IoPool, ServesADeviceEvenWithOneThread) {
  IoPool pool({.threads = 1});
  std::binary_semaphore done(0);
  Task task([&](bool) -> Pause {
    done.release();
    return std::nullopt;
  });
  ASSERT_TRUE(pool.submit(9, task).ok());
  done.acquire();
}

TEST(IoPool, LetsDevicesTakeTurns) {
  Hanging gate(1);
  IoPool pool({.threads = 1});
  gate.submit(pool, 5);
  gate.wait_for_begun(1);
  std::vector<int> order;  // written by the one thread only
  std::latch done(6);
  std::vector<std::unique_ptr<Task>> tasks;
  for (const int device : {1, 1, 1, 1, 2, 2}) {
    tasks.push_back(std::make_unique<Task>([&order, &done, device](bool) -> Pause {
      order.push_back(device);
      done.count_down();
      return std::nullopt;
    }));
    ASSERT_TRUE(pool.submit(static_cast<dev_t>(device), *tasks.back()).ok());
  }
  gate.let_go();
  done.wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 1, 2, 1, 1}));
}

TEST(IoPool, RunsATaskAgainAfterItsPause) {
  int runs = 0;
  std::binary_semaphore done(0);
  Task task([&](bool) -> Pause {
    if (++runs < 3) return std::chrono::microseconds(100);
    done.release();
    return std::nullopt;
  });
  IoPool pool({.threads = 2});
  ASSERT_TRUE(pool.submit(1, task).ok());
  done.acquire();
  EXPECT_EQ(runs, 3);
}

TEST(IoPool, HoldsNoThreadDuringAPause) {
  IoPool pool({.threads = 1});
  std::binary_semaphore paused(0);
  std::binary_semaphore ended(0);
  Task sleeper([&, first = true](bool) mutable -> Pause {
    if (std::exchange(first, false)) {
      paused.release();
      return std::chrono::hours(1);
    }
    ended.release();
    return std::nullopt;
  });
  ASSERT_TRUE(pool.submit(1, sleeper).ok());
  paused.acquire();
  std::binary_semaphore done(0);
  Task other([&](bool) -> Pause {
    done.release();
    return std::nullopt;
  });
  ASSERT_TRUE(pool.submit(1, other).ok());
  done.acquire();
  pool.hasten(sleeper);
  ended.acquire();
}

TEST(IoPool, HastensAPauseThatIsAboutToBegin) {
  IoPool pool({.threads = 1});
  std::binary_semaphore ended(0);
  Task* self = nullptr;
  Task task([&, first = true](bool) mutable -> Pause {
    if (std::exchange(first, false)) {
      pool.hasten(*self);
      return std::chrono::hours(1);
    }
    ended.release();
    return std::nullopt;
  });
  self = &task;
  ASSERT_TRUE(pool.submit(1, task).ok());
  ended.acquire();
}

TEST(IoPool, RefusesMoreTasksThanItHolds) {
  Hanging hanging(3);
  IoPool pool({.threads = 2, .max_tasks = 3});
  hanging.submit(pool, 1);
  Task task([](bool) -> Pause { return std::nullopt; });
  const Status status = pool.submit(2, task);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_NE(status.message().find("3"), std::string::npos);
  hanging.let_go();
}

TEST(IoPool, TellsWaitingAndPausedTasksThatItStops) {
  std::atomic<int> told = 0;
  std::binary_semaphore paused(0);
  Task sleeper([&](bool stopped) -> Pause {
    if (stopped) {
      ++told;
      return std::nullopt;
    }
    paused.release();
    return std::chrono::hours(1);
  });
  Hanging hanging(1);
  Task waiting([&](bool stopped) -> Pause {
    if (stopped) ++told;
    return std::nullopt;
  });
  {
    IoPool pool({.threads = 1});
    ASSERT_TRUE(pool.submit(1, sleeper).ok());
    paused.acquire();
    hanging.submit(pool, 1);
    hanging.wait_for_begun(1);
    ASSERT_TRUE(pool.submit(1, waiting).ok());
    pool.stop();
    hanging.let_go();
  }
  EXPECT_EQ(told, 2);
}

TEST(IoPool, RefusesTasksOnceStopped) {
  IoPool pool({.threads = 1});
  pool.stop();
  Task task([](bool) -> Pause { return std::nullopt; });
  EXPECT_EQ(pool.submit(1, task).code(), Code::kCancelled);
}

TEST(IoPool, ServesDevicesThatComeAndGo) {
  IoPool pool({.threads = 2});
  for (dev_t device = 1; device <= 500; ++device) {
    std::binary_semaphore done(0);
    Task task([&](bool) -> Pause {
      done.release();
      return std::nullopt;
    });
    ASSERT_TRUE(pool.submit(device, task).ok());
    done.acquire();
  }
}

}  // namespace
}  // namespace spdld::source
