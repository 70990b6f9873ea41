// SPDX-License-Identifier: Apache-2.0
#include "posix/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

namespace spdld {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

UniqueFd make() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(UniqueFd, OwnsNothingByDefault) {
  const UniqueFd none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.get(), -1);
}

TEST(UniqueFd, ClosesWhenItGoes) {
  int number = -1;
  {
    const UniqueFd fd = make();
    ASSERT_TRUE(fd);
    number = fd.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, LeavesNothingBehindWhenMovedFrom) {
  UniqueFd from = make();
  const int number = from.get();
  const UniqueFd to(std::move(from));
  EXPECT_EQ(to.get(), number);
  EXPECT_FALSE(from);  // NOLINT(bugprone-use-after-move): what this is about
  EXPECT_TRUE(is_open(number));
}

TEST(UniqueFd, ClosesWhatItHadWhenAssigned) {
  UniqueFd to = make();
  UniqueFd from = make();
  const int old = to.get();
  const int kept = from.get();
  to = std::move(from);
  EXPECT_FALSE(is_open(old));
  EXPECT_EQ(to.get(), kept);
  EXPECT_TRUE(is_open(kept));
}

TEST(UniqueFd, SurvivesAssignmentToItself) {
  UniqueFd fd = make();
  UniqueFd& same = fd;
  fd = std::move(same);
  EXPECT_TRUE(is_open(fd.get()));
}

TEST(UniqueFd, GivesUpWhatItReleases) {
  UniqueFd fd = make();
  const int number = fd.release();
  EXPECT_FALSE(fd);
  fd.reset();
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(UniqueFd, ResetsOnce) {
  UniqueFd fd = make();
  const int number = fd.get();
  fd.reset();
  EXPECT_FALSE(is_open(number));
  UniqueFd other = make();  // takes the same number
  fd.reset();
  EXPECT_TRUE(is_open(other.get()));
}

}  // namespace
}  // namespace spdld
