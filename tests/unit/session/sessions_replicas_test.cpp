// SPDX-License-Identifier: Apache-2.0
// Two replicas of a shard whose processes lose their connections, and live on.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

// Job 'j' of one shard with two replicas on ninety files in batches of two.
class ReplicasTest : public SessionsTest {
 protected:
  static constexpr std::uint32_t kReplicas = 2;
  static constexpr std::uint32_t kCredits = 4;  // of six slots

  void SetUp() override {
    SessionsTest::SetUp();
    declare_on_more(kReplicas);
  }
  static Wish wish(std::uint32_t replica) {
    return {.pipeline = "q",
            .job = "j",
            .shard = 0,
            .replicas = kReplicas,
            .replica = replica,
            .credits = kCredits};
  }
  // Attached again by the process that holds batches from `step` on.
  static Wish back(std::uint32_t replica, std::uint64_t step, std::uint64_t run) {
    Wish wish = ReplicasTest::wish(replica);
    wish.reconnect = true;
    wish.cursor = delivery::StreamPosition{.epoch = 0, .position = step * 2, .step = step};
    wish.in_run = {.run = run, .branch = 0, .turn = step};
    return wish;
  }
};

TEST_F(ReplicasTest, ThatReconnectDoNotWaitForSlotsWhichTheirProcessesMayStillRead) {
  std::array<Rank, kReplicas> ranks{attach(wish(0)), attach(wish(1))};
  const std::uint64_t run = ranks[0].attached().run;
  std::array<std::deque<wire::BatchFrame>, kReplicas> held;
  const auto read = [&](std::uint32_t replica) { held[replica].push_back(ranks[replica].batch()); };
  for (std::uint32_t batch = 0; batch < kCredits; ++batch) {
    read(0);
    read(1);
  }
  // Between them they hold all slots: steps 0 to 3, and 2 to 5.
  for (int step = 0; step < 2; ++step) {
    sessions_->release(*ranks[1].connection, held[1].front().lease);
    held[1].pop_front();
    read(1);
  }
  for (const std::uint32_t replica : {0U, 1U}) {
    sessions_->closed(*ranks[replica].connection, delivery::CloseCause::kHangUp);
    ranks[replica] = attach(back(replica, held[replica].front().step, run));
    EXPECT_EQ(ranks[replica].attached().step, held[replica].front().step);
  }
  for (std::uint64_t step = 0; step < 20; ++step) {
    for (std::uint32_t replica = 0; replica < kReplicas; ++replica) {
      const wire::BatchFrame batch = ranks[replica].batch();
      EXPECT_EQ(batch.step, held[replica].front().step + step);
      sessions_->release(*ranks[replica].connection, batch.lease);
    }
  }
}

}  // namespace
}  // namespace spdld::session
