// SPDX-License-Identifier: Apache-2.0
#include "delivery/systemd.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "delivery/peer.h"
#include "tests/support/scratch_dir.h"

namespace spdld::delivery {
namespace {

// Runs `check` in a child that was started as systemd starts a daemon: this listener as fd 3.
template <typename Check>
int in_activated_child(int listener, const char* name, Check check) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (listener != 3) ::dup2(listener, 3);
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", "1", 1);
    ::setenv("LISTEN_FDNAMES", name, 1);
    ::_exit(check() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

class ActivatedSocketsTest : public ::testing::Test {
 protected:
  int listener(int type) {
    fd_ = std::move(*listen_unix(lock_, dir_.path() + "/s.sock", type, 0600));
    return fd_.get();
  }
  test::ScratchDir dir_;
  RuntimeLock lock_ = std::move(*RuntimeLock::take(dir_.path()));
  UniqueFd fd_;
};

TEST_F(ActivatedSocketsTest, AreFoundByName) {
  EXPECT_EQ(in_activated_child(listener(SOCK_SEQPACKET), "data",
                               [] {
                                 const auto sockets = activated_sockets();
                                 return sockets && sockets->size() == 1 &&
                                        (*sockets)[0].name == "data" &&
                                        (*sockets)[0].fd.get() == 3 &&
                                        std::getenv("LISTEN_FDS") == nullptr;
                               }),
            0);
}

TEST_F(ActivatedSocketsTest, MustBeOfTheRightType) {
  EXPECT_EQ(in_activated_child(listener(SOCK_STREAM), "data",
                               [] {
                                 const auto sockets = activated_sockets();
                                 return !sockets &&
                                        sockets.error().message().find("ListenSequentialPacket=") !=
                                            std::string::npos;
                               }),
            0);
}

TEST_F(ActivatedSocketsTest, MustHaveANameThatWeKnow) {
  EXPECT_EQ(in_activated_child(listener(SOCK_STREAM), "admin",
                               [] {
                                 const auto sockets = activated_sockets();
                                 return !sockets && sockets.error().message().find("'admin'") !=
                                                        std::string::npos;
                               }),
            0);
}

TEST(ActivatedSockets, AreNoneOutsideOfSystemd) {
  ::unsetenv("LISTEN_PID");
  ::unsetenv("LISTEN_FDS");
  const auto sockets = activated_sockets();
  ASSERT_TRUE(sockets);
  EXPECT_TRUE(sockets->empty());
}

TEST(NotifySystemd, SendsTheStateToItsSocketAndNothingElsewhere) {
  ::unsetenv("NOTIFY_SOCKET");
  notify_systemd("READY=1");
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/notify";
  const UniqueFd receiver(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(receiver.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  notify_systemd("READY=1\nSTATUS=4 consumers");
  ::unsetenv("NOTIFY_SOCKET");
  char text[128] = {};
  ASSERT_GT(::recv(receiver.get(), text, sizeof text - 1, 0), 0);
  EXPECT_STREQ(text, "READY=1\nSTATUS=4 consumers");
}

}  // namespace
}  // namespace spdld::delivery
