// SPDX-License-Identifier: Apache-2.0
#include "stream/slot_pool.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/stream/stream_fixture.h"

namespace spdld::stream {
namespace {

using testing::kSteps;
using testing::Reader;
using testing::ReaderPtr;
using testing::rows_of;

// Streams that have their slots from one pool, each with a reader of its own or the same one.
class SlotPoolTest : public StreamTest {
 protected:
  std::shared_ptr<Stream> make_in(const std::shared_ptr<SlotPool>& pool, StreamOptions options) {
    return std::make_shared<Stream>(std::move(options), pool, executor_, clock_);
  }
  // One that begins at step 6 when `before` has begun its first 6 batches.
  std::shared_ptr<Stream> make_following(const std::shared_ptr<Stream>& before,
                                         const ReaderPtr& reader) {
    auto next =
        make_in(before->pool(), {.span = span({0, 6}), .maker = reader->job, .after = before});
    EXPECT_TRUE(join(*next, reader));
    before->lead(next);
    return next;
  }
};

TEST_F(SlotPoolTest, EveryStreamIsToldOfSlotsThatBecomeFree) {
  const auto first = make();
  const auto second = make_in(first->pool(), {.span = span(), .maker = 2});
  const auto one = joined_until(*first, 1, kSlots);
  const auto other = joined(*second, 2);
  start(first);
  settle(*first);  // it has all slots, and needs no other
  start(second);
  EXPECT_EQ(other->poll(*second, 0), std::nullopt);
  expect_steps(*first, {one}, 0, 1);
  expect_steps(*second, {other}, 0, 1);
  expect_steps(*first, {one}, 1, kSlots);
  expect_steps(*second, {other}, 1, kSteps);
}

TEST_F(SlotPoolTest, AFollowingStreamTakesNoSlotThatTheOneBeforeNeeds) {
  const auto before = make();
  const auto only = joined_until(*before, 1, 6);
  const auto next = make_following(before, only);
  start(next);
  start(before);
  settle(*before);
  EXPECT_EQ(next->readable(only->holder()).batches, 0U);
  expect_steps(*before, {only}, 0, 6);
  for (Index at = 0; at < kSteps - 6; ++at) EXPECT_EQ(only->pass(*next, at), rows_of(6 + at));
}

TEST_F(SlotPoolTest, WhatAReaderHoldsOfAnEndedStreamIsLaterTheNextOnes) {
  const auto before = make();
  const auto only = joined_until(*before, 1, 6);
  const auto next = make_following(before, only);
  start(next);
  start(before);
  expect_steps(*before, {only}, 0, 2);
  std::vector<Reader::Batch> held;
  for (Index at = 2; at < 6; ++at) held.push_back(only->read(*before, at));
  before->leave(only->holder());
  EXPECT_TRUE(before->ended());
  EXPECT_EQ(only->poll(*next, 0), std::nullopt);
  for (const Reader::Batch& batch : held) only->release(batch);
  for (Index at = 0; at < kSteps - 6; ++at) EXPECT_EQ(only->pass(*next, at), rows_of(6 + at));
  next->leave(only->holder());
  expect_idle(next->pool());
}

}  // namespace
}  // namespace spdld::stream
