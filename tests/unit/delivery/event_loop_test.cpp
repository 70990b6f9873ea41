// SPDX-License-Identifier: Apache-2.0
#include "delivery/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace spdld::delivery {
namespace {

TEST(EventLoop, RunsWhatOtherThreadsPostInTheirOrder) {
  auto loop = std::move(*EventLoop::create());
  std::thread runner([&] { loop->run(); });
  std::vector<int> ran;  // the loop's thread alone
  for (int i = 0; i < 100; ++i) loop->post([&ran, i] { ran.push_back(i); });
  loop->stop();
  runner.join();
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
}

TEST(EventLoop, RunsTimersInTheOrderTheyAreDue) {
  auto loop = std::move(*EventLoop::create());
  std::vector<int> ran;
  loop->run_after(std::chrono::milliseconds(20), [&] {
    ran.push_back(2);
    loop->stop();
  });
  loop->run_after(std::chrono::milliseconds(1), [&] { ran.push_back(1); });
  loop->run();
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
}

TEST(EventLoop, DropsTimersThatAreNotDueWhenItStops) {
  auto loop = std::move(*EventLoop::create());
  bool ran = false;
  loop->run_after(std::chrono::hours(1), [&] { ran = true; });
  loop->post([&] { loop->stop(); });
  loop->run();
  EXPECT_FALSE(ran);
}

TEST(EventLoop, NeverTellsOfAnFdThatWasUnwatchedMeanwhile) {
  auto loop = std::move(*EventLoop::create());
  UniqueFd first(::eventfd(1, EFD_CLOEXEC));
  UniqueFd second(::eventfd(1, EFD_CLOEXEC));
  int told = 0;
  // Both are ready in the same turn; whichever comes first unwatches the other.
  const auto unwatch_both = [&](std::uint32_t) {
    ++told;
    loop->unwatch(first.get());
    loop->unwatch(second.get());
    loop->stop();
  };
  ASSERT_TRUE(loop->watch(first.get(), EPOLLIN, unwatch_both).ok());
  ASSERT_TRUE(loop->watch(second.get(), EPOLLIN, unwatch_both).ok());
  loop->run();
  EXPECT_EQ(told, 1);
}

TEST(EventLoop, SaysWhenAnFdCannotBeWatched) {
  auto loop = std::move(*EventLoop::create());
  EXPECT_FALSE(loop->watch(-1, EPOLLIN, [](std::uint32_t) {}).ok());
}

}  // namespace
}  // namespace spdld::delivery
