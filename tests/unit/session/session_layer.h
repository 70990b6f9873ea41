// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "delivery/memory_probe.h"
#include "engine/plan/builtin_ops.h"
#include "session/session_service.h"
#include "source/file/io_pool.h"
#include "spdld/wire.h"
#include "tests/support/clocks.h"
#include "tests/support/received_frame.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::session {

// What a process that is attached has: its end of the socket.
struct Rank {
  UniqueFd socket;
  delivery::ConnectionPtr connection;
  // Called for each batch that next() passes over.
  std::function<void(const wire::BatchFrame&)> passed = nullptr;

  // Blocks until a frame of this kind comes; others before it are passed over.
  template <typename Frame>
  Frame next(wire::FrameType type, std::string* rest = nullptr) const {
    while (const auto frame = test::receive_frame(socket.get())) {
      if (frame->type() == type) {
        if (rest != nullptr) *rest = frame->text_behind<Frame>();
        return frame->as<Frame>();
      }
      if (frame->type() == wire::FrameType::kBatch && passed) passed(frame->as<wire::BatchFrame>());
    }
    ADD_FAILURE() << "hung up instead of frame " << static_cast<int>(type);
    return {};
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
  // The next batch, wherever it lies: the frame's type tells.
  wire::BatchFrame any_batch() const {
    while (const auto frame = test::receive_frame(socket.get())) {
      const wire::FrameType type = frame->type();
      if (type == wire::FrameType::kBatch || type == wire::FrameType::kDeviceBatch)
        return frame->as<wire::BatchFrame>();
    }
    ADD_FAILURE() << "hung up instead of a batch";
    return {};
  }
};

// The whole session layer on a store of its own, which survives a restart; ranks are ends of socket
// pairs.
class SessionLayer : public ::testing::Test {
 protected:
  void TearDown() override { stop(); }

  void start() {
    auto store = store::Store::open(files_.path("state"));
    ASSERT_TRUE(store) << store.error().message();
    store_ = std::move(*store);
    executor_ = std::make_unique<engine::Executor>(engine::ExecutorOptions{.threads = 2});
    io_ = std::make_unique<source::IoPool>(source::IoPool::Options{.threads = 2});
    caches_ = std::make_unique<engine::SampleCaches>(engine::SampleCachesOptions{.io = *io_});
    catalogue_ = std::make_unique<pipeline::Catalogue>(
        pipeline::CatalogueOptions{.state_dir = state_dir_,
                                   .trusted = TrustedUsers({0}),
                                   .pipelines_per_user = pipelines_per_user_,
                                   .build = {.memory = listing_memory_}},
        engine::builtin_ops(), *io_, *caches_);
    sessions_ = std::make_unique<Sessions>(SessionsDeps{.catalogue = *catalogue_,
                                                        .executor = *executor_,
                                                        .arenas = arenas_,
                                                        .budget = budget_,
                                                        .devices = *devices_,
                                                        .store = *store_,
                                                        .clock = clock_,
                                                        .jobs_per_user = jobs_per_user_});
    service_ = std::make_unique<SessionService>(*sessions_, SessionService::Facts{});
  }
  void stop() {
    for (const auto& connection : connections_) {
      sessions_->closed(*connection, delivery::CloseCause::kServer);
      sessions_->exited(*connection);
    }
    connections_.clear();
    catalogue_->listings().stop();
    sessions_->stop();
    io_->stop();
    executor_->stop();
    service_.reset();
    sessions_.reset();
    catalogue_.reset();
    caches_.reset();
    executor_.reset();
    io_.reset();
    store_.reset();
  }

  // `write` decides about the swap, which is prepared then and not on disk.
  Status swap_by(const Swaps::Writing& write, const job::ApplyRequest& request,
                 const SwapRequest& jobs) {
    sessions_->keeper().keep();  // ranks that `write` waits for wait for no record meanwhile
    SPDLD_ASSIGN(const pipeline::PipelinePtr built,
                 catalogue_->build(catalogue_->table().owner_for(self_.uid), request, nullptr));
    SPDLD_ASSIGN(const pipeline::PipelinePtr pipeline,
                 catalogue_->table().numbered(self_.uid, built));
    SPDLD_ASSIGN(std::vector<PlannedSwap> swaps,
                 sessions_->planner().plan(self_, pipeline, jobs, nullptr));
    return sessions_->swaps().carry_out(swaps, jobs.at, write);
  }

  Rank connect() { return connect(self_.uid); }
  Rank connect(uid_t uid) { return connect(uid, self_.pid); }
  Rank connect(uid_t uid, pid_t pid) {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    Rank rank{.socket = UniqueFd(sockets[0]), .connection = nullptr, .passed = nullptr};
    rank.connection = std::make_shared<delivery::Connection>(
        next_id_++, UniqueFd(sockets[1]),
        Peer{uid == self_.uid ? Credentials(self_) : Credentials{.uid = uid, .gid = getgid()}, pid},
        std::make_shared<UserBytes>(std::uint64_t{1} << 30), [] {});
    connections_.push_back(rank.connection);
    return rank;
  }

  void hang_up(const Rank& rank) {
    sessions_->closed(*rank.connection, delivery::CloseCause::kHangUp);
    sessions_->exited(*rank.connection);
    std::erase(connections_, rank.connection);
  }

  std::string state_dir_ = {};  // where listings are kept, after the next start()
  // Of users who are neither root nor the one who runs the test, after the next start().
  std::size_t pipelines_per_user_ = 256;
  std::size_t jobs_per_user_ = 1024;
  std::shared_ptr<ListingMemory> listing_memory_ =
      std::make_shared<ListingMemory>(std::uint64_t{1} << 30, TrustedUsers());
  const job::Caller self_{Credentials::own(), getpid()};
  source::TempDir files_;
  spdld::testing::AheadClock clock_;
  delivery::ArenaBudget budget_{std::uint64_t{1} << 30};
  delivery::ArenaPool arenas_{budget_, {}, clock_};
  std::unique_ptr<delivery::Devices> devices_ = delivery::find_devices(1u << 30);
  std::uint64_t next_id_ = 1;
  std::vector<delivery::ConnectionPtr> connections_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<engine::Executor> executor_;
  std::unique_ptr<source::IoPool> io_;
  std::unique_ptr<engine::SampleCaches> caches_;
  std::unique_ptr<pipeline::Catalogue> catalogue_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<SessionService> service_;
};

}  // namespace spdld::session
