// SPDX-License-Identifier: Apache-2.0
#include "base/users/trusted_users.h"

#include <gtest/gtest.h>

namespace spdld {
namespace {

constexpr uid_t kNamed = 100'001;
constexpr uid_t kNobody = 100'002;

TEST(TrustedUsersTest, TrustsRootTheDaemonsUserAndAdmins) {
  const TrustedUsers trusted({kNamed});
  for (const uid_t uid : {uid_t{0}, ::geteuid(), kNamed, Credentials::kDaemon})
    EXPECT_TRUE(trusted.contains(uid)) << uid;
  EXPECT_FALSE(trusted.contains(kNobody));
}

TEST(TrustedUsersTest, OnlyNamedUsersAndTheDaemonsOwnAreAdmins) {
  const TrustedUsers trusted({kNamed});
  for (const uid_t uid : {::geteuid(), kNamed, Credentials::kDaemon})
    EXPECT_TRUE(trusted.is_admin(uid)) << uid;
  EXPECT_FALSE(trusted.is_admin(kNobody));
  EXPECT_EQ(trusted.is_admin(0), ::geteuid() == 0);
}

TEST(TrustedUsersTest, AnUntrustedRootIsNobodyAlsoWhereTheDaemonRunsAsRoot) {
  const TrustedUsers trusted({kNamed}, false);
  EXPECT_FALSE(trusted.contains(0));
  EXPECT_FALSE(trusted.is_admin(0));
  for (const uid_t uid : {kNamed, Credentials::kDaemon}) {
    EXPECT_TRUE(trusted.contains(uid)) << uid;
    EXPECT_TRUE(trusted.is_admin(uid)) << uid;
  }
  EXPECT_EQ(trusted.is_admin(::geteuid()), ::geteuid() != 0);
}

TEST(TrustedUsersTest, AnUntrustedRootThatIsNamedIsAnAdmin) {
  const TrustedUsers trusted({0}, false);
  EXPECT_TRUE(trusted.contains(0));
  EXPECT_TRUE(trusted.is_admin(0));
}

TEST(TrustedUsersTest, ARefusalSaysThatRootIsNotTrusted) {
  EXPECT_EQ(TrustedUsers({kNamed}).who(0), "uid 0");
  EXPECT_EQ(TrustedUsers({kNamed}, false).who(0), "uid 0 (access.trust_root is false)");
  EXPECT_EQ(TrustedUsers({kNamed}, false).who(kNobody), "uid 100002");
}

}  // namespace
}  // namespace spdld
