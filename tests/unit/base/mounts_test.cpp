// SPDX-License-Identifier: Apache-2.0
#include "base/mounts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace spdld {
namespace {

using Mounts = std::map<dev_t, std::string>;

TEST(Mounts, AreFoundByTheirDevice) {
  EXPECT_EQ(mount_points("22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
                         "35 22 0:31 /export /data rw - nfs4 server:/export rw,hard\n"),
            (Mounts{{makedev(259, 2), "/"}, {makedev(0, 31), "/data"}}));
}

TEST(Mounts, HaveTheFirstPlaceOfADeviceThatHasSeveral) {
  EXPECT_EQ(mount_points("22 1 8:1 / / rw - ext4 a rw\n40 22 8:1 /srv /srv rw - ext4 a rw\n"),
            (Mounts{{makedev(8, 1), "/"}}));
}

TEST(Mounts, MayHaveBlanksInTheirNames) {
  EXPECT_EQ(mount_points("22 1 8:1 / /my\\040data\\134x rw - ext4 a rw\n"),
            (Mounts{{makedev(8, 1), "/my data\\x"}}));
  EXPECT_EQ(mount_points("22 1 8:1 / /odd\\04 rw - ext4 a rw"),
            (Mounts{{makedev(8, 1), "/odd\\04"}}));
}

TEST(Mounts, LeaveOutLinesThatAreNotUnderstood) {
  EXPECT_EQ(mount_points(""), Mounts());
  EXPECT_EQ(mount_points("\n22\n22 1 8 / /a rw\n22 1 8:x / /b rw\n22 1 x:8 / /c rw\n22 1 8:1"),
            Mounts());
}

TEST(Mounts, OfThisMachineHaveTheDeviceOfProc) {
  struct stat proc {};
  ASSERT_EQ(::stat("/proc", &proc), 0);
  EXPECT_EQ(mount_points().at(proc.st_dev), "/proc");
}

}  // namespace
}  // namespace spdld
