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
          .shuffle = {.kind = Shuffle::Kind::kGlobal},
          .seed = 42};
}

TEST(Cursor, ComesBackFromItsText) {
  const Cursor cursor = Cursor::at(order(), 3, 256, 4);
  const auto parsed = Cursor::parse(cursor.text());
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(*parsed, cursor);
  EXPECT_TRUE(check(*parsed, order()).ok());
}

TEST(Cursor, HoldsTheLargestNumbers) {
  Cursor cursor = Cursor::at(order(), 0, 0, 0);
  cursor.items = cursor.seed = cursor.epoch = cursor.position = cursor.step = ~std::uint64_t{0};
  const auto parsed = Cursor::parse(cursor.text());
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(*parsed, cursor);
}

// Saved in users' checkpoints: never change it, give a new form a new prefix.
TEST(Cursor, HasThePinnedText) {
  EXPECT_EQ(Cursor::at(order(), 3, 256, 4).text(),
            "spdld1:ef8e475fdbca8043d5623e16a6d0ddc8:500:42:3:256:4");
}

TEST(Cursor, RefusesWhateverIsNoCursor) {
  const std::string digest(32, 'a');
  for (const std::string& text : {
           std::string(),
           std::string("spdld1"),
           "spdld2:" + digest + ":1:2:3:0:5",
           "spdld1:" + digest + ":1:2:3:0",
           "spdld1:" + digest + ":1:2:3:0:5:6",
           "spdld1:" + digest + ":1:2:3:0:5:",
           "spdld1:" + digest + ":1:2:3::5",
           "spdld1:" + digest + ":1:2:3:0:-5",
           "spdld1:" + digest + ":1:2:3:0:+5",
           "spdld1:" + digest + ":1:2:3:0: 5",
           "spdld1:" + digest + ":1:2:3:0:5 ",
           "spdld1:" + digest + ":1:2:3:0:5\n",
           "spdld1:" + digest + ":1:2:3:0:05",
           "spdld1:" + digest + ":1:2:3:0:0x5",
           "spdld1:" + digest + ":1:2:3:0:18446744073709551616",
           "spdld1:" + digest + ":1:2:3:2:5",
           "spdld1:" + std::string(31, 'a') + ":1:2:3:0:5",
           "spdld1:" + std::string(32, 'A') + ":1:2:3:0:5",
           "spdld1:" + std::string(32, 'g') + ":1:2:3:0:5",
           " spdld1:" + digest + ":1:2:3:0:5",
       }) {
    const auto parsed = Cursor::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message(), HasSubstr("is no cursor")) << text;
  }
}

TEST(Cursor, ShowsOnlyTheBeginningOfWhatItRefuses) {
  const auto parsed = Cursor::parse(std::string(1 << 20, 'x'));
  ASSERT_FALSE(parsed);
  EXPECT_LT(parsed.error().message().size(), 500u);
}

TEST(Cursor, SaysThatItemsCameOrWent) {
  const Cursor cursor = Cursor::at(order(), 0, 10, 1);
  Order current = order();
  current.items = 501;
  current.listing_digest = "another";
  const Status status = check(cursor, current);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("the dataset had 500 items, now it has 501"),
                                      Not(HasSubstr("shuffle")), Not(HasSubstr("seed"))));
}

TEST(Cursor, SaysThatItemsWereRenamed) {
  Order current = order();
  current.listing_digest = "another";
  const Status status = check(Cursor::at(order(), 0, 10, 1), current);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("still has 500 items, but their names"));
}

TEST(Cursor, SaysThatTheShuffleChanged) {
  Order current = order();
  current.shuffle = {.kind = Shuffle::Kind::kBlock, .block = 64, .interleave = 2};
  const Status status = check(Cursor::at(order(), 0, 10, 1), current);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("shuffle"), HasSubstr("{block: 64, interleave: 2}"),
                                      Not(HasSubstr("dataset"))));
}

TEST(Cursor, SaysThatTheSeedChanged) {
  Order current = order();
  current.seed = 7;
  const Status status = check(Cursor::at(order(), 0, 10, 1), current);
  EXPECT_THAT(status.message(), HasSubstr("the seed was 42, now it is 7"));
}

TEST(Cursor, NamesAllThatChanged) {
  Order current = order();
  current.seed = 7;
  current.items = 3;
  current.shuffle.kind = Shuffle::Kind::kNone;
  EXPECT_THAT(check(Cursor::at(order(), 0, 1, 1), current).message(),
              AllOf(HasSubstr("500"), HasSubstr("shuffle"), HasSubstr("seed")));
}

Order order_by_length() {
  Order by_length = order();
  by_length.shuffle.bucket = Shuffle::Bucket{.by = "duration", .window = 8192, .run = 128};
  by_length.lengths_digest = "0123456789abcdef";
  return by_length;
}

// As HasThePinnedText.
TEST(Cursor, HasThePinnedDigestOfAnOrderByLength) {
  EXPECT_EQ(order_by_length().digest(), "ef8e475fdbca8043c6b3762164439946");
}

TEST(Cursor, OfAnOrderWithoutLengthsIsNoneOfOneWithThem) {
  const Status status = check(Cursor::at(order(), 0, 10, 1), order_by_length());
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("the shuffle was another one, now it is {global: {bucket: {by: duration, "
                        "window: 8192, run: 128}}};"));
  EXPECT_THAT(check(Cursor::at(order_by_length(), 0, 10, 1), order()).message(),
              HasSubstr("the shuffle was another one, now it is global;"));
}

TEST(Cursor, SaysThatTheRunOrWindowChanged) {
  const Cursor cursor = Cursor::at(order_by_length(), 0, 10, 1);
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
  const Status status = check(Cursor::at(order_by_length(), 0, 10, 1), current);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("the lengths 'duration', by which the items are put "
                              "in order, are not the same;"),
                    Not(HasSubstr("shuffle")), Not(HasSubstr("dataset"))));
  current.items = 499;
  EXPECT_THAT(check(Cursor::at(order_by_length(), 0, 10, 1), current).message(),
              AllOf(HasSubstr("had 500 items"), Not(HasSubstr("lengths"))));
}

TEST(Cursor, RefusesADamagedDigest) {
  Cursor cursor = Cursor::at(order(), 0, 10, 1);
  cursor.order = "";
  EXPECT_FALSE(check(cursor, order()).ok());
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
