// SPDX-License-Identifier: Apache-2.0
#include "delivery/data_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "delivery/arena.h"
#include "delivery/memory_probe.h"
#include "delivery/peer.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/delivery/raw_client.h"
#include "tests/unit/delivery/recording_service.h"

namespace spdld::delivery {
namespace {

using test::bytes_of;
using test::RawClient;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataServerTest : public ::testing::Test {
 protected:
  void start(Liveness& liveness, DataServerOptions options = {}) {
    auto listener = listen_unix(lock_, path_, SOCK_SEQPACKET, 0666);
    ASSERT_TRUE(listener);
    options.server_name = "spdld 0.1.0";
    server_ = std::move(*DataServer::start(std::move(*listener), options, liveness, service_));
  }
  void start() { start(liveness_); }
  // Gives the consumer that attached first something to read.
  void lend() {
    const ArenaShape shape{.kind = ArenaKind::kMemfd, .slot_bytes = 4096, .slot_count = 1};
    const auto arena = Arena::create(shape, 1, budget_);
    ASSERT_TRUE(arena) << arena.error().message();
    ASSERT_TRUE(service_.connection()->send_arena_open(**arena));
  }

  test::ScratchDir dir_;
  RuntimeLock lock_ = std::move(*RuntimeLock::take(dir_.path()));
  const std::string path_ = dir_.path() + "/data.sock";
  PidfdLiveness pidfds_;
  test::FakeLiveness liveness_;
  test::RecordingService service_;
  ArenaBudget budget_{std::uint64_t{1} << 20};
  std::unique_ptr<DataServer> server_;
};

BatchNotice batch_of_step(std::uint64_t step) {
  BatchNotice notice;
  notice.lease = step + 1;
  notice.step = step;
  return notice;
}

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
  EXPECT_TRUE(connection->send_attached({.session = 5, .order_digest = "d", .job = "j"}));
  EXPECT_EQ(client.expect<wire::AttachedFrame>(wire::FrameType::kAttached).session, 5u);
  EXPECT_TRUE(connection->send_batch(batch_of_step(9)));
  EXPECT_EQ(client.expect<wire::BatchFrame>(wire::FrameType::kBatch).step, 9u);

