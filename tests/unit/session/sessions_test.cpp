// SPDX-License-Identifier: Apache-2.0
#include "session/sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "delivery/memory_probe.h"
#include "engine/builtin_ops.h"
#include "session/session_service.h"
#include "source/io_pool.h"
#include "spdld/wire.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

// What a process that is attached has: its end of the socket.
struct Consumer {
  UniqueFd socket;
  delivery::ConnectionPtr connection;

  // Blocks until a frame of this kind comes; others before it are passed over.
  template <typename Frame>
  Frame next(wire::FrameType type, std::string* rest = nullptr) const {
    while (true) {
      std::array<std::byte, wire::kMaxFrameBytes> bytes;
      const ssize_t size = recv(socket.get(), bytes.data(), bytes.size(), 0);
      EXPECT_GT(size, 0) << "hung up instead of frame " << static_cast<int>(type);
      if (size <= 0) return {};
      wire::FrameHeader header{};
      std::memcpy(&header, bytes.data(), sizeof header);
      if (header.type != type) continue;
      Frame frame{};
      std::memcpy(&frame, bytes.data(), sizeof frame);
      if (rest != nullptr)
        rest->assign(reinterpret_cast<const char*>(bytes.data()) + sizeof frame,
                     static_cast<std::size_t>(size) - sizeof frame);
      return frame;
    }
  }
  std::string refusal() const {
    std::string text;
    EXPECT_EQ(next<wire::ErrorFrame>(wire::FrameType::kError, &text).fatal, 1U);
    return text;
  }
  wire::AttachedFrame attached() const {
    return next<wire::AttachedFrame>(wire::FrameType::kAttached);
  }
  wire::BatchFrame batch() const { return next<wire::BatchFrame>(wire::FrameType::kBatch); }
};

// What an attach asks for.
struct Wish {
  std::string pipeline = "p";
  std::string job = {};
  std::string pipeline_yaml = {};
  std::map<std::string, std::string> env = {};
  std::optional<std::uint32_t> shard = {};
  std::optional<std::uint32_t> num_shards = {};
  std::uint32_t incarnation = 0;
  bool reconnect = false;
  std::optional<delivery::StreamPosition> cursor = {};
};

// The session layer over a dataset of ten small files, in batches of two.
class SessionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 10; ++i) files_.file("data/" + std::to_string(i) + ".bin", "bytes");
    start();
    apply(yaml("p", "drop"));
  }
  void TearDown() override { stop(); }

  void start() {
    auto store = Store::open(files_.path("state"));
    ASSERT_TRUE(store) << store.error().message();
    store_ = std::move(*store);
    executor_ = std::make_unique<engine::Executor>(engine::ExecutorOptions{.threads = 2});
    io_ = std::make_unique<source::IoPool>(source::IoPool::Options{.threads = 2});
    catalogue_ =
        std::make_unique<Catalogue>(CatalogueOptions{.state_dir = "", .roots = {"/"}, .admins = {}},
                                    engine::builtin_ops(), *io_);
    sessions_ = std::make_unique<Sessions>(SessionsDeps{.catalogue = *catalogue_,
                                                        .executor = *executor_,
                                                        .arenas = arenas_,
                                                        .budget = budget_,
                                                        .store = *store_,
                                                        .clock = clock_});
    service_ = std::make_unique<SessionService>(*sessions_, SessionService::Facts{});
  }
  void stop() {
    for (const auto& connection : connections_) {
      sessions_->closed(*connection, delivery::CloseCause::kServer);
      sessions_->exited(*connection);
    }
    connections_.clear();
    sessions_->stop();
    io_->stop();
    executor_->stop();
    service_.reset();
    sessions_.reset();
    catalogue_.reset();
    executor_.reset();
    io_.reset();
    store_.reset();
  }

  std::string yaml(const std::string& name, const std::string& last) const {
    return "pipeline: " + name + "\nsource:\n  files: {root: " + files_.path("data") +
           ", pattern: \"*.bin\", label: none}\nstages:\n  - fetch\n" +
           "batch: {size: 2, max_bytes: 4KiB, last: " + last + "}\n";
  }
  void apply(const std::string& text) {
    ApplyRequest request;
    request.yaml = text;
    request.file = "-";
    const auto applied = service_->apply(self_, request, nullptr);
    ASSERT_TRUE(applied) << applied.error().message();
  }
  Consumer connect() {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    Consumer consumer{.socket = UniqueFd(sockets[0]), .connection = nullptr};
    consumer.connection = std::make_shared<delivery::Connection>(
        next_id_++, UniqueFd(sockets[1]),
        delivery::Peer{.uid = self_.uid, .gid = getgid(), .pid = self_.pid}, [] {});
    connections_.push_back(consumer.connection);
    return consumer;
  }
  Consumer attach(const Wish& wish) {
    Consumer consumer = connect();
    delivery::AttachRequest request;
    request.pipeline = wish.pipeline;
    request.job = wish.job;
    request.pipeline_yaml = wish.pipeline_yaml;
    request.env = wish.env;
    request.shard = wish.shard;
    request.num_shards = wish.num_shards;
    request.incarnation = wish.incarnation;
    request.reconnect = wish.reconnect;
    if (wish.cursor) {
      request.start = wire::StartMode::kCursor;
      request.cursor = *wish.cursor;
    }
    sessions_->attach(consumer.connection, std::move(request));
    return consumer;
  }
  static JobRequest declared(std::uint64_t max_epochs) {
    JobRequest request;
    request.job = "j";
    request.pipeline = "p";
    request.max_epochs = max_epochs;
    return request;
  }
  void hang_up(const Consumer& consumer) {
    sessions_->closed(*consumer.connection, delivery::CloseCause::kHangUp);
    sessions_->exited(*consumer.connection);
    std::erase(connections_, consumer.connection);
  }

  const Caller self_{.uid = getuid(), .pid = getpid()};
  const source::TempDir files_;
  SystemClock clock_;
  delivery::ArenaBudget budget_{std::uint64_t{1} << 30};
  delivery::ArenaPool arenas_{budget_, 0};
  std::uint64_t next_id_ = 1;
  std::vector<delivery::ConnectionPtr> connections_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<engine::Executor> executor_;
  std::unique_ptr<source::IoPool> io_;
  std::unique_ptr<Catalogue> catalogue_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<SessionService> service_;
};

