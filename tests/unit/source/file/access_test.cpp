// SPDX-License-Identifier: Apache-2.0
#include "source/file/access.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/unit/source/file/acl.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kReadFile = O_RDONLY | O_CLOEXEC;
constexpr int kListDirectory = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

class AccessTest : public ::testing::Test {
 protected:
  AccessTest() {
    EXPECT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
    stranger_ = {.uid = geteuid() + 4711, .gid = getegid() + 4711};
  }

  std::string read(const Access& access, const std::string& path) {
    auto opened = access.open(path, kReadFile, "cannot read");
    if (!opened) return std::string(code_name(opened.error().code()));
    char text[64];
    const ssize_t size = ::read(opened->fd.get(), text, sizeof text);
    return std::string(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  }
  std::string why_not(const Access& access, const std::string& path, int flags = kReadFile) {
    const auto opened = access.open(path, flags, "cannot read");
    EXPECT_FALSE(opened) << path;
    return opened ? "it was opened" : opened.error().message();
  }
  void mode(const std::string& below, mode_t bits) const {
    ASSERT_EQ(::chmod(dir_.path(below).c_str(), bits), 0);
  }
  AccessRules below(const std::string& root) const { return {.roots = {{dir_.path(root)}}}; }

  const Credentials self_ = Credentials::own();
  Credentials stranger_;
  TempDir dir_;
};

TEST_F(AccessTest, OpensWhatLiesBelowARoot) {
  dir_.file("in/a", "text");
  const Access access(below("in"), self_);
  EXPECT_EQ(read(access, dir_.path("in/a")), "text");
  EXPECT_EQ(read(access, dir_.path("in/../in/./a")), "text");
  EXPECT_EQ(read(access, dir_.path("in//a")), "text");
}

TEST_F(AccessTest, OpensNothingOutsideOfTheRoots) {
  dir_.file("in/a");
  dir_.file("out/b");
  dir_.file("inside/c");
  dir_.link(dir_.path("out"), "in/way");
  dir_.link("../out/b", "in/file");
  const Access access(below("in"), self_);
  for (const char* path : {"out/b", "in/../out/b", "in/way/b", "in/file", "inside/c"}) {
    EXPECT_THAT(why_not(access, dir_.path(path)), HasSubstr("access.roots")) << path;
  }
  EXPECT_THAT(why_not(access, dir_.path("in/way"), kListDirectory),
              AllOf(HasSubstr(dir_.path("out")), HasSubstr("access.roots")));
}

TEST_F(AccessTest, OpensARootThatIsReachedThroughLinks) {
  dir_.file("real/a", "text");
  dir_.link("real", "second");
  dir_.link(dir_.path("second"), "first");
  EXPECT_EQ(read(Access(below("first"), self_), dir_.path("first/a")), "text");
  EXPECT_EQ(read(Access(below("real"), self_), dir_.path("second/a")), "text");
}

TEST_F(AccessTest, ReadsRegularFilesAlone) {
  dir_.directory("d");
  ASSERT_EQ(::mkfifo(dir_.path("pipe").c_str(), 0666), 0);
  for (const Credentials& reader : {self_, stranger_}) {
    const Access access({}, reader);
    EXPECT_THAT(why_not(access, dir_.path("pipe")), HasSubstr("no regular file"));
    EXPECT_THAT(why_not(access, dir_.path("d")), HasSubstr("no regular file"));
    EXPECT_THAT(why_not(access, "/dev/null"), HasSubstr("no regular file"));
  }
}

TEST_F(AccessTest, GivesUpOnLinksThatGoRound) {
  dir_.link("a", "b");
  dir_.link("b", "a");
  const Access access({}, self_);
  Access::Opened opened;
  EXPECT_EQ(access.open(AT_FDCWD, dir_.path("a"), Access::Links::kFollow, kReadFile, opened).err,
            ELOOP);
}

TEST_F(AccessTest, FollowsNoLinkWhereNoneIsWanted) {
  dir_.file("d/a");
  dir_.link("d", "way");
  dir_.link("a", "d/link");
  const UniqueFd root(::open(dir_.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const Credentials& reader : {self_, stranger_}) {
    const Access access({}, reader);
    Access::Opened opened;
    for (const char* path : {"way/a", "d/link"}) {
      EXPECT_EQ(access.open(root.get(), path, Access::Links::kRefuse, kReadFile, opened).err,
                ELOOP);
    }
    EXPECT_EQ(access.open(root.get(), "d/a", Access::Links::kRefuse, kReadFile, opened).err, 0);
  }
}

TEST_F(AccessTest, ReadsNothingOfTheKernelsWhateverTheRootsAllow) {
  dir_.file("a", "text");
  const UniqueFd open_file(::open(dir_.path("a").c_str(), kReadFile));
  const std::string magic = "/proc/self/fd/" + std::to_string(open_file.get());
  const UniqueFd memory(static_cast<int>(::memfd_create("secret", MFD_CLOEXEC)));
  const std::string hidden = "/proc/self/fd/" + std::to_string(memory.get());
  dir_.link(hidden, "link");
  for (const Credentials& reader : {self_, stranger_}) {
    const Access access({}, reader);
    for (const std::string& path :
         {std::string("/proc/self/environ"), std::string("/proc/version"), hidden,
          dir_.path("link"), std::string("/sys/kernel/mm/transparent_hugepage/enabled")}) {
      EXPECT_FALSE(access.open(path, kReadFile, "cannot read")) << path;
    }
    for (const char* path : {"/proc", "/proc/self/fd", "/sys"}) {
      EXPECT_FALSE(access.open(path, kListDirectory, "cannot list")) << path;
    }
  }
}

TEST_F(AccessTest, ListsNoDeviceDirectory) {
  struct stat devices {};
  struct stat root {};
  ASSERT_EQ(::stat("/dev", &devices), 0);
  ASSERT_EQ(::stat("/", &root), 0);
  if (devices.st_dev == root.st_dev) GTEST_SKIP() << "/dev is no file system of its own";
  const Access access({}, self_);
  EXPECT_THAT(why_not(access, "/dev", kListDirectory), HasSubstr("devices"));
}

TEST_F(AccessTest, ReadsNothingInTheDaemonsOwnDirectories) {
  dir_.file("state/db", "secret");
  dir_.file("state/deep/er", "secret");
  dir_.directory("data");
  dir_.link("../state", "data/way");
  dir_.link(dir_.path("state/db"), "data/file");
  dir_.link(dir_.path("state"), "alias");
  // Named by another path than the one that is asked for.
  const Access access({.own_directories = {dir_.path("alias"), dir_.path("not-there")}}, self_);
  for (const char* path :
       {"state/db", "state/deep/er", "data/way/db", "data/file", "state/../state/db"}) {
    EXPECT_THAT(why_not(access, dir_.path(path)), HasSubstr("spdld's own")) << path;
  }
  EXPECT_THAT(why_not(access, dir_.path("state"), kListDirectory), HasSubstr("spdld's own"));
  EXPECT_THAT(why_not(access, dir_.path("state/deep"), kListDirectory), HasSubstr("spdld's own"));
  const UniqueFd data(::open(dir_.path("data").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Access::Opened opened;
  const Denial denial =
      access.open(data.get(), "way/db", Access::Links::kFollow, kReadFile, opened);
  EXPECT_TRUE(denial.reserved);
}

TEST_F(AccessTest, ADirectoryThatIsReplacedByALinkLeadsNotEvenTheDaemonsUserToItsOwnOnes) {
  dir_.file("data/state/db", "secret");
  dir_.file("data/d/db", "text");
  const Access access({.own_directories = {dir_.path("data/state")}}, self_);
  const UniqueFd data(::open(dir_.path("data").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Access::Opened opened;
  EXPECT_EQ(access.open(data.get(), "d/db", Access::Links::kFollow, kReadFile, opened).err, 0);
  dir_.remove("data/d");
  dir_.link("state", "data/d");
  EXPECT_TRUE(access.open(data.get(), "d/db", Access::Links::kFollow, kReadFile, opened).reserved);
  EXPECT_EQ(access.open(data.get(), "d/db", Access::Links::kRefuse, kReadFile, opened).err, ELOOP);
}

TEST_F(AccessTest, AHardLinkOutOfTheStateIsRefusedByTheReadersRights) {
  dir_.file("state/db", "secret");
  mode("state/db", 0600);
  dir_.directory("data");
  ASSERT_EQ(::link(dir_.path("state/db").c_str(), dir_.path("data/mine").c_str()), 0);
  const Access access({.own_directories = {dir_.path("state")}}, stranger_);
  EXPECT_THAT(why_not(access, dir_.path("data/mine")),
              AllOf(HasSubstr("may not read"), Not(HasSubstr("secret"))));
}

TEST_F(AccessTest, AStrangerReadsWhatEverybodyMay) {
  dir_.file("d/a", "text");
  mode("d/a", 0644);
  EXPECT_EQ(read(Access({}, stranger_), dir_.path("d/a")), "text");
  mode("d/a", 0640);
  EXPECT_THAT(why_not(Access({}, stranger_), dir_.path("d/a")),
              AllOf(HasSubstr("uid " + std::to_string(stranger_.uid)), HasSubstr("may not read"),
                    HasSubstr("-rw-r-----")));
}

TEST_F(AccessTest, TheDaemonsOwnUserIsNotAskedForRights) {
  dir_.file("d/a", "text");
  mode("d/a", 0600);
  mode("d", 0700);
  EXPECT_EQ(read(Access({}, self_), dir_.path("d/a")), "text");
}

TEST_F(AccessTest, AGroupOfTheReadersCounts) {
  dir_.file("d/a", "text");
  mode("d/a", 0640);
  Credentials member = stranger_;
  member.groups = {getegid()};
  EXPECT_EQ(read(Access({}, member), dir_.path("d/a")), "text");
}

TEST_F(AccessTest, NobodyGoesThroughADirectoryThatIsClosedToThem) {
  dir_.file("closed/d/a", "text");
  dir_.link(dir_.path("closed/d/a"), "file");
  dir_.link("closed/d", "way");
  mode("closed", 0700);
  const Access access({}, stranger_);
  for (const char* path : {"closed/d/a", "file", "way/a", "closed/not-there"}) {
    EXPECT_THAT(why_not(access, dir_.path(path)),
                AllOf(HasSubstr("may not pass " + dir_.path("closed")), HasSubstr("drwx------")))
        << path;
  }
  struct stat info {};
  EXPECT_EQ(access.look(AT_FDCWD, dir_.path("file"), info).err, EACCES);
}

TEST_F(AccessTest, ADirectoryIsListedOnlyByWhoMayReadIt) {
  dir_.file("d/a", "text");
  mode("d", 0711);
  const Access access({}, stranger_);
  EXPECT_EQ(read(access, dir_.path("d/a")), "text");
  EXPECT_THAT(why_not(access, dir_.path("d"), kListDirectory), HasSubstr("may not read"));
  mode("d", 0744);
  EXPECT_FALSE(access.open(dir_.path("d"), kListDirectory, "cannot list"));
  mode("d", 0755);
  EXPECT_TRUE(access.open(dir_.path("d"), kListDirectory, "cannot list"));
}

TEST_F(AccessTest, AnAclCountsOnDirectoriesAndFiles) {
  dir_.file("d/a", "text");
  const unsigned all = 7;
  const auto allow = [&](unsigned allowed) {
    return Acl().owner(all).user(stranger_.uid, allowed).group(0).mask(all).others(0);
  };
  const auto deny = [&] {
    return Acl().owner(all).user(stranger_.uid, 0).group(5).mask(5).others(5);
  };
  if (!allow(5).set_on(dir_.path("d"))) GTEST_SKIP() << "no ACLs on this file system";
  ASSERT_TRUE(allow(4).set_on(dir_.path("d/a")));
  const Access access({}, stranger_);
  EXPECT_EQ(read(access, dir_.path("d/a")), "text");
  ASSERT_TRUE(deny().set_on(dir_.path("d/a")));
  EXPECT_THAT(why_not(access, dir_.path("d/a")), HasSubstr("may not read"));
  ASSERT_TRUE(allow(4).set_on(dir_.path("d/a")));
  ASSERT_TRUE(deny().set_on(dir_.path("d")));
  EXPECT_THAT(why_not(access, dir_.path("d/a")), HasSubstr("may not pass"));
}

TEST_F(AccessTest, MembersReadEverythingBelowARootThatIsOpenedToTheirGroup) {
  dir_.file("closed/data/d/a", "text");
  dir_.file("closed/other", "secret");
  dir_.link("../a", "closed/data/d/sub/link");
  mode("closed/data/d/a", 0600);
  mode("closed/data/d", 0700);
  mode("closed/data", 0700);
  mode("closed/other", 0644);
  mode("closed", 0700);
  const AccessRules rules{.roots = {{"/"}, {.path = dir_.path("closed/data"), .groups = {123456}}}};
  Credentials member = stranger_;
  member.groups = {123456};
  const Access access(rules, member);
  EXPECT_EQ(read(access, dir_.path("closed/data/d/a")), "text");
  EXPECT_EQ(read(access, dir_.path("closed/data/d/sub/link")), "text");
  EXPECT_TRUE(access.open(dir_.path("closed/data"), kListDirectory, "cannot list"));
  // The way there is open, and nothing else.
  EXPECT_FALSE(access.open(dir_.path("closed/other"), kReadFile, "cannot read"));
  EXPECT_FALSE(access.open(dir_.path("closed"), kListDirectory, "cannot list"));
  EXPECT_FALSE(Access(rules, stranger_).open(dir_.path("closed/data/d/a"), kReadFile, "no"));
}

TEST_F(AccessTest, AWidenedRootOpensNoOtherPath) {
  dir_.file("data/a");
  dir_.file("private/b", "secret");
  mode("private/b", 0600);
  dir_.link("../private/b", "data/link");
  Credentials member = stranger_;
  member.groups = {123456};
  const AccessRules rules{.roots = {{"/"}, {.path = dir_.path("data"), .groups = {123456}}}};
  EXPECT_THAT(why_not(Access(rules, member), dir_.path("data/link")), HasSubstr("may not read"));
}

TEST_F(AccessTest, TheDaemonAndATrustedRootReadWhateverItCan) {
  dir_.file("closed", "text");
  mode("closed", 0400);
  for (const uid_t uid : {Credentials::kDaemon, uid_t{0}}) {
    const Access access({}, {.uid = uid});
    EXPECT_FALSE(access.is_checked());
    EXPECT_EQ(read(access, dir_.path("closed")), "text");
  }
  EXPECT_EQ(read(Access({.trust_root = false}, Access::trusted()), dir_.path("closed")), "text");
}

TEST_F(AccessTest, AnUntrustedRootOwnsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has files of uid 0";
  dir_.file("of-uid", "secret");
  dir_.file("of-gid", "secret");
  dir_.file("open", "text");
  dir_.file("d/a", "secret");
  mode("of-uid", 0600);
  mode("of-gid", 0640);
  mode("open", 0604);
  mode("d", 0750);
  const Credentials root{.uid = 0, .gid = 0, .groups = {0, 123456}};
  const Access access({.trust_root = false}, root);
  EXPECT_TRUE(access.is_checked());
  EXPECT_EQ(read(access, dir_.path("open")), "text");
  for (const char* const path : {"of-uid", "of-gid", "d/a"})
    EXPECT_THAT(why_not(access, dir_.path(path)),
                AllOf(HasSubstr("uid 0 (gid 0"), HasSubstr("access.trust_root is false")));
  EXPECT_THAT(why_not(access, dir_.path("d"), kListDirectory), HasSubstr("access.trust_root"));
}

// `docker run --user 1000` leaves the group at 0.
TEST_F(AccessTest, WhereRootIsNotTrustedGroup0GivesNobodyRights) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has files of gid 0";
  dir_.file("of-gid", "secret");
  mode("of-gid", 0640);
  const Credentials member{.uid = 31002, .gid = 0, .groups = {0}};
  EXPECT_EQ(read(Access({}, member), dir_.path("of-gid")), "secret");
  EXPECT_THAT(why_not(Access({.trust_root = false}, member), dir_.path("of-gid")),
              HasSubstr("may not read"));
}

TEST_F(AccessTest, AnUntrustedRootHasTheGroupsThatItWasGiven) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may give a file to a group";
  dir_.file("shared", "text");
  ASSERT_EQ(::chown(dir_.path("shared").c_str(), 4711, 123456), 0);
  mode("shared", 0640);
  const AccessRules rules{.trust_root = false};
  const Credentials member{.uid = 0, .gid = 0, .groups = {0, 123456}};
  EXPECT_EQ(read(Access(rules, member), dir_.path("shared")), "text");
  EXPECT_THAT(why_not(Access(rules, {.uid = 0, .gid = 0, .groups = {0}}), dir_.path("shared")),
              HasSubstr("may not read"));
  mode("shared", 0600);
  const AccessRules widened{.roots = {{"/"}, {.path = dir_.path(), .groups = {123456}}},
                            .trust_root = false};
  EXPECT_EQ(read(Access(widened, member), dir_.path("shared")), "text");
}

TEST_F(AccessTest, ReadersThatAreTrustedDifferByUserAlone) {
  const Credentials root{.uid = 0, .gid = 0, .groups = {4}};
  EXPECT_EQ(AccessRules().normalized(root), Credentials{.uid = 0});
  EXPECT_EQ(AccessRules{.trust_root = false}.normalized(root), root);
  EXPECT_EQ(AccessRules().normalized(stranger_), stranger_);
}

// A thread that exchanges two paths for as long as it lives.
class Exchange {
 public:
  Exchange(std::string a, std::string b)
      : thread_([this, a = std::move(a), b = std::move(b)](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            if (::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), 2) == 0)
              exchanged_.fetch_add(1, std::memory_order_relaxed);
          }
        }) {}
  int count() const { return exchanged_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> exchanged_ = 0;
  std::jthread thread_;
};

// tests/long/rename-race.sh does it for longer, and through a daemon, too.
TEST_F(AccessTest, NothingExchangedOnTheWayIsRead) {
  dir_.file("in/x/f", "mine");
  dir_.file("out/f", "secret");
  dir_.link("../out", "in/way");
  dir_.file("in/y", "mine");
  dir_.link("../out/f", "in/link");
  dir_.file("in/closed/f", "secret");
  mode("in/closed", 0700);
  dir_.file("in/open/f", "mine");
  const UniqueFd root(::open(dir_.path("in").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const Access restricted(below("in"), self_);
  const Access stranger(below("in"), stranger_);
  const Exchange directories(dir_.path("in/x"), dir_.path("in/way"));
  const Exchange files(dir_.path("in/y"), dir_.path("in/link"));
  const Exchange closed(dir_.path("in/closed"), dir_.path("in/open"));
  const char* const asked = std::getenv("SPDLD_RACE_TRIES");  // NOLINT: no thread sets any
  const int tries = asked != nullptr ? std::atoi(asked) : 4000;
  int tried = 0;
  int opened_files = 0;
  const auto check = [&](const Access& access, const std::string& path, bool beneath) {
    ++tried;
    Access::Opened opened;
    const Denial denial =
        beneath ? access.open(root.get(), path, Access::Links::kFollow, kReadFile, opened)
                : access.open(AT_FDCWD, dir_.path("in/" + path), Access::Links::kFollow, kReadFile,
                              opened);
    if (denial.err != 0) return;
    ++opened_files;
    char text[16];
    const ssize_t size = ::read(opened.fd.get(), text, sizeof text);
    EXPECT_EQ(std::string(text, static_cast<std::size_t>(size)), "mine") << path;
  };
  while (tried < tries ||
         std::min({files.count(), directories.count(), closed.count()}) < tries / 100) {
    for (const bool beneath : {true, false}) {
      for (const char* path : {"x/f", "way/f", "y", "link"}) {
        check(restricted, path, beneath);
        check(stranger, path, beneath);
      }
      check(stranger, "open/f", beneath);
      check(stranger, "closed/f", beneath);
    }
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(opened_files, 0);
}

}  // namespace
}  // namespace spdld::source
