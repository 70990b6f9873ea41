// SPDX-License-Identifier: Apache-2.0
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace spdld {
namespace {

TEST(CondVar, HoldsTheMutexAgainWhenItReturns) {
  Mutex mutex;
  CondVar changed;
  int turns = 0;
  std::jthread other([&] {
    for (int i = 0; i < 100; ++i) {
      MutexLock lock(mutex);
      while (turns % 2 == 0) changed.wait(mutex);
      ++turns;
      changed.notify_all();
    }
  });
  for (int i = 0; i < 100; ++i) {
    MutexLock lock(mutex);
    while (turns % 2 == 1) changed.wait(mutex);
    ++turns;
    changed.notify_all();
  }
  other.join();
  EXPECT_EQ(turns, 200);
}

TEST(CondVar, SaysThatTheTimePassed) {
  Mutex mutex;
  CondVar changed;
  MutexLock lock(mutex);
  while (changed.wait_for(mutex, std::chrono::nanoseconds(1))) {
  }
  EXPECT_FALSE(changed.wait_for(mutex, std::chrono::nanoseconds(-1)));
}

}  // namespace
}  // namespace spdld
