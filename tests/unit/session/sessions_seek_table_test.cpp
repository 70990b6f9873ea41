// SPDX-License-Identifier: Apache-2.0
// A rank's loop seeks while another rank is somewhere else: what the two are sent next, and which
// changes of the job an operator may make then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

enum class Other { kTogether, kAhead, kBehind, kAway, kDead, kReplica, kEnters, kOfAnotherRun };

struct Row {
  std::string name;
  Other other;
  job::StepAt sent;          // to the other one next
  std::string refused;       // what an operator is told who skips steps; empty: that is done
  std::string no_swap = {};  // the same of a swap
};

const Row kRows[] = {
    {.name = "Together", .other = Other::kTogether, .sent = {5, 0}, .refused = {}},
    {.name = "Ahead",
     .other = Other::kAhead,
     .sent = {0, 9},
     .refused = "cannot be skipped ahead: where this would begin, shard 0 will be at epoch 5"},
    {.name = "Behind",
     .other = Other::kBehind,
     .sent = {0, 1},
     .refused = "cannot be skipped ahead: where this would begin, shard 0 will be at epoch 5"},
    {.name = "Away", .other = Other::kAway, .sent = {0, 9}, .refused = {}},
    {.name = "Dead",
     .other = Other::kDead,
     .sent = {0, 9},
     .refused = "shard 1 was read when the daemon stopped and has not come back yet",
     .no_swap = "shard 1 was read when the daemon stopped and has not come back yet"},
    {.name = "Replica",
     .other = Other::kReplica,
     .sent = {5, 0},
     .refused = "replica 0 of shard 0 will be at epoch 5"},
    {.name = "Enters",
     .other = Other::kEnters,
     .sent = {5, 0},
     .refused = {},
     .no_swap = "shard 1 is not read from this daemon"},
    {.name = "OfAnotherRun",
     .other = Other::kOfAnotherRun,
     .sent = {0, 9},
     .refused = "cannot be skipped ahead: where this would begin, shard 0 will be at epoch 5"},
};

// Job 'j' on ninety files in batches of two: a rank has read three batches when its loop goes to
// epoch 5.
class SeekTableTest : public SessionsTest, public ::testing::WithParamInterface<Row> {
 protected:
  static constexpr std::uint64_t kRead = 3;

  static Wish shard(std::uint32_t number) {
    return {.pipeline = "q", .job = "j", .shard = number, .credits = wire::kMinCredits};
  }
  static Wish replica(std::uint32_t number) {
    Wish wish = shard(0);
    wish.replicas = 2;
    wish.replica = number;
    wish.credits = 4;  // so many steps they may be apart
    return wish;
  }
  void resize(std::uint32_t shards) {
    const auto resized = sessions_->operate().resize_job(self_, {.job = "j"}, shards);
    ASSERT_TRUE(resized) << resized.error().message();
  }
  void begin(const Row& row) {
    declare_on_more(row.other == Other::kReplica ? 2 : 1);
    if (row.other == Other::kEnters) return enter();
    if (row.other == Other::kReplica) {
      seeker_ = open(replica(0));
      other_ = open(replica(1));
      read(*other_, 1);
      read(seeker_, kRead);
      return go_to_epoch(seeker_, 5);
    }
    resize(2);
    seeker_ = open(shard(0));
    Wish wish = shard(1);
    if (row.other == Other::kOfAnotherRun) {
      wish.cursor = delivery::StreamPosition{.epoch = 0, .position = 36, .step = 9};
      wish.in_run = {.run = 17, .branch = 0, .turn = 9};
    }
    other_ = open(wish);
    read(seeker_, kRead);
    if (row.other == Other::kTogether) read(*other_, kRead);
    if (row.other == Other::kBehind) read(*other_, 1);
    if (row.other == Other::kAhead || row.other == Other::kAway || row.other == Other::kDead)
      read(*other_, 9);
    if (row.other == Other::kAway) kill(*other_);
    if (row.other == Other::kDead) {
      sessions_->keeper().keep();
      sessions_->suspend();
      stop();
      start();
      apply_more();
      ASSERT_TRUE(
          sessions_->records().restore([](const std::string& why) { ADD_FAILURE() << why; }).ok());
      seeker_ = reconnect(seeker_);
    }
    go_to_epoch(seeker_, 5);
    if (row.other == Other::kTogether) go_to_epoch(*other_, 5);
  }
  // The job gets another shard behind what the rank was sent, and the loop seeks before it comes
  // there.
  void enter() {
    seeker_ = open(shard(0));
    read(seeker_, kRead);
    resize(2);
    other_ = Loop{.rank = attach(shard(1)), .wish = shard(1)};
    other_->rank.next<wire::ProgressFrame>(wire::FrameType::kProgress);
    go_to_epoch(seeker_, 5);
  }

