// SPDX-License-Identifier: Apache-2.0
#include "source/order/cursor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace spdld::source {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Order order() {
  return {.listing_digest = "0123456789abcdef0123456789abcdef",
          .items = 500,
          .shuffle = {.kind = Shuffle::Kind::kGlobal}};
}

Cursor cursor_in(const Order& order) {
  return {.order = order.digest(), .items = order.items, .position = 10};
}

// Saved in users' checkpoints: never change it.
TEST(Order, HasThePinnedDigest) { EXPECT_EQ(order().digest(), "ef8e475fdbca8043d5623e16a6d0ddc8"); }

TEST(Cursor, SaysThatItemsCameOrWent) {
  const Cursor cursor = cursor_in(order());
  Order current = order();
  current.items = 501;
  current.listing_digest = "another";
  const Status status = check(cursor, current);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("the dataset had 500 items, now it has 501"),
                                      Not(HasSubstr("shuffle"))));
}

TEST(Cursor, SaysThatItemsWereRenamed) {
  Order current = order();
  current.listing_digest = "another";
  const Status status = check(cursor_in(order()), current);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("still has 500 items, but their names"));
}

TEST(Cursor, SaysThatTheShuffleChanged) {
  Order current = order();
  current.shuffle = {.kind = Shuffle::Kind::kBlock, .block = 64, .interleave = 2};
  const Status status = check(cursor_in(order()), current);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("shuffle"), HasSubstr("{block: 64, interleave: 2}"),
                                      Not(HasSubstr("dataset"))));
}

TEST(Cursor, NamesAllThatChanged) {
  Order current = order();
  current.items = 3;
  current.shuffle.kind = Shuffle::Kind::kNone;
  EXPECT_THAT(check(cursor_in(order()), current).message(),
              AllOf(HasSubstr("500"), HasSubstr("shuffle")));
}

Order order_by_length() {
  Order by_length = order();
  by_length.shuffle.bucket = Shuffle::Bucket{.by = "duration", .window = 8192, .run = 128};
  by_length.lengths_digest = "0123456789abcdef";
  return by_length;
}

// Likewise.
TEST(Order, ByLengthHasThePinnedDigest) {
  EXPECT_EQ(order_by_length().digest(), "ef8e475fdbca8043c6b3762164439946");
}

TEST(Cursor, OfAnOrderWithoutLengthsIsNoneOfOneWithThem) {
  const Status status = check(cursor_in(order()), order_by_length());
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("the shuffle was another one, now it is {global: {bucket: {by: duration, "
                        "window: 8192, run: 128}}};"));
  EXPECT_THAT(check(cursor_in(order_by_length()), order()).message(),
              HasSubstr("the shuffle was another one, now it is global;"));
}

TEST(Cursor, SaysThatTheRunOrWindowChanged) {
  const Cursor cursor = cursor_in(order_by_length());
  EXPECT_TRUE(check(cursor, order_by_length()).ok());
  Order current = order_by_length();
  current.shuffle.bucket->run = 192;
  EXPECT_THAT(check(cursor, current).message(), HasSubstr("now it is {global: {bucket: {by: "
                                                          "duration, window: 8192, run: 192}}};"));
  current = order_by_length();
  current.shuffle.bucket->window = 4096;
  EXPECT_THAT(check(cursor, current).message(), HasSubstr("window: 4096"));
  current = order_by_length();
  current.shuffle.bucket->by = "words";
  EXPECT_THAT(check(cursor, current).message(), HasSubstr("by: words"));
}

TEST(Cursor, SaysThatTheLengthsChanged) {
  Order current = order_by_length();
  current.lengths_digest = "fedcba9876543210";
  const Status status = check(cursor_in(order_by_length()), current);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("the lengths 'duration', by which the items are put "
                              "in order, are not the same;"),
                    Not(HasSubstr("shuffle")), Not(HasSubstr("dataset"))));
  current.items = 499;
  EXPECT_THAT(check(cursor_in(order_by_length()), current).message(),
              AllOf(HasSubstr("had 500 items"), Not(HasSubstr("lengths"))));
}

TEST(Cursor, RefusesADamagedDigest) {
  Cursor cursor = cursor_in(order());
  cursor.order = "";
  EXPECT_FALSE(check(cursor, order()).ok());
}

TEST(Cursor, RefusesAPositionBehindTheLastItem) {
  Cursor cursor = cursor_in(order());
  cursor.position = 500;
  EXPECT_TRUE(check(cursor, order()).ok());
  cursor.position = 501;
  EXPECT_THAT(check(cursor, order()).message(), HasSubstr("behind the last of 500 items"));
}

TEST(Cursor, SaysThatTheRepeatChanged) {
  Order current = order();
  current.shuffle.repeat = {.rows = 4};
  EXPECT_THAT(check(cursor_in(order()), current).message(),
              AllOf(HasSubstr("now it is global with repeat {rows: 4, adjacent: true};"),
                    Not(HasSubstr("dataset"))));
  Cursor cursor = cursor_in(current);
  cursor.position = 2000;
  EXPECT_TRUE(check(cursor, current).ok());
  cursor.position = 2001;
  EXPECT_THAT(check(cursor, current).message(), HasSubstr("behind the last of 2000 rows"));
  current.shuffle.repeat.adjacent = false;
  EXPECT_THAT(check(cursor, current).message(), HasSubstr("{rows: 4, adjacent: false}"));
  EXPECT_THAT(check(cursor, order()).message(), HasSubstr("now it is global;"));
}

TEST(Order, IgnoresTheParametersOfAnotherShuffle) {
  Order a = order();
  Order b = order();
  b.shuffle.block = 1;
  EXPECT_EQ(a.digest(), b.digest());
  a.shuffle.kind = b.shuffle.kind = Shuffle::Kind::kBlock;
  EXPECT_NE(a.digest(), b.digest());
}

}  // namespace
}  // namespace spdld::source
