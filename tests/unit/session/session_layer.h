// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "delivery/memory_probe.h"
#include "engine/plan/builtin_ops.h"
#include "session/session_service.h"
#include "source/file/io_pool.h"
#include "spdld/wire.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::session {

// Goes on by itself, and by what a test adds.
class AheadClock final : public Clock {
 public:
  std::chrono::nanoseconds now() const override { return real_.now() + ahead(); }
  std::chrono::system_clock::time_point wall() const override {
    return real_.wall() + std::chrono::duration_cast<std::chrono::system_clock::duration>(ahead());
  }
  void advance(std::chrono::nanoseconds by) { ahead_ += by.count(); }

 private:
  std::chrono::nanoseconds ahead() const { return std::chrono::nanoseconds(ahead_.load()); }

  SystemClock real_;
  std::atomic<std::int64_t> ahead_{0};
};

// What a process that is attached has: its end of the socket.
struct Rank {
  UniqueFd socket;
  delivery::ConnectionPtr connection;
  // Called for each batch that next() passes over.
  std::function<void(const wire::BatchFrame&)> passed = nullptr;

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
      if (header.type == wire::FrameType::kBatch && type != header.type && passed) {
        wire::BatchFrame batch{};
        std::memcpy(&batch, bytes.data(), sizeof batch);
        passed(batch);
      }
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
  // The next batch, wherever it lies: the frame's type tells.
  wire::BatchFrame any_batch() const {
    while (true) {
      std::array<std::byte, wire::kMaxFrameBytes> bytes;
      const ssize_t size = recv(socket.get(), bytes.data(), bytes.size(), 0);
      EXPECT_GT(size, 0) << "hung up instead of a batch";
      if (size <= 0) return {};
      wire::BatchFrame frame{};
      std::memcpy(&frame, bytes.data(), std::min(sizeof frame, static_cast<std::size_t>(size)));
      const wire::FrameType type = frame.header.type;
      if (type == wire::FrameType::kBatch || type == wire::FrameType::kDeviceBatch) return frame;
    }
  }
};

// The whole session layer on a store of its own, which survives a restart; ranks are ends of socket
// pairs.
class SessionLayer : public ::testing::Test {
 protected:
  void TearDown() override { stop(); }

  void start() {
    auto store = Store::open(files_.path("state"));
    ASSERT_TRUE(store) << store.error().message();
    store_ = std::move(*store);
    executor_ = std::make_unique<engine::Executor>(engine::ExecutorOptions{.threads = 2});
    io_ = std::make_unique<source::IoPool>(source::IoPool::Options{.threads = 2});
    caches_ = std::make_unique<engine::SampleCaches>(engine::SampleCachesOptions{.io = *io_});
    catalogue_ =
        std::make_unique<Catalogue>(CatalogueOptions{.state_dir = "",
                                                     .access = {},
                                                     .admins = {0},
                                                     .pipelines_per_user = pipelines_per_user_},
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

  // As they are while the apply that changes them is under way: prepared, and not on disk yet.
  Result<std::vector<PlannedSwap>> prepared_swaps(const ApplyRequest& request,
                                                  const SwapRequest& jobs) {
    SPDLD_ASSIGN(const PipelinePtr built,
                 catalogue_->build(catalogue_->owner_for(self_.uid), request, nullptr));
    SPDLD_ASSIGN(const PipelinePtr pipeline, catalogue_->numbered(self_.uid, built));
    SPDLD_ASSIGN(std::vector<PlannedSwap> swaps,
                 sessions_->plan_swaps(self_, pipeline, jobs, nullptr));
    SPDLD_TRY(sessions_->prepare_swaps(swaps, jobs.at));
    return swaps;
  }

  Rank connect() { return connect(self_.uid); }
  Rank connect(uid_t uid) {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    Rank rank{.socket = UniqueFd(sockets[0]), .connection = nullptr, .passed = nullptr};
    rank.connection = std::make_shared<delivery::Connection>(
        next_id_++, UniqueFd(sockets[1]),
        Peer{uid == self_.uid ? Credentials(self_) : Credentials{.uid = uid, .gid = getgid()},
             self_.pid},
        std::make_shared<UserBytes>(std::uint64_t{1} << 30), [] {});
    connections_.push_back(rank.connection);
    return rank;
  }

  void hang_up(const Rank& rank) {
    sessions_->closed(*rank.connection, delivery::CloseCause::kHangUp);
    sessions_->exited(*rank.connection);
    std::erase(connections_, rank.connection);
  }

  // Of users who are neither root nor the one who runs the test, after the next start().
  std::size_t pipelines_per_user_ = 256;
  std::size_t jobs_per_user_ = 1024;
  const Caller self_{Credentials::own(), getpid()};
  source::TempDir files_;
  AheadClock clock_;
  delivery::ArenaBudget budget_{std::uint64_t{1} << 30};
  delivery::ArenaPool arenas_{budget_, {}, clock_};
  std::unique_ptr<delivery::Devices> devices_ = delivery::find_devices(1u << 30);
  std::uint64_t next_id_ = 1;
  std::vector<delivery::ConnectionPtr> connections_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<engine::Executor> executor_;
  std::unique_ptr<source::IoPool> io_;
  std::unique_ptr<engine::SampleCaches> caches_;
  std::unique_ptr<Catalogue> catalogue_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<SessionService> service_;
};

}  // namespace spdld::session
