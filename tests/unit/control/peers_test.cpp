// SPDX-License-Identifier: Apache-2.0
#include "control/peers.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "posix/unique_fd.h"

namespace spdld::control {
namespace {

std::array<UniqueFd, 2> socket_pair() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::string name_of(const UniqueFd& fd) { return "fd:" + std::to_string(fd.get()); }

TEST(Peers, KnowsWhoOpenedAConnection) {
  Peers peers(8, 8);
  const auto pair = socket_pair();
  const auto admitted = peers.admit(pair[0].get());
  ASSERT_TRUE(admitted) << admitted.error().message();
  const auto found = peers.find(name_of(pair[0]));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->uid, ::geteuid());
  EXPECT_EQ(found->pid, ::getpid());
}

TEST(Peers, KnowsNobodyElse) {
  Peers peers(8, 8);
  const auto pair = socket_pair();
  ASSERT_TRUE(peers.admit(pair[0].get()));
  EXPECT_FALSE(peers.find(name_of(pair[1])));
  const std::string number = std::to_string(pair[0].get());
  for (const std::string& peer : {std::string(), std::string("fd:"), "fd:" + number + " ",
                                  "fd:+" + number, "ipv4:127.0.0.1:" + number, number,
                                  std::string("fd:99999999999999999999"), std::string("unix:")}) {
    EXPECT_FALSE(peers.find(peer)) << "'" << peer << "'";
  }
}

TEST(Peers, ForgetsClosedConnections) {
  Peers peers(8, 8);
  {
    const auto pair = socket_pair();
    ASSERT_TRUE(peers.admit(pair[0].get()));
    EXPECT_EQ(peers.open(), 1u);
  }
  EXPECT_EQ(peers.open(), 0u);
}

TEST(Peers, TellsAConnectionFromALaterOneOfTheSameNumber) {
  Peers peers(8, 1);
  auto first = socket_pair();
  const int number = first[0].get();
  ASSERT_TRUE(peers.admit(number));
  first[0].reset();
  auto second = socket_pair();
  ASSERT_EQ(::dup2(second[0].get(), number), number);
  const UniqueFd reused(number);
  EXPECT_EQ(peers.open(), 0u);
  EXPECT_TRUE(peers.admit(number)) << "the entry of the closed one still counts";
  EXPECT_EQ(peers.open(), 1u);
}

TEST(Peers, RefusesAUsersConnectionsBeyondTheLimit) {
  Peers peers(8, 2);
  const auto one = socket_pair();
  const auto two = socket_pair();
  const auto three = socket_pair();
  ASSERT_TRUE(peers.admit(one[0].get()));
  ASSERT_TRUE(peers.admit(two[0].get()));
  const auto refused = peers.admit(three[0].get());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_NE(refused.error().message().find("at most 8 and 2"), std::string::npos)
      << refused.error().message();
  EXPECT_FALSE(peers.find(name_of(three[0])));
}

TEST(Peers, LetsTheDaemonsOwnUserInWhenOthersHaveTakenAllPlaces) {
  Peers peers(0, 1);
  const auto pair = socket_pair();
  EXPECT_TRUE(peers.admit(pair[0].get()));
}

TEST(Peers, RefusesWhatIsNoUnixSocket) {
  Peers peers(8, 8);
  const UniqueFd tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(tcp);
  EXPECT_FALSE(peers.admit(tcp.get()));
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reading(ends[0]);
  const UniqueFd writing(ends[1]);
  EXPECT_FALSE(peers.admit(reading.get()));
  EXPECT_FALSE(peers.admit(-1));
  EXPECT_EQ(peers.open(), 0u);
}

}  // namespace
}  // namespace spdld::control