TEST_F(SessionsTest, RefusesACursorThatNoJobCanHave) {
  const auto from = [&](delivery::StreamPosition cursor) {
    return attach({.job = "j", .cursor = cursor}).refusal();
  };
  EXPECT_THAT(from({.epoch = 0, .position = 11, .step = 3}), HasSubstr("behind the last of 10"));
  EXPECT_THAT(from({.epoch = 0, .position = 0, .step = kHuge}), HasSubstr("no place in a job"));
  EXPECT_THAT(from({.epoch = kHuge, .position = 0, .step = 0}), HasSubstr("no place in a job"));
}

TEST_F(SessionsTest, EndsAConsumerThatSeeksWhereNoJobCanBe) {
  for (const delivery::StreamPosition to :
       {delivery::StreamPosition{.epoch = 0, .position = 11, .step = 1},
        delivery::StreamPosition{.epoch = 0, .position = 0, .step = kHuge},
        delivery::StreamPosition{.epoch = kHuge, .position = 0, .step = 0}}) {
    const Consumer consumer = attach({});
    consumer.batch();
    sessions_->seek(*consumer.connection, {.to = to, .serial = 1});
    EXPECT_THAT(consumer.refusal(), HasSubstr("seek"));
    EXPECT_TRUE(consumer.connection->ending());
  }
}

TEST_F(SessionsTest, AnswersASeekThatComesRightAfterTheAttach) {
  for (int i = 0; i < 50; ++i) {
    const Consumer consumer = attach({});
    consumer.attached();
    sessions_->seek(*consumer.connection,
                    {.to = {.epoch = 3, .position = 0, .step = 0}, .serial = 1});
    EXPECT_EQ(consumer.next<wire::ResetFrame>(wire::FrameType::kReset).seek, 1U);
    hang_up(consumer);
  }
}

TEST_F(SessionsTest, GoesOnWithinAnEpochFromAPositionOfAnotherBatchSize) {
  const Consumer consumer =
      attach({.cursor = delivery::StreamPosition{.epoch = 1, .position = 5, .step = 7}});
  const wire::AttachedFrame told = consumer.attached();
  EXPECT_EQ(told.position, 5U);
  EXPECT_EQ(told.step, 7U);
  const wire::BatchFrame batch = consumer.batch();
  EXPECT_EQ(batch.step, 7U);
  EXPECT_EQ(batch.next_position, 7U);
}

TEST_F(SessionsTest, TellsWhoStartsBehindTheLastEpochThatTheJobHasEnded) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(2)));
  const Consumer consumer = attach(
      {.job = "j", .cursor = delivery::StreamPosition{.epoch = 2, .position = 0, .step = 0}});
  const auto end = consumer.next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd);
  EXPECT_EQ(end.epoch, 1U);
  EXPECT_EQ(end.last, 1U);
}

TEST_F(SessionsTest, LeavesNoJobBehindWhoseFirstRankWasRefused) {
  EXPECT_THAT(attach({.job = "j", .shard = 3}).refusal(), HasSubstr("there is no shard 3"));
  EXPECT_TRUE(sessions_->jobs(self_).empty());
  EXPECT_EQ(attach({.job = "j", .shard = 3, .num_shards = 4}).attached().num_shards, 4);
}

TEST_F(SessionsTest, RefusesMoreShardsThanItCouldList) {
  apply(yaml("padded", "pad"));
  EXPECT_THAT(attach({.pipeline = "padded", .job = "j", .shard = 0, .num_shards = 65537}).refusal(),
              HasSubstr("num_shards 65537 is not between"));
}

