// SPDX-License-Identifier: Apache-2.0
#include "base/blocking_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/base/users/users.h"

namespace spdld {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr uid_t kCid = 1003;

// Counts arrivals, and holds who comes until it is opened.
class Gate {
 public:
  void pass() {
    MutexLock lock(mutex_);
    ++came_;
    changed_.notify_all();
    while (!open_) changed_.wait(mutex_);
  }
  void await(int count) {
    MutexLock lock(mutex_);
    while (came_ < count) changed_.wait(mutex_);
  }
  int came() {
    MutexLock lock(mutex_);
    return came_;
  }
  void open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int came_ SPDLD_GUARDED_BY(mutex_) = 0;
  bool open_ SPDLD_GUARDED_BY(mutex_) = false;
};

TEST(BlockingPoolTest, LetsUsersTakeTurnsWhoeverAskedFirst) {
  Gate gate;
  std::vector<std::string> order;  // of one thread
  std::promise<void> done;
  BlockingPool pool("test", 1);
  pool.post(kAnn, [&] { gate.pass(); });
  gate.await(1);
  for (const char* task : {"a1", "a2", "a3"}) pool.post(kAnn, [&, task] { order.push_back(task); });
  for (const char* task : {"b1", "b2"}) pool.post(kBob, [&, task] { order.push_back(task); });
  pool.post(kCid, [&] { order.push_back("c1"); });
  EXPECT_THAT(pool.waiting(), ElementsAre(Pair(kAnn, 3), Pair(kBob, 2), Pair(kCid, 1)));
  gate.open();
  pool.post(kAnn, [&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_THAT(order, ElementsAre("a1", "b1", "c1", "a2", "b2", "a3"));
  EXPECT_TRUE(pool.waiting().empty());
}

TEST(BlockingPoolTest, KeepsAThreadFromAUserWhoBlocksAllOthers) {
  Gate gate;
  BlockingPool pool("test", 3);
  for (int i = 0; i < 200; ++i) pool.post(kAnn, [&] { gate.pass(); });
  gate.await(2);
  for (int i = 0; i < 20; ++i) {
    std::promise<void> done;
    pool.post(kBob, [&] { done.set_value(); });
    done.get_future().wait();
  }
  EXPECT_EQ(gate.came(), 2);
  EXPECT_THAT(pool.waiting(), ElementsAre(Pair(kAnn, 198)));
  gate.open();
  gate.await(200);
}

TEST(BlockingPoolTest, GivesAThreadThatComesFreeToWhoeverWaits) {
  Gate ann;
  Gate bob;
  BlockingPool pool("test", 3);
  for (int i = 0; i < 4; ++i) pool.post(kAnn, [&] { ann.pass(); });
  for (int i = 0; i < 4; ++i) pool.post(kBob, [&] { bob.pass(); });
  ann.await(2);
  bob.await(1);
  bob.open();  // two of Ann's block still, and Bob's go on one by one
  bob.await(4);
  EXPECT_EQ(ann.came(), 2);
  ann.open();
  ann.await(4);
}

TEST(BlockingPoolTest, GoesOnAfterATaskThatThrows) {
  BlockingPool pool("test", 1);
  pool.post(kAnn, [] { throw std::runtime_error("no memory, say"); });
  std::promise<void> done;
  pool.post(kAnn, [&] { done.set_value(); });
  done.get_future().wait();
}

TEST(BlockingPoolTest, DropsWhatHasNotBegunWhenItStops) {
  Gate gate;
  bool begun = false;
  BlockingPool pool("test", 1);
  pool.post(kAnn, [&] { gate.pass(); });
  gate.await(1);
  pool.post(kAnn, [&] { begun = true; });
  pool.post(kBob, [&] { begun = true; });
  auto stopped = std::async(std::launch::async, [&] { pool.stop(); });
  while (!pool.waiting().empty()) std::this_thread::yield();
  gate.open();
  stopped.wait();
  pool.post(kAnn, [&] { begun = true; });
  EXPECT_FALSE(begun);
  EXPECT_TRUE(pool.waiting().empty());
}

}  // namespace
}  // namespace spdld
