// SPDX-License-Identifier: Apache-2.0
#include "delivery/data_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "tests/unit/delivery/data_server_fixture.h"
#include "tests/unit/delivery/raw_client.h"

namespace spdld::delivery {
namespace {

using test::bytes_of;
using test::RawClient;
using ::testing::HasSubstr;

TEST_F(DataServerTest, EndsWhoeverSendsGarbageAndServesTheOthers) {
  start();
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    RawClient client(path_);
    if (i % 2 == 1) client.greet();
    test::Bytes frame(1 + random() % 600);
    for (std::byte& b : frame) b = static_cast<std::byte>(random());
    if (i % 3 == 0 && frame.size() >= 8) {
      const std::uint32_t type = 1 + random() % 8;
      std::memcpy(frame.data(), &type, 4);
      test::set_length(frame);
    }
    client.send(frame);
    const auto answer = client.receive();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->type(), wire::FrameType::kError);
    EXPECT_FALSE(client.receive());
  }
  EXPECT_EQ(server_->stats().protocol_errors, 200u);
  RawClient good(path_);
  good.attach();
  EXPECT_EQ(service_.events(1).front(), "attach");
}

TEST_F(DataServerTest, EndsWhoeverTalksOutOfTurn) {
  start();
  const auto ends = [&](bool attach_first, const test::Bytes& frame, const char* words) {
    RawClient client(path_);
    if (attach_first) {
      client.attach();
    } else {
      client.greet();
    }
    client.send(frame);
    EXPECT_THAT(client.last_words(), HasSubstr(words));
  };
  wire::ApplyFrame apply{};
  apply.at = wire::ApplyAt::kNow;
  ends(false, bytes_of(wire::ReleaseFrame{}, wire::FrameType::kRelease), "Release out of turn");
  ends(false, bytes_of(wire::SeekFrame{}, wire::FrameType::kSeek), "(before Attach)");
  ends(false, bytes_of(wire::HandedFrame{}, wire::FrameType::kHanded), "(before Attach)");
  ends(false, test::hello_bytes(1, 1), "Hello out of turn");
  ends(false, bytes_of(apply, wire::FrameType::kApply), "(before Attach)");
  ends(true, test::hello_bytes(1, 1), "Hello out of turn");
  ends(true, test::attach_bytes(test::attach_fixed(), {{wire::TextKey::kPipeline, "p"}}),
       "Attach out of turn");
  ends(true, test::Bytes(wire::kMaxFrameBytes + 1), "32768 are allowed");
  RawClient early(path_);
  early.send(test::attach_bytes(test::attach_fixed(), {{wire::TextKey::kPipeline, "p"}}));
  EXPECT_THAT(early.last_words(), HasSubstr("Attach out of turn"));
}

TEST_F(DataServerTest, DropsFileDescriptorsThatAConsumerSends) {
  start();
  RawClient client(path_);
  client.greet();
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  test::Bytes frame = test::attach_bytes(test::attach_fixed(), {{wire::TextKey::kPipeline, "p"}});
  iovec part{frame.data(), frame.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &pipe_ends[1], sizeof(int));
  ASSERT_GT(::sendmsg(client.fd(), &message, 0), 0);
  ::close(pipe_ends[1]);
  service_.events(1);
  char byte = 0;
  EXPECT_EQ(::read(pipe_ends[0], &byte, 1), 0) << "the daemon kept no writing end";
  ::close(pipe_ends[0]);
}

}  // namespace
}  // namespace spdld::delivery
