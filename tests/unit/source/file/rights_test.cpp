// SPDX-License-Identifier: Apache-2.0
#include "source/file/rights.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "posix/unique_fd.h"
#include "tests/unit/source/file/acl.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

constexpr unsigned kAll = 7;

struct stat file_of(uid_t uid, gid_t gid, mode_t mode) {
  struct stat info {};
  info.st_uid = uid;
  info.st_gid = gid;
  info.st_mode = S_IFREG | mode;
  return info;
}

const Credentials kUser{.uid = 1000, .gid = 1000, .groups = {50, 60}};

TEST(RightsTest, OwnerGroupAndOthersHaveTheirBits) {
  EXPECT_TRUE(may(kUser, kMayRead, file_of(1000, 1, 0400), {}));
  EXPECT_TRUE(may(kUser, kMayRead, file_of(1, 1000, 0040), {}));
  EXPECT_TRUE(may(kUser, kMayRead, file_of(1, 60, 0040), {}));
  EXPECT_TRUE(may(kUser, kMayRead, file_of(1, 1, 0004), {}));
  EXPECT_FALSE(may(kUser, kMayRead, file_of(1, 1, 0770), {}));
}

TEST(RightsTest, TheFirstThatMatchesDecidesAlone) {
  EXPECT_FALSE(may(kUser, kMayRead, file_of(1000, 1000, 0077), {}));
  EXPECT_FALSE(may(kUser, kMayRead, file_of(1, 50, 0707), {}));
}

TEST(RightsTest, AllThatIsWantedMustBeAllowed) {
  EXPECT_TRUE(may(kUser, kMayRead | kMayPass, file_of(1, 1, 0005), {}));
  EXPECT_FALSE(may(kUser, kMayRead | kMayPass, file_of(1, 1, 0004), {}));
  EXPECT_FALSE(may(kUser, kMayRead | kMayPass, file_of(1, 1, 0001), {}));
}

TEST(RightsTest, AnUnmappedUserHasWhatOthersHave) {
  const Credentials nobody{
      .uid = Credentials::kUnmapped, .gid = Credentials::kUnmapped, .groups = {50}};
  const auto theirs = [](mode_t mode) {
    return file_of(Credentials::kUnmapped, Credentials::kUnmapped, mode);
  };
  EXPECT_FALSE(may(nobody, kMayRead, theirs(0770), {}));
  EXPECT_TRUE(may(nobody, kMayRead, theirs(0004), {}));
  const Acl acl =
      Acl().owner(kAll).user(Credentials::kUnmapped, kAll).group(0).mask(kAll).others(0);
  EXPECT_FALSE(may(nobody, kMayRead, theirs(0770), acl.bytes()));
}

TEST(RightsTest, AnAclAllowsANamedUser) {
  const Acl acl = Acl().owner(6).user(1000, 4).group(0).mask(4).others(0);
  EXPECT_TRUE(may(kUser, kMayRead, file_of(1, 1, 0640), acl.bytes()));
  EXPECT_FALSE(may(kUser, kMayPass, file_of(1, 1, 0640), acl.bytes()));
}

TEST(RightsTest, AnAclDeniesANamedUserWhatAllOthersMay) {
  const Acl acl = Acl().owner(6).user(1000, 0).group(4).mask(4).others(4);
  EXPECT_FALSE(may(kUser, kMayRead, file_of(1, 1000, 0644), acl.bytes()));
}

TEST(RightsTest, AnAclAllowsWhomOneOfTheGroupsAllows) {
  const Acl acl = Acl().owner(6).group(0).group(50, 0).group(60, 4).mask(4).others(0);
  EXPECT_TRUE(may(kUser, kMayRead, file_of(1, 1000, 0640), acl.bytes()));
}

TEST(RightsTest, AnAclDeniesWhomAllTheGroupsDeny) {
  const Acl acl = Acl().owner(6).group(4).group(50, 0).mask(4).others(4);
  EXPECT_FALSE(may(kUser, kMayRead, file_of(1, 1, 0644), acl.bytes()));
}

TEST(RightsTest, RightsAreNotGatheredFromSeveralGroups) {
  const Acl acl = Acl().owner(6).group(0).group(50, 4).group(60, 1).mask(5).others(0);
  EXPECT_TRUE(may(kUser, kMayRead, file_of(1, 1, 0650), acl.bytes()));
  EXPECT_FALSE(may(kUser, kMayRead | kMayPass, file_of(1, 1, 0650), acl.bytes()));
}