  Loop seeker_;
  std::optional<Loop> other_;
};

TEST_P(SeekTableTest, SendsEachRankWhereItIsByTheTurnsOfTheRun) {
  const Row& row = GetParam();
  ASSERT_NO_FATAL_FAILURE(begin(row));
  if (row.other == Other::kReplica) {
    // Replicas see the same batches: the one waits until the other one says the same.
    read(*other_, kRead - 1);
    go_to_epoch(*other_, 5);
  }
  EXPECT_EQ(read(seeker_, 1), (job::StepAt{5, 0}));
  // A replica has slots for no more steps than the other one may be behind.
  if (row.other != Other::kReplica) {
    EXPECT_EQ(read(seeker_, 2), (job::StepAt{5, 2}));
  }
  if (row.other == Other::kAway || row.other == Other::kDead) other_ = reconnect(*other_);
  if (row.other == Other::kEnters) {
    // It begins behind the resize, where the other one came to that turn by its seek.
    while (sessions_->reports().sessions(self_).size() < 2 ||
           sessions_->reports().job(self_, {.job = "j"})->shards.at(1).session == 0)
      read(seeker_, 1);
    take_up(*other_);
    EXPECT_EQ(other_->wish.cursor->epoch, 5U);
    const std::uint64_t turn = other_->wish.in_run.turn;
    EXPECT_EQ(at(step(*other_)), (job::StepAt{5, turn - kRead}));
    return;
  }
  EXPECT_EQ(read(*other_, 1), row.sent);
}

TEST_P(SeekTableTest, LetsAnOperatorChangeTheJobWhereItsRanksAreInOnePlace) {
  const Row& row = GetParam();
  ASSERT_NO_FATAL_FAILURE(begin(row));
  const auto skipped = sessions_->operate().skip_steps(self_, {.job = "j"}, 1);
  if (row.refused.empty()) {
    ASSERT_TRUE(skipped) << skipped.error().message();
    EXPECT_EQ(skipped->dealt_from.epoch, 5U);
  } else {
    ASSERT_FALSE(skipped);
    EXPECT_EQ(skipped.error().code(), Code::kFailedPrecondition);
    EXPECT_THAT(skipped.error().message(), HasSubstr(row.refused));
  }
  // A swap is of a turn, and asks for no place.
  job::ApplyRequest larger;
  larger.yaml = yaml("q", "drop");
  larger.yaml.replace(larger.yaml.find("/data"), 5, "/more");
  larger.yaml.replace(larger.yaml.find("4KiB"), 4, "8KiB");
  larger.file = "-";
  const auto swapped = service_->swap(
      self_, larger, {.job = "j", .at = {.kind = SwapAt::Kind::kNow, .step = {}}}, nullptr);
  EXPECT_EQ(swapped.has_value(), row.no_swap.empty());
  EXPECT_THAT(swapped ? "" : swapped.error().message(), HasSubstr(row.no_swap));
}

INSTANTIATE_TEST_SUITE_P(Seeks, SeekTableTest, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace spdld::session
