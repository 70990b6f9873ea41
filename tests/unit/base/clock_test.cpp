// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace spdld {
namespace {

TEST(SystemClock, NeverRunsBackwards) {
  const SystemClock clock;
  auto last = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const auto now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(ThreadCpuTime, GrowsWithWork) {
  const auto begin = thread_cpu_time();
  volatile std::uint64_t sum = 0;
  while (thread_cpu_time() == begin) sum = sum + 1;
  EXPECT_GT(thread_cpu_time(), begin);
}

}  // namespace
}  // namespace spdld
