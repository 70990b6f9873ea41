// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/types.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "delivery/liveness.h"
#include "posix/unique_fd.h"

namespace spdld::delivery {

// What every Liveness promises. A Maker has
//   Liveness& liveness();
//   WatchedConsumer begin(): starts a process that is connected; their numbers count from 0;
//   void hang_up(std::size_t consumer): the process closes its end of the socket, and lives on;
//   void end(std::size_t consumer): it ends, while a child of it keeps that end open.
// The suite watches each consumer once, in the order of their numbers.
struct WatchedConsumer {
  UniqueFd socket;  // the daemon's end
  pid_t pid = 0;
};

template <typename Maker>
class LivenessSuite : public ::testing::Test {
 protected:
  UniqueFd watch() {
    consumers_.push_back(maker_.begin());
    auto witness = maker_.liveness().watch(consumers_.back().socket.get(), consumers_.back().pid);
    EXPECT_TRUE(witness) << witness.error().message();
    return witness ? std::move(*witness) : UniqueFd();
  }
  static bool readable(const UniqueFd& witness) {
    pollfd look{.fd = witness.get(), .events = POLLIN, .revents = 0};
    return ::poll(&look, 1, 0) == 1 && (look.revents & POLLIN) != 0;
  }
  static void wait_until_readable(const UniqueFd& witness) {
    pollfd look{.fd = witness.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&look, 1, -1), 1);
    ASSERT_NE(look.revents & POLLIN, 0);
  }

  Maker maker_;
  std::vector<WatchedConsumer> consumers_;
};

TYPED_TEST_SUITE_P(LivenessSuite);

TYPED_TEST_P(LivenessSuite, SeesTheEndOfAProcessWhoseSocketIsKeptOpen) {
  const UniqueFd witness = this->watch();
  if (!witness) GTEST_SKIP() << "this kernel cannot tell";
  EXPECT_FALSE(this->readable(witness));
  this->maker_.end(0);
  this->wait_until_readable(witness);
  EXPECT_TRUE(this->readable(witness)) << "it stays so";
}

TYPED_TEST_P(LivenessSuite, TakesAHangUpForNoEnd) {
  const UniqueFd witness = this->watch();
  if (!witness) GTEST_SKIP() << "this kernel cannot tell";
  this->maker_.hang_up(0);
  EXPECT_FALSE(this->readable(witness));
  this->maker_.end(0);
  this->wait_until_readable(witness);
}

TYPED_TEST_P(LivenessSuite, TellsEachProcessFromTheOthers) {
  const UniqueFd first = this->watch();
  const UniqueFd second = this->watch();
  UniqueFd third = this->watch();
  if (!first) GTEST_SKIP() << "this kernel cannot tell";
  third.reset();  // nobody looks any more
  this->maker_.end(1);
  this->wait_until_readable(second);
  EXPECT_FALSE(this->readable(first));
  this->maker_.end(0);
  this->wait_until_readable(first);
}

REGISTER_TYPED_TEST_SUITE_P(LivenessSuite, SeesTheEndOfAProcessWhoseSocketIsKeptOpen,
                            TakesAHangUpForNoEnd, TellsEachProcessFromTheOthers);

}  // namespace spdld::delivery