  wire::ReleaseFrame release{};
  release.lease = 10;
  client.send(bytes_of(release, wire::FrameType::kRelease));
  wire::SeekFrame seek{};
  seek.epoch = 2;
  seek.seek = 1;
  client.send(bytes_of(seek, wire::FrameType::kSeek));
  wire::QueryFrame query{};
  query.kind = wire::QueryKind::kStats;
  query.serial = 4;
  client.send(bytes_of(query, wire::FrameType::kQuery));
  client.send(bytes_of(wire::DetachFrame{}, wire::FrameType::kDetach));
  release.lease = 11;
  client.send(bytes_of(release, wire::FrameType::kRelease));
  client.hang_up();
  EXPECT_THAT(service_.events(8), ElementsAre("attach", "release 10", "seek 2 #1", "query #4",
                                              "detach", "release 11", "closed: hang-up", "exited"));
  EXPECT_FALSE(connection->send_batch(batch_of_step(10))) << "nobody is there any more";
}

TEST_F(DataServerTest, PassesOnWhatIsToBeAppliedAndAnswers) {
  start();
  RawClient client(path_);
  client.attach();
  const ConnectionPtr connection = service_.connection();
  EXPECT_EQ(connection->protocol(), wire::kProtocolMax);
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
  EXPECT_THAT(service_.events(3), ElementsAre("attach", "apply #3 size=192", "seek 0 #1 skip 6"));
  EXPECT_TRUE(
      connection->send_blob(wire::BlobKind::kApplied, 3, std::make_shared<std::string>("{}")));
  EXPECT_EQ(client.expect<wire::BlobFrame>(wire::FrameType::kBlob).serial, 3u);
  EXPECT_TRUE(connection->send_version({.pipeline_version = 9, .order_digest = "d"}));
  EXPECT_EQ(client.expect<wire::VersionFrame>(wire::FrameType::kVersion).pipeline_version, 9u);
}

TEST_F(DataServerTest, SpeaksToAnOlderConsumerAsItUnderstands) {
  start();
  RawClient client(path_);
  client.send(test::hello_bytes(1, 1));
  client.expect<wire::WelcomeFrame>(wire::FrameType::kWelcome);
  client.send(test::attach_bytes(test::attach_fixed(), {{wire::TextKey::kPipeline, "p"}}));
  EXPECT_EQ(service_.connection()->protocol(), 1u);
  wire::SeekFrame seek{};
  seek.seek = 1;
  seek.skip = 6;  // reserved there, and ignored
  client.send(bytes_of(seek, wire::FrameType::kSeek));
  EXPECT_THAT(service_.events(2), ElementsAre("attach", "seek 0 #1"));
  wire::ApplyFrame apply{};
  apply.at = wire::ApplyAt::kNow;
  client.send(bytes_of(apply, wire::FrameType::kApply));
  EXPECT_THAT(client.last_words(), HasSubstr("Apply frame: it takes data protocol 2"));
  EXPECT_EQ(server_->stats().protocol_errors, 1u);
}

TEST_F(DataServerTest, TellsOlderAndNewerClientsWhichSideToUpgrade) {
  start();
  RawClient newer(path_);
  newer.send(test::hello_bytes(wire::kProtocolMax + 1, wire::kProtocolMax + 3));
  EXPECT_EQ(newer.last_words(),
            "raw 1.0 speaks the data protocols 3 to 5, and the daemon spdld 0.1.0 speaks 1 to 2; "
            "upgrade the daemon");
  RawClient older(path_);
  older.send(test::hello_bytes(0, 0));
  EXPECT_THAT(older.last_words(), HasSubstr("upgrade the client"));
  RawClient wide(path_);
  wide.send(test::hello_bytes(0, 99));
  EXPECT_EQ(wide.expect<wire::WelcomeFrame>(wire::FrameType::kWelcome).protocol, 2u);
  RawClient old(path_);
  old.send(test::hello_bytes(1, 1));
  EXPECT_EQ(old.expect<wire::WelcomeFrame>(wire::FrameType::kWelcome).protocol, 1u);
}

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
    wire::FrameHeader header;
    std::memcpy(&header, answer->data(), sizeof header);
    EXPECT_EQ(header.type, wire::FrameType::kError);
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

TEST_F(DataServerTest, PutsTheYamlOfAnAttachTogether) {
  start();
  RawClient client(path_);
  client.greet();
  const std::string yaml = "pipeline: p\n";
  for (std::size_t offset = 0; offset < yaml.size(); offset += 4) {
    wire::BlobFrame blob{};
    blob.kind = wire::BlobKind::kPipelineYaml;
    blob.offset = static_cast<std::uint32_t>(offset);
    blob.total_bytes = static_cast<std::uint32_t>(yaml.size());
    test::Bytes frame = bytes_of(blob, wire::FrameType::kBlob);
    for (std::size_t i = offset; i < offset + 4; ++i) frame.push_back(std::byte(yaml[i]));
    test::set_length(frame);
    client.send(frame);
  }
  wire::AttachFrame attach = test::attach_fixed();
  attach.blob_bytes = static_cast<std::uint32_t>(yaml.size());
  client.send(test::attach_bytes(attach, {{wire::TextKey::kPipeline, "p"}}));
  EXPECT_EQ(service_.request().pipeline_yaml, yaml);
}

TEST_F(DataServerTest, RefusesAYamlThatDidNotComeWhole) {
  start();
  RawClient client(path_);
  client.greet();
  wire::AttachFrame attach = test::attach_fixed();
  attach.blob_bytes = 100;
  client.send(test::attach_bytes(attach, {{wire::TextKey::kPipeline, "p"}}));
  EXPECT_THAT(client.last_words(), HasSubstr("100 bytes of YAML were announced, and 0 came"));

  RawClient gap(path_);
  gap.greet();
  wire::BlobFrame blob{};
  blob.kind = wire::BlobKind::kPipelineYaml;
  blob.offset = 4;
  blob.total_bytes = 8;
  test::Bytes frame = bytes_of(blob, wire::FrameType::kBlob);
  frame.resize(frame.size() + 4);
  test::set_length(frame);
  gap.send(frame);
  EXPECT_THAT(gap.last_words(), HasSubstr("do not follow each other"));
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
  start();
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

TEST_F(DataServerTest, RefusesMoreThanItsLimits) {
  start(liveness_, {.max_connections = 8, .max_connections_per_uid = 2});
  RawClient first(path_);
  RawClient second(path_);
  first.greet();
  second.greet();
  RawClient third(path_);
  EXPECT_THAT(third.last_words(), HasSubstr("has 2 consumers already"));
  EXPECT_EQ(server_->stats().refused, 1u);
  first.hang_up();
  // The place is free once the hang-up was seen.
  for (;;) {
    RawClient again(path_);
    again.send(test::hello_bytes(1, 1));
    const auto answer = again.receive();
    ASSERT_TRUE(answer);
    wire::FrameHeader header;
    std::memcpy(&header, answer->data(), sizeof header);
    if (header.type == wire::FrameType::kWelcome) break;
  }
}

TEST_F(DataServerTest, EndsWhoConnectsAndNeverAttaches) {
  start(liveness_, {.hello_timeout = std::chrono::milliseconds(20)});
  RawClient silent(path_);
  EXPECT_THAT(silent.last_words(), HasSubstr("did not attach within 0.02 s"));
  RawClient half(path_);
  half.greet();
  EXPECT_THAT(half.last_words(), HasSubstr("did not attach"));
  EXPECT_EQ(server_->stats().hello_timeouts, 2u);
}

TEST_F(DataServerTest, LetsConsumersInOnceThereAreFileDescriptorsAgain) {
  start();
  RawClient client;  // has its socket
  rlimit saved{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &saved), 0);
  const UniqueFd next(::dup(client.fd()));  // the lowest free number is below this one or just it
  rlimit none = saved;
  none.rlim_cur = static_cast<rlim_t>(next.get());
  std::vector<UniqueFd> filler;
  for (;;) {
    UniqueFd fd(::dup(client.fd()));
    if (!fd || fd.get() >= next.get()) break;
    filler.push_back(std::move(fd));
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  client.connect(path_);
  while (server_->stats().accept_failures == 0) std::this_thread::yield();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &saved), 0);
  client.attach();
  EXPECT_EQ(service_.events(1).front(), "attach");
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
  std::atomic<int> ran{0};
  server_->post([&] { ++ran; });
  server_->run_after(std::chrono::milliseconds(1), [&] { ++ran; });
  while (ran.load() < 2) std::this_thread::yield();
}

}  // namespace
}  // namespace spdld::delivery
