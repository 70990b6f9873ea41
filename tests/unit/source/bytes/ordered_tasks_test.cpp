// SPDX-License-Identifier: Apache-2.0
#include "source/bytes/ordered_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <new>
#include <string>
#include <vector>

namespace spdld::source {
namespace {

TEST(OrderedTasks, AreEachDoneOnce) {
  for (const int threads : {0, 1, 2, 7}) {
    std::vector<std::atomic<int>> done(100);
    int reports = 0;
    EXPECT_TRUE(run_in_order({.count = done.size(),
                              .threads = threads,
                              .task =
                                  [&](std::size_t number, const auto&) {
                                    ++done[number];
                                    return Status();
                                  },
                              .progress = [&] { ++reports; }})
                    .ok());
    for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1);
    EXPECT_GE(reports, 1);
  }
}

TEST(OrderedTasks, MayBeNone) {
  EXPECT_TRUE(
      run_in_order(
          {.count = 0, .threads = 4, .task = [](std::size_t, const auto&) { return Status(); }})
          .ok());
}

TEST(OrderedTasks, FailAsIfDoneOneByOne) {
  // The later one fails first, and the earlier one is not given up for that.
  std::latch later(1);
  const Status status = run_in_order(
      {.count = 2, .threads = 2, .task = [&](std::size_t number, const auto& given_up) {
         if (number == 1) {
           later.count_down();
           return Status(Code::kNotFound, "later");
         }
         later.wait();
         EXPECT_FALSE(given_up());
         return Status(Code::kDataLoss, "earlier");
       }});
  EXPECT_EQ(status.message(), "earlier");
}

TEST(OrderedTasks, AreGivenUpBehindOneThatFails) {
  std::latch begun(1);
  std::atomic<int> last = 0;
  const Status status = run_in_order(
      {.count = 1000, .threads = 2, .task = [&](std::size_t number, const auto& given_up) {
         last = std::max<int>(last, static_cast<int>(number));
         if (number == 0) {
           begun.wait();
           return Status(Code::kDataLoss, "first");
         }
         begun.count_down();
         while (!given_up()) std::this_thread::yield();
         return Status(Code::kCancelled, "given up");
       }});
  EXPECT_EQ(status.message(), "first");
  EXPECT_EQ(last, 1);
}

TEST(OrderedTasks, EndWhenAStopIsRequested) {
  std::stop_source stop;
  std::atomic<int> begun = 0;
  const Status status = run_in_order({.count = 1000,
                                      .threads = 2,
                                      .stop = stop.get_token(),
                                      .task = [&](std::size_t, const auto& given_up) {
                                        ++begun;
                                        stop.request_stop();
                                        EXPECT_TRUE(given_up());
                                        return Status();
                                      }});
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_LE(begun, 2);
}

TEST(OrderedTasks, FailWhereThereIsNoMemory) {
  const Status status = run_in_order(
      {.count = 3, .threads = 1, .task = [](std::size_t number, const auto&) -> Status {
         if (number == 1) throw std::bad_alloc();
         return {};
       }});
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace spdld::source
