// SPDX-License-Identifier: Apache-2.0
#include "delivery/data_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/unit/delivery/data_server_fixture.h"
#include "tests/unit/delivery/raw_client.h"

namespace spdld::delivery {
namespace {

using test::bytes_of;
using test::RawClient;
using ::testing::ElementsAre;

TEST_F(DataServerTest, SeesAKilledProcessThoughItsChildKeepsTheSocketOpen) {
  start(pidfds_);
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  const pid_t consumer = ::fork();
  if (consumer == 0) {
    RawClient client(path_);
    client.attach();
    const pid_t child = ::fork();  // as a DataLoader worker would be; it keeps the socket open
    if (child == 0) {
      for (;;) ::pause();
    }
    (void)!::write(pipe_ends[1], &child, sizeof child);
    for (;;) ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(pipe_ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  service_.events(1);
  ::kill(consumer, SIGKILL);
  EXPECT_THAT(service_.events(3), ElementsAre("attach", "closed: exit", "exited"));
  EXPECT_EQ(::kill(child, 0), 0) << "the child lives, and it did not matter";
  ::kill(child, SIGKILL);
  ::waitpid(consumer, nullptr, 0);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST_F(DataServerTest, TellsOfTheExitAfterTheHangUpOfALiveProcess) {
  start(pidfds_);
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  const pid_t consumer = ::fork();
  if (consumer == 0) {
    RawClient client(path_);
    client.attach();
    client.expect<wire::ArenaOpenFrame>(wire::FrameType::kArenaOpen);
    client.hang_up();
    char byte = 0;
    (void)!::read(pipe_ends[0], &byte, 1);
    ::_exit(0);
  }
  lend();
  EXPECT_THAT(service_.events(2), ElementsAre("attach", "closed: hang-up"));
  EXPECT_EQ(server_->stats().watched_processes, 1u);
  (void)!::write(pipe_ends[1], "x", 1);
  EXPECT_EQ(service_.events(3).back(), "exited");
  ::waitpid(consumer, nullptr, 0);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST_F(DataServerTest, TakesTheHangUpOfAConsumerThatDetachedForItsLastWord) {
  test::FakeLiveness alive;
  start(alive);
  RawClient client(path_);
  client.attach();
  lend();
  client.send(bytes_of(wire::DetachFrame{}, wire::FrameType::kDetach));
  client.hang_up();
  EXPECT_THAT(service_.events(4), ElementsAre("attach", "detach", "closed: hang-up", "exited"));
  EXPECT_EQ(server_->stats().watched_processes, 0u);
  server_->stop();
}

TEST_F(DataServerTest, ForgetsAtOnceWhomItRefusedBeforeItLentAnything) {
  test::FakeLiveness alive;
  start(alive);
  RawClient client(path_);
  client.attach();
  service_.connection()->fail(Status(Code::kNotFound, "there is no pipeline 'p'"));
  EXPECT_EQ(client.last_words(), "there is no pipeline 'p'");
  EXPECT_THAT(service_.events(3), ElementsAre("attach", "closed: server", "exited"));
  EXPECT_EQ(server_->stats().watched_processes, 0u);
  server_->stop();
}

TEST_F(DataServerTest, TakesTheHangUpOfWhoDetachesWhenToldThatItIsOverForItsLastWord) {
  for (const bool evicted : {false, true}) {
    test::FakeLiveness alive;
    start(alive);
    RawClient client(path_);
    client.attach();
    const std::size_t before = evicted ? 3 : 0;
    const ConnectionPtr connection = service_.connection(evicted ? 1 : 0);
    const ArenaShape shape{.kind = ArenaKind::kMemfd, .slot_bytes = 4096, .slot_count = 1};
    const auto arena = Arena::create(shape, 1, budget_);
    ASSERT_TRUE(connection->send_arena_open(**arena));
    client.expect<wire::ArenaOpenFrame>(wire::FrameType::kArenaOpen);
    if (evicted) {
      connection->bye(wire::ByeReason::kEvicted, "the node is drained");
      client.expect<wire::ByeFrame>(wire::FrameType::kBye);
    } else {
      connection->fail(Status(Code::kInternal, "the run failed"));
      EXPECT_EQ(client.last_words(), "the run failed");
    }
    EXPECT_EQ(service_.events(before + 2).back(), "closed: server") << "its shard is free at once";
    wire::ReleaseFrame release{};
    client.send(bytes_of(release, wire::FrameType::kRelease));  // too late to matter
    client.send(bytes_of(wire::DetachFrame{}, wire::FrameType::kDetach));
    client.hang_up();
    EXPECT_EQ(service_.events(before + 3).back(), "exited") << "though its process lives";
    EXPECT_EQ(server_->stats().watched_processes, 0u);
    server_->stop();
  }
}

TEST_F(DataServerTest, TakesNobodysHangUpForItsLastWordWithoutADetachOrAfterGarbage) {
  test::FakeLiveness alive;
  start(alive);
  RawClient silent(path_);
  silent.attach();
  lend();
  silent.expect<wire::ArenaOpenFrame>(wire::FrameType::kArenaOpen);
  service_.connection()->fail(Status(Code::kInternal, "the run failed"));
  silent.last_words();
  silent.send(test::Bytes(8));  // garbage counts for nothing
  silent.hang_up();

  RawClient broken(path_);
  broken.attach();
  const ConnectionPtr connection = service_.connection(1);
  const ArenaShape shape{.kind = ArenaKind::kMemfd, .slot_bytes = 4096, .slot_count = 1};
  const auto arena = Arena::create(shape, 2, budget_);
  ASSERT_TRUE(connection->send_arena_open(**arena));
  broken.expect<wire::ArenaOpenFrame>(wire::FrameType::kArenaOpen);
  broken.send(test::Bytes(3));
  broken.last_words();
  broken.send(bytes_of(wire::DetachFrame{}, wire::FrameType::kDetach));
  broken.hang_up();
  EXPECT_THAT(service_.events(4),
              ElementsAre("attach", "closed: server", "attach", "closed: protocol error"));

  RawClient third(path_);  // by now the dispatcher has heard both
  third.attach();
  EXPECT_EQ(service_.events(5).back(), "attach");
  EXPECT_EQ(server_->stats().watched_processes, 2u);
  alive.end_process(0);
  EXPECT_EQ(service_.events(6).back(), "exited");
  alive.end_process(1);
  EXPECT_EQ(service_.events(7).back(), "exited");
  server_->stop();
}

TEST_F(DataServerTest, HearsADetachThatCrossesABatchOnItsWay) {
  test::FakeLiveness alive;
  start(alive);
  RawClient client(path_);
  client.attach();
  const ConnectionPtr connection = service_.connection();
  lend();
  // The dispatcher is kept busy until the other end is gone and a batch has failed to reach it.
  service_.hold();
  wire::QueryFrame query{};
  query.kind = wire::QueryKind::kStats;
  client.send(bytes_of(query, wire::FrameType::kQuery));
  client.send(bytes_of(wire::DetachFrame{}, wire::FrameType::kDetach));
  client.hang_up();
  service_.await_query();
  EXPECT_FALSE(connection->send_batch(batch_of_step(1)));
  service_.go_on();
  EXPECT_THAT(service_.events(5),
              ElementsAre("attach", "query #0", "detach", "closed: hang-up", "exited"));
  server_->stop();
}

TEST_F(DataServerTest, TakesAHangUpForTheExitOfAProcessItCannotSee) {
  test::FakeLiveness blind(/*can_tell=*/false);
  start(blind);
  RawClient client(path_);
  client.attach();
  service_.events(1);
  client.hang_up();
  EXPECT_THAT(service_.events(3), ElementsAre("attach", "closed: hang-up", "exited"));
  server_->stop();
}

TEST_F(DataServerTest, WaitsForTheHangUpOfAnUnseenProcessThatItDisconnected) {
  test::FakeLiveness blind(/*can_tell=*/false);
  start(blind);
  RawClient client(path_);
  client.attach();
  lend();
  client.expect<wire::ArenaOpenFrame>(wire::FrameType::kArenaOpen);
  service_.connection()->fail(Status(Code::kInternal, "the run failed"));
  EXPECT_EQ(client.last_words(), "the run failed");
  EXPECT_THAT(service_.events(2), ElementsAre("attach", "closed: server"));
  client.hang_up();
  EXPECT_EQ(service_.events(3).back(), "exited");
  server_->stop();
}

}  // namespace
}  // namespace spdld::delivery
