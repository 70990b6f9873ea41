// SPDX-License-Identifier: Apache-2.0
#include "delivery/data_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/unit/delivery/data_server_fixture.h"
#include "tests/unit/delivery/raw_client.h"

namespace spdld::delivery {
namespace {

using test::bytes_of;
using test::RawClient;
using ::testing::ElementsAre;

TEST_F(DataServerTest, TakesAConsumerThroughItsLife) {
  start();
  RawClient client(path_);
  client.attach();
  EXPECT_EQ(service_.request().pipeline, "p");
  const ConnectionPtr connection = service_.connection();
  EXPECT_EQ(connection->peer().uid, ::getuid());
  EXPECT_EQ(connection->client(), "raw 1.0");

  EXPECT_TRUE(connection->send_progress(3, 10, "indexing"));
  EXPECT_EQ(client.expect<wire::ProgressFrame>(wire::FrameType::kProgress).total, 10u);
  EXPECT_EQ(client.rest(), "indexing");
  EXPECT_TRUE(connection->send_attached({.session = 5,
                                         .in_run = {.run = 7, .branch = 2, .turn = 9},
                                         .order_digest = "d",
                                         .job = "j"}));
  const auto attached = client.expect<wire::AttachedFrame>(wire::FrameType::kAttached);
  EXPECT_EQ(std::tie(attached.session, attached.run, attached.branch, attached.turn),
            std::tuple(5u, 7u, 2u, 9u));
  EXPECT_TRUE(connection->send_batch(batch_of_step(9)));
  EXPECT_EQ(client.expect<wire::BatchFrame>(wire::FrameType::kBatch).step, 9u);

  wire::ReleaseFrame release{};
  wire::HandedFrame handed{};
  handed.turn = 10;
  client.send(bytes_of(handed, wire::FrameType::kHanded));
  release.lease = 10;
  client.send(bytes_of(release, wire::FrameType::kRelease));
  wire::SeekFrame seek{};
  seek.turn = 10;
  seek.epoch = 2;
  seek.seek = 1;
  client.send(bytes_of(seek, wire::FrameType::kSeek));
  wire::QueryFrame query{};
  query.kind = wire::QueryKind::kStats;
  query.serial = 4;
  client.send(bytes_of(query, wire::FrameType::kQuery));
  wire::WaitedFrame waited{};
  waited.waited_ms = 1500;
  waited.waits = 2;
  client.send(bytes_of(waited, wire::FrameType::kWaited));
  client.send(bytes_of(wire::DetachFrame{}, wire::FrameType::kDetach));
  release.lease = 11;
  client.send(bytes_of(release, wire::FrameType::kRelease));
  client.hang_up();
  EXPECT_THAT(
      service_.events(10),
      ElementsAre("attach", "handed 10", "release 10", "seek at 10 to epoch 2 #1", "query #4",
                  "waited 1500 ms in 2", "detach", "release 11", "closed: hang-up", "exited"));
  EXPECT_FALSE(connection->send_batch(batch_of_step(10))) << "nobody is there any more";
}

TEST_F(DataServerTest, PassesOnWhatIsToBeAppliedAndAnswers) {
  start();
  RawClient client(path_);
  client.attach();
  const ConnectionPtr connection = service_.connection();
  wire::ApplyFrame apply{};
  apply.serial = 3;
  apply.at = wire::ApplyAt::kNow;
  apply.text_count = 1;
  test::Bytes frame = bytes_of(apply, wire::FrameType::kApply);
  test::append_text(frame, wire::TextKey::kVar, "size=192");
  test::set_length(frame);
  client.send(frame);
  wire::SeekFrame seek{};
  seek.seek = 1;
  seek.skip = 6;
  client.send(bytes_of(seek, wire::FrameType::kSeek));
  EXPECT_THAT(service_.events(3),
              ElementsAre("attach", "apply #3 size=192", "seek at 0 skip 6 #1"));
  EXPECT_TRUE(connection->send_applied(3, {.version = 9, .epoch = 2, .step = 1, .tuned = true}));
  const auto applied = client.expect<wire::AppliedFrame>(wire::FrameType::kApplied);
  EXPECT_EQ(std::tie(applied.serial, applied.version, applied.epoch, applied.step, applied.tuned),
            std::tuple(3u, 9u, 2u, 1u, 1u));
  EXPECT_TRUE(connection->send_refused(4, Status(Code::kAborted, "no")));
  const auto refused = client.expect<wire::RefusedFrame>(wire::FrameType::kRefused);
  EXPECT_EQ(std::tie(refused.serial, refused.code, refused.text_bytes), std::tuple(4u, 10u, 2u));
  EXPECT_TRUE(connection->send_version({.pipeline_version = 9, .order_digest = "d"}));
  EXPECT_EQ(client.expect<wire::VersionFrame>(wire::FrameType::kVersion).pipeline_version, 9u);
}

TEST_F(DataServerTest, QueuesWhatAFullSocketDoesNotTakeAndKeepsTheOrder) {
  start();
  RawClient client(path_);
  client.attach();
  const ConnectionPtr connection = service_.connection();
  for (std::uint64_t step = 0; step < 1500; ++step) {
    ASSERT_TRUE(connection->send_batch(batch_of_step(step)));
  }
  for (std::uint64_t step = 0; step < 1500; ++step) {
    ASSERT_EQ(client.expect<wire::BatchFrame>(wire::FrameType::kBatch).step, step);
  }
}

TEST_F(DataServerTest, SaysItsLastWordToASlowReader) {
  start(liveness_, {.linger = std::chrono::minutes(10)});
  RawClient client(path_);
  client.attach();
  const ConnectionPtr connection = service_.connection();
  for (std::uint64_t step = 0; step < 1500; ++step) connection->send_batch(batch_of_step(step));
  EXPECT_TRUE(connection->bye(wire::ByeReason::kEvicted, "by an operator"));
  EXPECT_FALSE(connection->send_batch(batch_of_step(0))) << "nothing comes after a farewell";
  EXPECT_FALSE(connection->fail(Status(Code::kInternal, "")));
  EXPECT_TRUE(connection->ending());
  for (int i = 0; i < 1500; ++i) client.expect<wire::BatchFrame>(wire::FrameType::kBatch);
  EXPECT_EQ(client.expect<wire::ByeFrame>(wire::FrameType::kBye).reason, wire::ByeReason::kEvicted);
  EXPECT_EQ(client.rest(), "by an operator");
  EXPECT_FALSE(client.receive());
  EXPECT_THAT(service_.events(3), ElementsAre("attach", "closed: server", "exited"));
}

TEST_F(DataServerTest, DisconnectsWhoNeverReads) {
  start();
  RawClient client(path_);
  client.attach();
  const ConnectionPtr connection = service_.connection();
  std::uint64_t sent = 0;
  while (connection->send_batch(batch_of_step(sent))) ++sent;
  EXPECT_GT(sent, Connection::kMaxQueuedFrames);
  EXPECT_THAT(service_.events(3), ElementsAre("attach", "closed: overflow", "exited"));
  EXPECT_EQ(server_->stats().overflows, 1u);
}

TEST_F(DataServerTest, DisconnectsWhoReadsNoAnswersOfTheLargestSize) {
  start();
  RawClient client(path_);
  client.attach();
  const ConnectionPtr connection = service_.connection();
  const auto answer = std::make_shared<const std::string>(wire::kMaxBlobBytes, 'x');
  EXPECT_TRUE(connection->send_blob(wire::BlobKind::kStats, 1, answer)) << "one may wait";
  EXPECT_FALSE(connection->send_blob(wire::BlobKind::kStats, 2, answer));
  EXPECT_THAT(service_.events(3), ElementsAre("attach", "closed: overflow", "exited"));
  // The server forgets a consumer once the service has been told.
  while (!server_->users().empty()) std::this_thread::yield();
}

TEST_F(DataServerTest, BoundsTheUnreadAnswersOfAllConnectionsOfAUser) {
  constexpr std::uint64_t kLimit = 3u << 20;
  start(liveness_, {.max_unread_bytes_per_uid = kLimit});
  const auto answer = std::make_shared<const std::string>(1u << 20, 'x');
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::size_t i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(path_));
    clients.back()->attach();
    const bool fits = i < 2;  // the frames take some bytes of their own
    EXPECT_EQ(service_.connection(i)->send_blob(wire::BlobKind::kStats, 1, answer), fits) << i;
  }
  EXPECT_GE(server_->users().at(::getuid()).unread_bytes, 2u << 20);
  // Who reads makes room.
  std::size_t received = 0;
  while (received < answer->size()) {
    clients[0]->expect<wire::BlobFrame>(wire::FrameType::kBlob);
    received += clients[0]->rest().size();
  }
  while (server_->users().at(::getuid()).unread_bytes > 2u << 20) std::this_thread::yield();
  EXPECT_TRUE(service_.connection(0)->send_blob(wire::BlobKind::kStats, 2, answer));
}

