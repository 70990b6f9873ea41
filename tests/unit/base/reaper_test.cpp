// SPDX-License-Identifier: Apache-2.0
#include "base/reaper.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

namespace spdld {
namespace {

struct Grave {
  std::atomic<int> dead = 0;
  std::thread::id died_on;
  std::binary_semaphore done{0};
};

struct Mortal {
  explicit Mortal(Grave& of) : grave(of) {}
  ~Mortal() {
    grave.died_on = std::this_thread::get_id();
    ++grave.dead;
    grave.done.release();
  }
  Grave& grave;
};

TEST(Reaper, DestroysWhatNobodyHasAnyMoreOnItsOwnThread) {
  Grave grave;
  Reaper reaper;
  auto one = reaper.share(std::make_unique<Mortal>(grave));
  auto other = one;
  one.reset();
  EXPECT_EQ(grave.dead, 0);
  other.reset();
  grave.done.acquire();
  EXPECT_NE(grave.died_on, std::this_thread::get_id());
  EXPECT_EQ(grave.dead, 1);
}

TEST(Reaper, WaitsForWhatNobodyHasAnyMore) {
  Grave grave;
  Reaper reaper;
  reaper.share(std::make_unique<Mortal>(grave)).reset();
  reaper.wait();
  EXPECT_EQ(grave.dead, 1);
}

TEST(Reaper, LeavesNothingBehind) {
  std::vector<std::unique_ptr<Grave>> graves;
  {
    Reaper reaper;
    for (int i = 0; i < 100; ++i) {
      graves.push_back(std::make_unique<Grave>());
      reaper.share(std::make_unique<Mortal>(*graves.back())).reset();
    }
  }
  for (const auto& grave : graves) EXPECT_EQ(grave->dead, 1);
}

}  // namespace
}  // namespace spdld
