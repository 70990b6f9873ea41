// SPDX-License-Identifier: Apache-2.0
#include "delivery/peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <string>

#include "base/users/credentials.h"
#include "tests/support/scratch_dir.h"

namespace spdld::delivery {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Peer, IsWhoConnected) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const UniqueFd first(ends[0]);
  const UniqueFd second(ends[1]);
  const auto peer = peer_of(first.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->uid, ::getuid());
  EXPECT_EQ(peer->pid, ::getpid());
}

TEST(Peer, OfNoSocketIsAnError) { EXPECT_FALSE(peer_of(-1)); }

TEST(RuntimeLock, KeepsASecondDaemonOutAndNamesTheFirst) {
  const test::ScratchDir dir;
  const std::string runtime = dir.path() + "/run";
  {
    const auto first = RuntimeLock::take(runtime);
    ASSERT_TRUE(first) << first.error().message();
    const auto second = RuntimeLock::take(runtime);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
    EXPECT_THAT(second.error().message(),
                AllOf(HasSubstr("pid " + std::to_string(::getpid())), HasSubstr(runtime)));
  }
  EXPECT_TRUE(RuntimeLock::take(runtime)) << "it is free again";
}

TEST(RuntimeLock, MakesTheDirectoryForItsUserAlone) {
  const test::ScratchDir dir;
  const std::string runtime = dir.path() + "/run";
  ASSERT_TRUE(RuntimeLock::take(runtime));
  struct stat found {};
  ASSERT_EQ(::stat(runtime.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
}

TEST(RuntimeLock, TellsOfAnotherUsersLock) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has files of two users";
  test::ScratchDir dir;
  const std::string runtime = dir.path() + "/run";
  ASSERT_TRUE(RuntimeLock::take(runtime)) << "which leaves its file";
  ASSERT_EQ(::chmod(dir.path().c_str(), 0755), 0);
  ASSERT_EQ(::chown(runtime.c_str(), 65534, 0), 0);
  ASSERT_EQ(::seteuid(65534), 0);
  const auto taken = RuntimeLock::take(runtime);
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_FALSE(taken);
  EXPECT_THAT(taken.error().message(),
              AllOf(HasSubstr(runtime + "/lock: Permission denied"),
                    HasSubstr("a daemon that uid 0 has started serves there, or has left this")));
}

TEST(RuntimeLock, RefusesADirectoryThatOthersCanWriteTo) {
  const test::ScratchDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0777), 0);
  const auto open_to_all = RuntimeLock::take(dir.path());
  ASSERT_FALSE(open_to_all);
  EXPECT_EQ(open_to_all.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(open_to_all.error().message(),
              AllOf(HasSubstr("everybody"), HasSubstr("chmod o-w " + dir.path())));
  // A sticky bit keeps nobody from being the first to take a name.
  ASSERT_EQ(::chmod(dir.path().c_str(), 01777), 0);
  EXPECT_FALSE(RuntimeLock::take(dir.path()));
  ASSERT_EQ(::chmod(dir.path().c_str(), 0775), 0);
  EXPECT_TRUE(RuntimeLock::take(dir.path())) << "it is the group of this process";
}

TEST(RuntimeLock, RefusesADirectoryOfAnotherUserOrGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give a directory away";
  const test::ScratchDir dir;
  ASSERT_EQ(::chown(dir.path().c_str(), 0, 4711), 0);
  ASSERT_EQ(::chmod(dir.path().c_str(), 0755), 0);
  EXPECT_TRUE(RuntimeLock::take(dir.path()));
  ASSERT_EQ(::chmod(dir.path().c_str(), 0775), 0);
  EXPECT_THAT(RuntimeLock::take(dir.path()).error().message(), HasSubstr("gid 4711"));
  ASSERT_EQ(::chown(dir.path().c_str(), 4711, 0), 0);
  ASSERT_EQ(::chmod(dir.path().c_str(), 0755), 0);
  EXPECT_THAT(RuntimeLock::take(dir.path()).error().message(), HasSubstr("belongs to uid 4711"));
}

TEST(RuntimeLock, SaysWhichDirectoryItCannotMake) {
  const auto lock = RuntimeLock::take("/proc/no/such/place");
  ASSERT_FALSE(lock);
  EXPECT_THAT(lock.error().message(), HasSubstr("/proc/no/such/place"));
}

class ListenTest : public ::testing::Test {
 protected:
  test::ScratchDir dir_;
  RuntimeLock lock_ = std::move(*RuntimeLock::take(dir_.path()));
};

TEST_F(ListenTest, ReplacesWhatACrashedDaemonLeft) {
  const std::string path = dir_.path() + "/data.sock";
  ASSERT_TRUE(listen_unix(lock_, path, SOCK_SEQPACKET, 0666));  // closed at once: stale now
  const auto again = listen_unix(lock_, path, SOCK_SEQPACKET, 0660);
  ASSERT_TRUE(again) << again.error().message();
  struct stat found {};
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0660u);
  EXPECT_EQ(accept_connection(again->get()).error().code(), Code::kUnavailable) << "nobody waits";
}

TEST_F(ListenTest, LeavesAloneWhatIsNoSocket) {
  const std::string path = dir_.write("data.sock", "precious");
  const auto listener = listen_unix(lock_, path, SOCK_SEQPACKET, 0666);
  ASSERT_FALSE(listener);
  EXPECT_THAT(listener.error().message(), HasSubstr("is no socket"));
  struct stat found {};
  EXPECT_EQ(::stat(path.c_str(), &found), 0);
}

TEST_F(ListenTest, SaysThatThePathIsTooLong) {
  const std::string path = dir_.path() + "/" + std::string(120, 'x');
  const auto listener = listen_unix(lock_, path, SOCK_STREAM, 0666);
  ASSERT_FALSE(listener);
  EXPECT_THAT(listener.error().message(),
              AllOf(HasSubstr("the kernel allows 107"), HasSubstr("shorter runtime_dir")));
}

}  // namespace
}  // namespace spdld::delivery