TEST_F(DataServerTest, CountsNoTextThatIsKeptWhetherOrNotItIsRead) {
  start(liveness_, {.max_unread_bytes_per_uid = 1u << 20});
  RawClient client(path_);
  client.attach();
  const auto classes = std::make_shared<const std::string>(8u << 20, 'x');
  EXPECT_TRUE(service_.connection()->send_blob(wire::BlobKind::kClasses, 1, classes,
                                               Connection::Text::kKept));
  std::size_t received = 0;
  while (received < classes->size()) {
    client.expect<wire::BlobFrame>(wire::FrameType::kBlob);
    received += client.rest().size();
  }
}

TEST_F(DataServerTest, SendsLongAnswersInParts) {
  start();
  RawClient client(path_);
  client.attach();
  std::string text(200'000, 'x');
  text.back() = 'y';
  service_.connection()->send_blob(wire::BlobKind::kStats, 3,
                                   std::make_shared<const std::string>(text));
  std::string received;
  while (received.size() < text.size()) {
    const auto blob = client.expect<wire::BlobFrame>(wire::FrameType::kBlob);
    ASSERT_EQ(blob.offset, received.size());
    ASSERT_EQ(blob.total_bytes, text.size());
    ASSERT_FALSE(client.rest().empty());
    received += client.rest();
  }
  EXPECT_EQ(received, text);
}

TEST_F(DataServerTest, KeepsFramesOfManyThreadsWhole) {
  start();
  RawClient client(path_);
  client.attach();
  const ConnectionPtr connection = service_.connection();
  std::vector<std::thread> senders;
  for (int t = 0; t < 3; ++t) {
    senders.emplace_back([&] {
      for (std::uint64_t step = 0; step < 300; ++step) connection->send_batch(batch_of_step(step));
    });
  }
  for (int i = 0; i < 900; ++i) {
    const auto frame = client.expect<wire::BatchFrame>(wire::FrameType::kBatch);
    ASSERT_EQ(frame.lease, frame.step + 1);
  }
  for (auto& sender : senders) sender.join();
}

TEST_F(DataServerTest, SaysFarewellWhenItStops) {
  start();
  RawClient client(path_);
  client.attach();
  const ConnectionPtr connection = service_.connection();
  server_->stop();
  server_->stop();
  EXPECT_EQ(client.expect<wire::ByeFrame>(wire::FrameType::kBye).reason,
            wire::ByeReason::kShutdown);
  EXPECT_FALSE(client.receive());
  EXPECT_THAT(service_.events(3), ElementsAre("attach", "closed: server", "exited"));
  server_.reset();
  EXPECT_FALSE(connection->send_batch(batch_of_step(1))) << "it may outlive the server";
}

TEST_F(DataServerTest, RunsPostedWorkOnItsThread) {
  start();
  std::promise<std::thread::id> posted;
  std::promise<std::thread::id> delayed;
  server_->post([&] { posted.set_value(std::this_thread::get_id()); });
  server_->run_after(std::chrono::milliseconds(1),
                     [&] { delayed.set_value(std::this_thread::get_id()); });
  const std::thread::id its_thread = posted.get_future().get();
  EXPECT_NE(its_thread, std::this_thread::get_id());
  EXPECT_EQ(delayed.get_future().get(), its_thread);
}

}  // namespace
}  // namespace spdld::delivery
