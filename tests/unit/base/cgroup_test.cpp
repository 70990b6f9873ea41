// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_dir.h"

namespace spdld {
namespace {

CgroupFiles files_in(const test::ScratchDir& dir) {
  return {.self = dir.path() + "/self",
          .root = dir.path() + "/cgroup",
          .pressure = dir.path() + "/pressure"};
}

TEST(CpuQuota, IsNoneWhereTheKernelTellsNothing) {
  const test::ScratchDir dir;
  EXPECT_EQ(cpu_quota(files_in(dir)), 0);
  dir.write("self", "0::/a\nno line\n1:\n4:cpu,cpuacct\n");
  dir.write("cgroup/a/cpu.max", "");
  EXPECT_EQ(cpu_quota(files_in(dir)), 0);
  dir.write("cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(files_in(dir)), 0);
  dir.write("cgroup/a/cpu.max", "50000 0\n");
  EXPECT_EQ(cpu_quota(files_in(dir)), 0);
}

TEST(CpuQuota, IsTheTightestOnTheWayUp) {
  const test::ScratchDir dir;
  dir.write("self", "0::/a/b\n");
  dir.write("cgroup/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpu_quota(files_in(dir)), 4);
  dir.write("cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(files_in(dir)), 1.5);
  dir.write("cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_quota(files_in(dir)), 0.5) << "the root is a container's own group";
}

TEST(CpuQuota, IsReadFromVersionOneToo) {
  const test::ScratchDir dir;
  dir.write("self", "5:memory:/m\n3:cpu,cpuacct:/a/b\n0::/\n");
  dir.write("cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  dir.write("cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(files_in(dir)), 0);
  dir.write("cgroup/cpu/a/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(cpu_quota(files_in(dir)), 0) << "its period is not there";
  dir.write("cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(files_in(dir)), 2);
}

TEST(CpuQuota, StaysBelowTheRoot) {
  const test::ScratchDir dir;
  dir.write("self", "0::/../../x\n");
  dir.write("x/cpu.max", "100000 100000\n");
  EXPECT_EQ(cpu_quota(files_in(dir)), 0);
}

TEST(CpuThrottled, IsNotKnownWhereTheKernelTellsNothing) {
  const test::ScratchDir dir;
  EXPECT_EQ(cpu_throttled(files_in(dir)), std::nullopt);
  dir.write("self", "0::/a\n");
  dir.write("cgroup/a/cpu.stat", "usage_usec 10\nno number\nthrottled_usec 5\n");
  EXPECT_EQ(cpu_throttled(files_in(dir)), std::nullopt);
}

TEST(CpuThrottled, IsThatOfAllGroupsOnTheWayUp) {
  const test::ScratchDir dir;
  dir.write("self", "0::/a/b\n");
  dir.write("cgroup/a/b/cpu.stat", "usage_usec 10\nnr_throttled 1\nthrottled_usec 3\n");
  EXPECT_EQ(cpu_throttled(files_in(dir)), std::chrono::microseconds(3));
  dir.write("cgroup/a/cpu.stat", "throttled_usec 7\n");
  EXPECT_EQ(cpu_throttled(files_in(dir)), std::chrono::microseconds(10));
}

TEST(CpuThrottled, IsReadFromVersionOneToo) {
  const test::ScratchDir dir;
  dir.write("self", "3:cpu,cpuacct:/a\n");
  dir.write("cgroup/cpu/a/cpu.stat", "nr_periods 91\nnr_throttled 90\nthrottled_time 500\n");
  EXPECT_EQ(cpu_throttled(files_in(dir)), std::chrono::nanoseconds(500));
}

TEST(CpuPressure, IsNotKnownWhereTheKernelTellsNothing) {
  const test::ScratchDir dir;
  EXPECT_EQ(cpu_pressure(files_in(dir)), std::nullopt);
  dir.write("self", "0::/a\n");
  for (const char* const text : {"", "some", "some avg10=\n", "some avg10=x\n", "some avg10=1x\n",
                                 "some avg60=1.00\n", "full avg10=1.00\n"}) {
    dir.write("pressure", text);
    dir.write("cgroup/a/cpu.pressure", text);
    EXPECT_EQ(cpu_pressure(files_in(dir)), std::nullopt) << text;
  }
}

TEST(CpuPressure, IsThatOfTheMachine) {
  const test::ScratchDir dir;
  dir.write("self", "0::/a\n");
  dir.write("pressure", "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=0.00\n");
  dir.write("cgroup/a/cpu.pressure", "some avg10=50.00 avg60=1.00 avg300=0.00 total=9\n");
  EXPECT_EQ(cpu_pressure(files_in(dir)), 0.125);
}

TEST(CpuPressure, IsThatOfTheCgroupWhereTheMachineTellsNone) {
  const test::ScratchDir dir;
  dir.write("self", "0::/a/b\n");
  dir.write("cgroup/a/cpu.pressure", "some avg10=50.00 avg60=1.00 avg300=0.00 total=9\n");
  EXPECT_EQ(cpu_pressure(files_in(dir)), 0.5);
}

}  // namespace
}  // namespace spdld