TEST(RightsTest, TheMaskLimitsNamedUsersAndGroups) {
  const Acl user = Acl().owner(6).user(1000, 4).group(0).mask(1).others(4);
  EXPECT_FALSE(may(kUser, kMayRead, file_of(1, 1, 0614), user.bytes()));
  const Acl group = Acl().owner(6).group(4).mask(1).others(4);
  EXPECT_FALSE(may(kUser, kMayRead, file_of(1, 60, 0614), group.bytes()));
}

TEST(RightsTest, AnAclThatMakesNoSenseAllowsNothing) {
  std::vector<std::byte> bytes = Acl().owner(7).group(7).others(7).bytes();
  const struct stat file = file_of(1, 1, 0777);
  ASSERT_TRUE(may(kUser, kMayRead, file, bytes));
  EXPECT_FALSE(may(kUser, kMayRead, file, std::span(bytes).first(bytes.size() - 1)));
  EXPECT_FALSE(may(kUser, kMayRead, file, std::span(bytes).first(3)));
  EXPECT_FALSE(may(kUser, kMayRead, file, std::span(bytes).first(4)));
  bytes[0] = std::byte{3};
  EXPECT_FALSE(may(kUser, kMayRead, file, bytes));
}

TEST(RightsTest, ProcAndSysAreNobodysData) {
  for (const char* path : {"/proc", "/sys"}) {
    const UniqueFd fd(::open(path, O_PATH | O_CLOEXEC));
    EXPECT_EQ(rights_kind(fd.get()), RightsKind::kNever) << path;
  }
}

// What the kernel says to that user.
bool kernel_allows(const Credentials& user, const std::string& path) {
  bool allowed = false;
  std::thread([&] {  // the system calls, unlike libc's, change the calling thread alone
    ASSERT_EQ(::syscall(SYS_setgroups, user.groups.size(), user.groups.data()), 0);
    ASSERT_EQ(::syscall(SYS_setresgid, user.gid, user.gid, user.gid), 0);
    ASSERT_EQ(::syscall(SYS_setresuid, user.uid, user.uid, user.uid), 0);
    allowed = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)).get() >= 0;
  })
      .join();
  return allowed;
}

TEST(RightsTest, DecideAsTheKernelDoesForAnyFileAndUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may give files away";
  TempDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0755), 0);
  dir.file("file");
  const std::string path = dir.path("file");
  if (!Acl().owner(6).group(4).others(4).set_on(path))
    GTEST_SKIP() << "no ACLs on this file system";
  KeyedRng rng(2026);
  const auto below = [&rng](std::uint64_t n) { return static_cast<unsigned>(rng.below(n)); };
  int allowed = 0;
  constexpr int kTries = 400;
  for (int i = 0; i < kTries; ++i) {
    ASSERT_EQ(::removexattr(path.c_str(), "system.posix_acl_access") == 0 || errno == ENODATA,
              true);
    ASSERT_EQ(::chown(path.c_str(), 3000 + below(2), 4000 + below(3)), 0);
    ASSERT_EQ(::chmod(path.c_str(), below(0777 + 1)), 0);
    std::string shown = "mode";
    if (below(3) > 0) {
      Acl acl;
      acl.owner(below(8));
      for (uid_t uid = 3000; uid < 3003; ++uid) {
        if (below(2) == 0) acl.user(uid, below(8));
      }
      acl.group(below(8));
      for (gid_t gid = 4000; gid < 4003; ++gid) {
        if (below(2) == 0) acl.group(gid, below(8));
      }
      acl.mask(below(8)).others(below(8));
      ASSERT_TRUE(acl.set_on(path));
      shown = "ACL";
    }
    Credentials user{.uid = 3000 + below(3), .gid = 4000 + below(3)};
    for (gid_t gid = 4000; gid < 4003; ++gid) {
      if (below(2) == 0) user.groups.push_back(gid);
    }
    const UniqueFd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat info {};
    ASSERT_EQ(::fstat(fd.get(), &info), 0);
    const bool expected = kernel_allows(user, path);
    allowed += expected ? 1 : 0;
    EXPECT_EQ(may_by_modes(user, kMayRead, fd.get(), info), expected)
        << "try " << i << ": " << user.text() << ", " << shown << " of uid " << info.st_uid
        << ", gid " << info.st_gid << ", mode " << std::oct << info.st_mode;
  }
  EXPECT_GT(allowed, kTries / 8);
  EXPECT_LT(allowed, kTries - kTries / 8);
}

}  // namespace
}  // namespace spdld::source
