// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "delivery/arena.h"
#include "delivery/data_server.h"
#include "delivery/peer.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/delivery/recording_service.h"

namespace spdld::delivery {

// A data server on a socket of its own, with a service that writes down what it hears.
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

inline BatchNotice batch_of_step(std::uint64_t step) {
  BatchNotice notice;
  notice.lease = step + 1;
  notice.step = step;
  return notice;
}

}  // namespace spdld::delivery
