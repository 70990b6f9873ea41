// SPDX-License-Identifier: Apache-2.0
#include "engine/failure_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdld::engine {
namespace {

using ::testing::HasSubstr;

SampleFailure failure(std::uint64_t item) {
  return {.epoch = 1,
          .position = 2,
          .item = item,
          .uri = "a/" + std::to_string(item),
          .status = Status(Code::kDataLoss, "truncated")};
}

TEST(FailureLog, CountsAnItemOnceHoweverOftenItFails) {
  FailureLog log(1, {}, 0);
  bool is_new = false;
  EXPECT_TRUE(log.admit(failure(7), is_new).ok());
  EXPECT_TRUE(is_new);
  EXPECT_TRUE(log.admit(failure(7), is_new).ok());
  EXPECT_FALSE(is_new);
  EXPECT_EQ(log.replaced(), 1U);
}

TEST(FailureLog, RefusesOverBudgetAndNamesItemNumbersAndWayOut) {
  FailureLog log(1, {}, 0);
  bool is_new = false;
  ASSERT_TRUE(log.admit(failure(7), is_new).ok());
  const Status refused = log.admit(failure(8), is_new);
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("item 8 (a/8): truncated"));
  EXPECT_THAT(refused.message(), HasSubstr("1 item was replaced already"));
  EXPECT_THAT(refused.message(), HasSubstr("raise the budget"));
}

TEST(FailureLog, RemembersWhatWasReplacedBeforeARestart) {
  FailureLog log(1, {7}, 0);
  bool is_new = true;
  EXPECT_TRUE(log.admit(failure(7), is_new).ok());
  EXPECT_FALSE(is_new);
  EXPECT_FALSE(log.admit(failure(8), is_new).ok());
}

TEST(FailureLog, DoesNotListWhatIsOverBudgetAsReplaced) {
  FailureLog log(0, {}, 0);
  bool is_new = false;
  const Status refused = log.admit(failure(8), is_new);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(log.recent().empty());
  log.record(ended_by(failure(8), refused));
  ASSERT_EQ(log.recent().size(), 1U);
  EXPECT_TRUE(log.recent().front().facts.ended_stream);
  EXPECT_EQ(log.last_end(), refused.message());
}

TEST(FailureLog, CountsOnceWhatSeveralConsumersTell) {
  FailureLog log(1, {}, 0);
  const StreamFailure end = ended_by(failure(3), Status(Code::kNotFound, "gone"));
  log.record(end);
  log.record(end);
  log.record({.status = Status(Code::kResourceExhausted, "no room")});
  ASSERT_EQ(log.recent().size(), 2U);
  EXPECT_EQ(log.recent()[0].facts.sample->item, 3U);
  EXPECT_EQ(log.recent()[0].facts.code, "NOT_FOUND");
  EXPECT_FALSE(log.recent()[1].facts.sample);
  EXPECT_EQ(log.last_end(), "no room");
}

TEST(FailureLog, NumbersFailuresBehindThoseBeforeARestart) {
  FailureLog log(9, {}, 41);
  bool is_new = false;
  for (const std::uint64_t item : {1, 2, 3}) ASSERT_TRUE(log.admit(failure(item), is_new).ok());
  EXPECT_EQ(log.recent().front().number, 42U);
  ASSERT_EQ(log.behind(43).size(), 1U);
  EXPECT_EQ(log.behind(43).front().facts.sample->item, 3U);
}

TEST(FailureLog, KeepsNoMoreThanItsBound) {
  FailureLog log(1, {7}, 0);
  bool is_new = false;
  for (std::size_t i = 0; i < FailureLog::kKept + 10; ++i)
    ASSERT_TRUE(log.admit(failure(7), is_new).ok());
  EXPECT_EQ(log.recent().size(), FailureLog::kKept);
}

}  // namespace
}  // namespace spdld::engine
