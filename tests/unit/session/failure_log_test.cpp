// SPDX-License-Identifier: Apache-2.0
#include "session/failure_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

engine::SampleFailure failure(std::uint64_t item) {
  return {.epoch = 1,
          .position = 2,
          .item = item,
          .uri = "a/" + std::to_string(item),
          .status = Status(Code::kDataLoss, "truncated")};
}

TEST(FailureLog, CountsAnItemOnceHoweverOftenItFails) {
  FailureLog log(1, {});
  bool is_new = false;
  EXPECT_TRUE(log.admit(failure(7), is_new).ok());
  EXPECT_TRUE(is_new);
  EXPECT_TRUE(log.admit(failure(7), is_new).ok());
  EXPECT_FALSE(is_new);
  EXPECT_EQ(log.replaced(), 1U);
}

TEST(FailureLog, RefusesOverBudgetAndNamesItemNumbersAndWayOut) {
  FailureLog log(1, {});
  bool is_new = false;
  ASSERT_TRUE(log.admit(failure(7), is_new).ok());
  const Status refused = log.admit(failure(8), is_new);
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("item 8 (a/8): truncated"));
  EXPECT_THAT(refused.message(), HasSubstr("1 item was replaced already"));
  EXPECT_THAT(refused.message(), HasSubstr("raise the budget"));
}

TEST(FailureLog, RemembersWhatWasReplacedBeforeARestart) {
  FailureLog log(1, {7});
  bool is_new = true;
  EXPECT_TRUE(log.admit(failure(7), is_new).ok());
  EXPECT_FALSE(is_new);
  EXPECT_FALSE(log.admit(failure(8), is_new).ok());
}

TEST(FailureLog, KeepsNoMoreThanItsBound) {
  FailureLog log(1, {7});
  bool is_new = false;
  for (std::size_t i = 0; i < FailureLog::kKept + 10; ++i)
    ASSERT_TRUE(log.admit(failure(7), is_new).ok());
  EXPECT_EQ(log.recent().size(), FailureLog::kKept);
}

}  // namespace
}  // namespace spdld::session
