// SPDX-License-Identifier: Apache-2.0
#include "base/users/credentials.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "posix/unique_fd.h"

namespace spdld {
namespace {

TEST(CredentialsTest, MatchTheirOwnUserAndGroups) {
  const Credentials user{.uid = 1000, .gid = 1001, .groups = {27, 100}};
  EXPECT_TRUE(user.is_user(1000));
  EXPECT_FALSE(user.is_user(1001));
  EXPECT_TRUE(user.in_group(1001));
  EXPECT_TRUE(user.in_group(27));
  EXPECT_TRUE(user.in_group(100));
  EXPECT_FALSE(user.in_group(1000));
}

TEST(CredentialsTest, AnUnmappedIdMatchesNothing) {
  const Credentials user{.uid = Credentials::kUnmapped,
                         .gid = Credentials::kUnmapped,
                         .groups = {100, Credentials::kUnmapped}};
  EXPECT_FALSE(user.is_user(Credentials::kUnmapped));
  EXPECT_FALSE(user.in_group(Credentials::kUnmapped));
  EXPECT_TRUE(user.in_group(100));
}

TEST(CredentialsTest, SayWhoTheyAre) {
  EXPECT_EQ((Credentials{.uid = 7, .gid = 8}.text()), "uid 7 (gid 8)");
  EXPECT_EQ((Credentials{.uid = 7, .gid = 8, .groups = {9}}.text()), "uid 7 (gid 8, group 9)");
  EXPECT_EQ((Credentials{.uid = 7, .gid = 8, .groups = {1, 2, 3}}.text()),
            "uid 7 (gid 8, groups 1, 2 and 3)");
}

TEST(CredentialsTest, APeerInThisProcessHasItsOwn) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
  const UniqueFd here(sockets[0]);
  const UniqueFd there(sockets[1]);
  const auto peer = peer_of(here.get());
  ASSERT_TRUE(peer) << peer.error().message();
  EXPECT_EQ(static_cast<const Credentials&>(*peer), Credentials::own());
  EXPECT_EQ(peer->pid, getpid());
}

TEST(CredentialsTest, APeerOfManyGroupsHasThemAllInOrder) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may take groups";
  std::vector<gid_t> groups;
  for (gid_t group = 300; group > 0; --group) groups.push_back(5000 + group);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int sockets[2];
    bool right = setgroups(groups.size(), groups.data()) == 0 && setresgid(4001, 4001, 4001) == 0 &&
                 setresuid(4000, 4000, 4000) == 0 &&
                 socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0;
    if (right) {
      const auto peer = peer_of(sockets[0]);
      std::sort(groups.begin(), groups.end());
      const Credentials expected{.uid = 4000, .gid = 4001, .groups = groups};
      right = peer && static_cast<const Credentials&>(*peer) == expected;
    }
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(CredentialsTest, WhatIsNoSocketHasNoPeer) { EXPECT_FALSE(peer_of(-1)); }

TEST(CredentialsTest, TheUserDatabaseKnowsRoot) {
  const Credentials root = Credentials::of_user(0);
  EXPECT_EQ(root.uid, 0U);
  EXPECT_TRUE(root.in_group(0));
}

TEST(CredentialsTest, AUserWhomNobodyKnowsHasNoGroup) {
  const Credentials unknown = Credentials::of_user(2'123'456'789);
  EXPECT_EQ(unknown.uid, 2'123'456'789U);
  EXPECT_EQ(unknown.gid, Credentials::kUnmapped);
  EXPECT_TRUE(unknown.groups.empty());
}

}  // namespace
}  // namespace spdld
