// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <string>

#include "tests/support/scratch_dir.h"

namespace spdld {
namespace {

using By = CpuPriority::By;

// No cgroup has a weight there, and no autogroups are on.
class CpuPriorityTest : public ::testing::Test {
 protected:
  CpuPriorityTest() { dir_.write("self", "0::/a/b\n"); }

  std::optional<CpuPriority> priority() const { return cpu_priority(gettid(), files_); }

  const test::ScratchDir dir_;
  const PriorityFiles files_{
      .cgroups = {.self = dir_.path() + "/self", .root = dir_.path() + "/cgroup"},
      .autogroup = dir_.path() + "/autogroup",
      .autogroups_on = dir_.path() + "/on"};
};

TEST_F(CpuPriorityTest, IsThatOfTheThreadWhereNothingElseCounts) {
  dir_.write("on", "0\n");
  dir_.write("autogroup", "/autogroup-7 nice 5\n");
  const auto found = priority();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->by, By::kNiceness);
  EXPECT_EQ(found->value, getpriority(PRIO_PROCESS, 0));
}

TEST_F(CpuPriorityTest, IsNotKnownOfAThreadThatThereIsNot) {
  EXPECT_FALSE(cpu_priority(std::numeric_limits<pid_t>::max(), files_));
}

TEST_F(CpuPriorityTest, IsNotKnownWhereTheKernelDoesNotTellTheCgroup) {
  PriorityFiles files = files_;
  files.cgroups.self = dir_.path() + "/none";
  EXPECT_FALSE(cpu_priority(gettid(), files));
}

TEST_F(CpuPriorityTest, IsThatOfTheSessionWhereAutogroupsAreOn) {
  dir_.write("on", "1\n");
  dir_.write("autogroup", "/autogroup-7 nice 10\n");
  const auto found = priority();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->by, By::kAutogroup);
  EXPECT_EQ(found->value, 10);
}

TEST_F(CpuPriorityTest, IsNotKnownOfASessionWhoseFileTellsNothing) {
  dir_.write("on", "1\n");
  EXPECT_FALSE(priority());
  dir_.write("autogroup", "/autogroup-7\n");
  EXPECT_FALSE(priority());
}

TEST_F(CpuPriorityTest, IsTheWeightOfTheNearestCgroupThatHasOne) {
  dir_.write("on", "1\n");
  dir_.write("autogroup", "/autogroup-7 nice 10\n");
  dir_.write("cgroup/cpu.weight", "300\n");
  dir_.write("cgroup/a/cpu.weight", "20\n");
  const auto found = priority();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->by, By::kWeight);
  EXPECT_EQ(found->value, 20);
  EXPECT_EQ(found->cgroup, "/a");
}

TEST_F(CpuPriorityTest, IsNoWeightThatIsNoNumber) {
  dir_.write("cgroup/a/b/cpu.weight", "max\n");
  const auto found = priority();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->by, By::kNiceness);
}

TEST_F(CpuPriorityTest, TakesSharesOfVersionOneForWeights) {
  dir_.write("self", "3:cpu,cpuacct:/a\n0::/\n");
  dir_.write("cgroup/cpu/a/cpu.shares", "102\n");
  const auto found = priority();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->by, By::kWeight);
  EXPECT_EQ(found->value, 10);
  EXPECT_EQ(found->cgroup, "/a");
}

TEST_F(CpuPriorityTest, IsNotTheSharesOfTheRoot) {
  dir_.write("self", "3:cpu,cpuacct:/\n0::/\n");
  dir_.write("cgroup/cpu/cpu.shares", "1024\n");
  const auto found = priority();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->by, By::kNiceness);
}

class NiceSessionTest : public CpuPriorityTest {
 protected:
  // Whether it succeeds in a process that leads its session, or in one that does not.
  bool succeeds(bool leads) const {
    const pid_t child = ::fork();
    if (child == 0) {
      if (leads) ::setsid();
      ::_exit(nice_session(10, files_).ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status) == 0;
  }
  std::string autogroup() const {
    std::ifstream file(files_.autogroup);
    std::string text;
    std::getline(file, text);
    return text;
  }
};

TEST_F(NiceSessionTest, WritesTheNicenessOfASessionOfItsOwn) {
  dir_.write("on", "1\n");
  dir_.write("autogroup", "");
  EXPECT_TRUE(succeeds(true));
  EXPECT_EQ(autogroup(), "10");
}

TEST_F(NiceSessionTest, LeavesASessionAloneThatIsOfOthersToo) {
  dir_.write("on", "1\n");
  dir_.write("autogroup", "");
  EXPECT_TRUE(succeeds(false));
  EXPECT_EQ(autogroup(), "");
}

TEST_F(NiceSessionTest, WritesNothingWhereAutogroupsAreOff) {
  dir_.write("autogroup", "");
  EXPECT_TRUE(succeeds(true));
  dir_.write("on", "0\n");
  EXPECT_TRUE(succeeds(true));
  EXPECT_EQ(autogroup(), "");
}

TEST_F(NiceSessionTest, FailsWhereTheFileIsNotThere) {
  dir_.write("on", "1\n");
  EXPECT_FALSE(succeeds(true));
}

}  // namespace
}  // namespace spdld
