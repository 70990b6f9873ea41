// SPDX-License-Identifier: Apache-2.0
#include "source/file/disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "source/file/reopening_disk.h"
#include "tests/conformance/disk_suite.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

namespace fs = std::filesystem;

UniqueFd opened_root(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

template <bool kNetwork>
class SystemDiskMaker {
 public:
  static std::unique_ptr<Disk> make(const TempDir& root) {
    return std::make_unique<SystemDisk>(
        opened_root(root.path()), std::make_shared<const Access>(AccessRules(), Access::trusted()),
        Access::Links::kFollow, kNetwork, 1);
  }
};

// A disk of a root that is looked for with the first file, or was found before it.
template <bool kFound>
class ReopeningDiskMaker {
 public:
  static std::unique_ptr<Disk> make(const TempDir& root) {
    const auto open = [path = root.path()]() -> Result<ReopeningDisk::Opened> {
      UniqueFd fd = opened_root(path);
      struct stat info {};
      EXPECT_EQ(::fstat(fd.get(), &info), 0);
      return ReopeningDisk::Opened{
          .disk = std::make_unique<SystemDisk>(
              std::move(fd), std::make_shared<const Access>(AccessRules(), Access::trusted()),
              Access::Links::kFollow, false, info.st_dev),
          .device = info.st_dev,
          .inode = info.st_ino};
    };
    return std::make_unique<ReopeningDisk>(root.path(), /*remote=*/false, open,
                                           kFound ? *open() : ReopeningDisk::Opened());
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(System, DiskSuite, SystemDiskMaker<false>);
INSTANTIATE_TYPED_TEST_SUITE_P(SystemOnANetwork, DiskSuite, SystemDiskMaker<true>);
INSTANTIATE_TYPED_TEST_SUITE_P(Reopening, DiskSuite, ReopeningDiskMaker<true>);
INSTANTIATE_TYPED_TEST_SUITE_P(ReopeningLate, DiskSuite, ReopeningDiskMaker<false>);

class SystemDiskTest : public ::testing::Test {
 protected:
  SystemDiskTest() { dir_.file("a.bin", "abc"); }

  std::unique_ptr<SystemDisk> disk() {
    UniqueFd root = opened_root(dir_.path());
    struct stat info {};
    EXPECT_EQ(::fstat(root.get(), &info), 0);
    device_ = info.st_dev;
    return std::make_unique<SystemDisk>(
        std::move(root), std::make_shared<const Access>(AccessRules(), Access::trusted()),
        Access::Links::kFollow, /*opening_blocks=*/false, info.st_dev);
  }
  static void open(Disk& disk, const std::string& uri) {
    OpenFile file;
    ASSERT_EQ(disk.open(uri, file), 0);
  }

  TempDir dir_;
  dev_t device_ = 0;
};

TEST_F(SystemDiskTest, OpensAtOnceWhatTheKernelHasTheNameOf) {
  const auto disk = this->disk();
  open(*disk, "a.bin");
  const Disk::Opening opening = disk->opening("a.bin");
  EXPECT_TRUE(opening.at_once);
  EXPECT_EQ(opening.device, device_);
}

TEST_F(SystemDiskTest, OpensNothingAtOnceThatIsNotThere) {
  EXPECT_FALSE(disk()->opening("none.bin").at_once);
}

TEST_F(SystemDiskTest, FollowsALinkAtOnceOnlyToADeviceThatItKnows) {
  struct stat info {};
  if (::stat("/dev/shm", &info) != 0) GTEST_SKIP() << "there is no /dev/shm";
  const auto disk = this->disk();
  if (info.st_dev == device_) GTEST_SKIP() << "it is the tests' own device";
  const std::string target = "/dev/shm/spdld-disk-test-" + std::to_string(::getpid());
  const UniqueFd made(::open(target.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(made);
  fs::create_symlink(target, dir_.path("link"));
  // The wait is not charged to what lies beside the link.
  const Disk::Opening unknown = disk->opening("link");
  EXPECT_FALSE(unknown.at_once);
  EXPECT_NE(unknown.device, device_);
  open(*disk, "link");
  EXPECT_TRUE(disk->opening("link").at_once);
  EXPECT_EQ(::unlink(target.c_str()), 0);
  const Disk::Opening dangling = disk->opening("link");
  EXPECT_FALSE(dangling.at_once);
  EXPECT_NE(dangling.device, device_);
}

TEST_F(SystemDiskTest, FollowsALinkOnItsOwnDeviceAtOnce) {
  fs::create_symlink("a.bin", dir_.path("link"));
  const auto disk = this->disk();
  open(*disk, "link");
  EXPECT_TRUE(disk->opening("link").at_once);
  EXPECT_EQ(disk->opening("link").device, device_);
}

}  // namespace
}  // namespace spdld::source
