// SPDX-License-Identifier: Apache-2.0
#include "base/lock_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>

#include "tests/support/scratch_dir.h"
#include "tests/support/zombie.h"

namespace spdld {
namespace {

using ::testing::StartsWith;

class LockFileTest : public ::testing::TestWithParam<LockFile::Kind> {
 protected:
  Result<LockFile> take() { return LockFile::take(path_, GetParam()); }

  const test::ScratchDir dir_;
  const std::string path_ = dir_.path() + "/lock";
};

INSTANTIATE_TEST_SUITE_P(Kinds, LockFileTest,
                         ::testing::Values(LockFile::Kind::kFlock, LockFile::Kind::kOfd),
                         [](const auto& info) {
                           return info.param == LockFile::Kind::kFlock ? "Flock" : "Ofd";
                         });

// That has the lock.
test::Zombie zombie_with(const std::string& path, LockFile::Kind kind) {
  return test::Zombie([&] {
    static std::optional<LockFile> lock;
    if (auto taken = LockFile::take(path, kind)) lock.emplace(*std::move(taken));
    return lock.has_value();
  });
}

TEST_P(LockFileTest, TellsWhoHasIt) {
  {
    const auto first = take();
    ASSERT_TRUE(first) << first.error().message();
    const auto second = take();
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
    EXPECT_THAT(second.error().message(), StartsWith("pid " + std::to_string(::getpid()) + " on "));
  }
  EXPECT_TRUE(take()) << "it is free again";
}

TEST_P(LockFileTest, GivesTheLockBackBeforeItsEnd) {
  const auto first = take();
  ASSERT_TRUE(first);
  first->release();
  EXPECT_TRUE(take());
}

TEST_P(LockFileTest, TakesTheLockOfAProcessThatWasKilledAndHangs) {
  const test::Zombie zombie = zombie_with(path_, GetParam());
  const auto next = take();
  ASSERT_TRUE(next) << next.error().message();
  const auto third = take();
  ASSERT_FALSE(third) << "one follows it";
  EXPECT_THAT(third.error().message(), StartsWith("pid " + std::to_string(::getpid()) + " on "));
}

TEST_P(LockFileTest, LeavesTheLockToAPidOfAnotherBootOrNamespace) {
  const test::Zombie zombie = zombie_with(path_, GetParam());
  std::string line;
  std::getline(std::ifstream(path_) >> std::ws, line);
  std::ofstream(path_) << line << "\nanother-boot pid:[1]\n";
  const auto next = take();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().message(), line);
}

TEST_P(LockFileTest, LeavesTheLockOfWhoSaysNothing) {
  const test::Zombie zombie = zombie_with(path_, GetParam());
  std::ofstream(path_, std::ios::trunc).flush();
  const auto next = take();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().message(), "which did not say its pid");
}

TEST_P(LockFileTest, NamesTheDirectoryThatIsNotThere) {
  const auto lock = LockFile::take(dir_.path() + "/none/lock", GetParam());
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().message().find("opening " + dir_.path() + "/none/lock: "), 0U);
}

}  // namespace
}  // namespace spdld