TEST_F(SessionsTest, TellsTheStatisticsOfAJobWhoseNameIsNotUtf8) {
  const Consumer consumer = attach({.job = "\xff\xfe"});
  consumer.attached();
  sessions_->query(*consumer.connection, {.kind = wire::QueryKind::kStats, .serial = 1});
  std::string text;
  consumer.next<wire::BlobFrame>(wire::FrameType::kBlob, &text);
  EXPECT_THAT(text, HasSubstr("\"stages\""));
}

TEST_F(SessionsTest, ServesAPipelineThatCannotBeKept) {
  const Consumer consumer = attach({.pipeline = "own",
                                    .pipeline_yaml = yaml("own", "drop"),

                                    .env = {{"NAME", "\xff"}}});
  EXPECT_EQ(consumer.attached().items, 10U);
}

TEST_F(SessionsTest, KeepsTheRunningRanksWhenARestartOfThemIsRefused) {
  const Consumer running = attach({.job = "j", .shard = 0, .num_shards = 2});
  running.attached();
  // Twenty shards of two make no step of ten items.
  EXPECT_THAT(attach({.job = "j", .shard = 0, .num_shards = 20, .incarnation = 1}).refusal(),
              HasSubstr("make no single step"));
  EXPECT_FALSE(running.connection->ending());
  EXPECT_EQ(attach({.job = "j", .shard = 1, .num_shards = 2}).attached().shard, 1);
}

TEST_F(SessionsTest, EvictsTheRanksOfAnOlderIncarnationForANewerOne) {
  const Consumer older = attach({.job = "j", .shard = 0, .num_shards = 2});
  older.attached();
  EXPECT_EQ(
      attach({.job = "j", .shard = 0, .num_shards = 1, .incarnation = 1}).attached().num_shards, 1);
  EXPECT_EQ(older.next<wire::ByeFrame>(wire::FrameType::kBye).reason, wire::ByeReason::kEvicted);
  EXPECT_THAT(attach({.job = "j", .shard = 1, .num_shards = 2}).refusal(),
              HasSubstr("has been evicted"));
}

TEST_F(SessionsTest, DealsAnEpochOutToAllRanksWhenAResizedJobIsSoughtBack) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  const Consumer second = attach({.job = "j", .shard = 1});
  second.attached();
  second.batch();
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 1}));
  const auto reset = second.next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(reset.position, 2U);
  EXPECT_EQ(reset.num_shards, 2);
  EXPECT_FALSE(second.connection->ending());
  const Consumer first = attach({.job = "j", .shard = 0});
  const wire::BatchFrame batch = first.batch();
  EXPECT_EQ(batch.step, 1U);
  EXPECT_EQ(batch.next_position, 6U);
}

TEST_F(SessionsTest, DealsAnEpochOutToAllRanksThatComeWithACursorFromBeforeAResize) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  const Consumer second =
      attach({.job = "j",
              .shard = 1,
              .cursor = delivery::StreamPosition{.epoch = 0, .position = 2, .step = 1}});
  const wire::BatchFrame batch = second.batch();
  EXPECT_EQ(batch.step, 1U);
  EXPECT_EQ(batch.next_position, 6U);
  EXPECT_FALSE(second.connection->ending());
}

TEST_F(SessionsTest, TakesBackARankThatWasAwayWhenTheJobWasResized) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  Wish wish{.job = "j",
            .shard = 0,
            .num_shards = 1,
            .cursor = delivery::StreamPosition{.epoch = 0, .position = 6, .step = 3}};
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("has num_shards 2"));
  wish.reconnect = true;
  const Consumer back = attach(wish);
  EXPECT_EQ(back.attached().num_shards, 2);
  // The step before the resize is still its own alone.
  EXPECT_EQ(back.batch().next_position, 8U);
}

TEST_F(SessionsTest, TakesAResizedJobUpAfterARestart) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  stop();
  start();
  apply(yaml("p", "drop"));
  ASSERT_TRUE(sessions_->restore().ok());
  EXPECT_EQ(attach({.job = "j", .shard = 1}).attached().num_shards, 2);
}

TEST_F(SessionsTest, LeavesAJobAloneWhoseDatasetHasShrunkBelowIt) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, "j", "", {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, "j", "", 2));
  stop();
  for (int i = 4; i < 10; ++i) files_.remove("data/" + std::to_string(i) + ".bin");
  start();
  apply(yaml("p", "drop"));
  ASSERT_TRUE(sessions_->restore().ok());
  EXPECT_TRUE(sessions_->jobs(self_).empty());
  EXPECT_EQ(attach({.job = "j"}).attached().items, 4U);
}

TEST_F(SessionsTest, RefusesToSeekAJobToWhereItCannotBe) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(2)));
  for (const StepAt to : {StepAt{0, 6}, StepAt{2, 0}, StepAt{kHuge, 0}, StepAt{0, kHuge}})
    EXPECT_FALSE(sessions_->seek_job(self_, "j", "", to)) << to.epoch << ", " << to.step;
}

}  // namespace
}  // namespace spdld::session
