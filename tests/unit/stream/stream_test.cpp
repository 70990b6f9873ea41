// SPDX-License-Identifier: Apache-2.0
#include "stream/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/stream/stream_fixture.h"

namespace spdld::stream {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kRows;
using testing::kSteps;
using testing::rows_of;

TEST_F(StreamTest, GivesEachReaderEveryBatchOnceAndInOrder) {
  const auto stream = make();
  const auto first = joined(*stream, 1);
  const auto second = joined(*stream, 2);
  start(stream);
  expect_steps(*stream, {first, second}, 0, kSteps);
  EXPECT_EQ(first->pass(*stream, kSteps), rows_of(0)) << "the next epoch follows";
  stream->leave(first->holder());
  stream->leave(second->holder());
  expect_idle(stream->pool());
}

TEST_F(StreamTest, MakesABatchOnceForAllWhoReadIt) {
  const auto stream = make();
  const auto first = joined(*stream, 1);
  const auto second = joined(*stream, 2);
  start(stream);
  settle(*stream);
  const auto one = first->read(*stream, 0);
  const auto other = second->read(*stream, 0);
  EXPECT_EQ(delivery::SlotTable::slot_of(one.lease), delivery::SlotTable::slot_of(other.lease));
  EXPECT_FALSE(one.shared) << "its own job makes it";
  EXPECT_TRUE(other.shared);
  EXPECT_EQ(stream->phase()->run->process_stats().snapshot().tasks, kSlots * kRows);
}

TEST_F(StreamTest, OffersALateReaderWhatIsStillThere) {
  const auto stream = make();
  const auto first = joined(*stream, 1);
  const auto late = reader(2);
  start(stream);
  settle(*stream);
  EXPECT_EQ(stream->offers(terms(late)), 0U) << "made, and not taken";
  expect_steps(*stream, {first}, 0, 2);
  EXPECT_EQ(stream->offers(terms(late)), 2U);
  EXPECT_FALSE(join(*stream, late)) << "steps 0 and 1 are gone";
  EXPECT_EQ(stream->join(late, terms(late), 5U), 2);
  expect_steps(*stream, {first, late}, 2, 9);
}

TEST_F(StreamTest, OffersNothingThatIsGoneBecauseOfAReaderThatEndsEarlier) {
  const auto stream = make();
  const auto first = joined(*stream, 1);
  const auto ends = joined_until(*stream, 2, 1);
  const auto late = reader(3);
  start(stream);
  expect_steps(*stream, {first}, 0, 3);
  // The slowest stands at step 0, and wants nothing of steps 1 and 2.
  EXPECT_EQ(stream->offers(terms(late)), 3U);
  EXPECT_FALSE(join(*stream, late, 1));
  EXPECT_FALSE(stream->set_until(ends->holder(), 9)) << "steps 1 and 2 are gone for it, too";
  EXPECT_EQ(ends->pass(*stream, 0), rows_of(0));
}

TEST_F(StreamTest, GoesOnWithTheSlotsOfBatchesThatItsReaderPassesOver) {
  const auto stream = make();
  const auto only = joined(*stream, 1);
  start(stream);
  settle(*stream);  // all slots are full, and nobody is to make more
  // What it asks for is not made: nothing but the slots that it gives up says so to the workers.
  EXPECT_FALSE(stream->take(only->holder(), kSlots + 1));
  EXPECT_EQ(only->pass(*stream, kSlots + 1), rows_of(kSlots + 1));
  stream->leave(only->holder());
  expect_idle(stream->pool());
}

TEST_F(StreamTest, NeverGivesAReaderWhatItHasInItsHands) {
  const auto stream = make();
  const auto slow = joined(*stream, 1);
  const auto back = joined(*stream, 2);
  start(stream);
  back->pass(*stream, 0);
  const auto held = back->read(*stream, 1);
  stream->leave(back->holder());
  EXPECT_EQ(stream->offers(terms(back)), 2U);
  EXPECT_FALSE(join(*stream, back));
  back->release(held);
  ASSERT_TRUE(join(*stream, back)) << "now it may have it again";
  expect_steps(*stream, {slow, back}, 0, kSteps);
}

TEST_F(StreamTest, IsNotJoinedByWhoIsAheadOfItOrReadsItAlready) {
  const auto stream = make();
  const auto first = joined(*stream, 1);
  const auto ahead = reader(2);
  start(stream);
  settle(*stream);
  EXPECT_EQ(stream->offers(terms(ahead, kSlots + 1)), std::nullopt);
  EXPECT_FALSE(join(*stream, ahead, kSlots + 1));
  EXPECT_EQ(stream->offers(terms(first)), std::nullopt);
}

TEST_F(StreamTest, OffersNothingOnceItHasEnded) {
  const auto stream = make();
  const auto first = joined(*stream, 1);
  const auto late = reader(2);
  start(stream);
  stream->leave(first->holder());
  EXPECT_TRUE(stream->ended());
  EXPECT_EQ(stream->offers(terms(late)), std::nullopt);
  EXPECT_FALSE(join(*stream, late));
  expect_idle(stream->pool());
}

TEST_F(StreamTest, KeepsNothingForAReaderThatHasLeft) {
  const auto stream = make();
  const auto stays = joined(*stream, 1);
  const auto leaves = joined(*stream, 2);
  start(stream);
  expect_steps(*stream, {stays}, 0, kSlots);
  EXPECT_EQ(stays->poll(*stream, kSlots), std::nullopt) << "the other has all the slots";
  stream->leave(leaves->holder());
  expect_steps(*stream, {stays}, kSlots, kSteps);
  EXPECT_THAT(stream->jobs(), ElementsAre(1));
}

TEST_F(StreamTest, LeavesWhatAReaderHoldsInItsHands) {
  const auto stream = make();
  const auto stays = joined(*stream, 1);
  const auto leaves = joined(*stream, 2);
  start(stream);
  const auto held = leaves->read(*stream, 0);
  stream->leave(leaves->holder());
  expect_steps(*stream, {stays}, 0, 3 * kSlots);
  EXPECT_EQ(stream->pool()->slots().held(leaves->holder()), 1U);
  leaves->release(held);
}

TEST_F(StreamTest, JumpsOverWhatNobodyWantsAnyMore) {
  const auto stream = make();
  const auto only = joined(*stream, 1);
  start(stream);
  settle(*stream);
  EXPECT_TRUE(stream->jump(only->holder(), 3 * kSteps + 5, 0));
  EXPECT_EQ(only->pass(*stream, 3 * kSteps + 5), rows_of(5));
  EXPECT_EQ(only->pass(*stream, 3 * kSteps + 6), rows_of(6));
}

TEST_F(StreamTest, JumpsToAStepThatIsReady) {
  const auto stream = make();
  const auto only = joined(*stream, 1);
  start(stream);
  settle(*stream);
  EXPECT_TRUE(stream->jump(only->holder(), 2, 0));
  EXPECT_EQ(only->pass(*stream, 2), rows_of(2));
}

TEST_F(StreamTest, NeverJumpsBackNorAheadOfAnotherJob) {
  const auto stream = make();
  const auto first = joined(*stream, 1);
  const auto second = joined(*stream, 2);
  start(stream);
  first->pass(*stream, 0);
  EXPECT_FALSE(stream->jump(first->holder(), 0, 0));
  EXPECT_FALSE(stream->jump(first->holder(), 2 * kSteps, 0));
  EXPECT_FALSE(stream->jump(99, 1, 0)) << "nobody";
  EXPECT_EQ(first->pass(*stream, 1), rows_of(1)) << "and nothing was done";
}

TEST_F(StreamTest, MakesNothingFromWhereItsReadersEnd) {
  const auto stream = make();
  const auto only = joined_until(*stream, 1, 2);
  start(stream);
  expect_steps(*stream, {only}, 0, 2);
  EXPECT_EQ(only->poll(*stream, 2), std::nullopt);
  EXPECT_TRUE(stream->pool()->slots().idle());
  stream->set_until(only->holder(), kNoIndex);
  EXPECT_EQ(only->pass(*stream, 2), rows_of(2));
}

TEST_F(StreamTest, CountsAsReadableNothingBehindABatchThatIsStillInTheMaking) {
  source_->hold(kRows);  // the first row of step 1
  const auto stream = make();
  const auto only = joined(*stream, 1);
  start(stream);
  source_->wait_for_readers(1);
  const auto settled_but_one = [&] { return stream->pool()->slots().counts().ready == kSlots - 1; };
  while (!settled_but_one()) std::this_thread::yield();
  EXPECT_EQ(stream->readable(only->holder()).batches, 1U);
  only->pass(*stream, 0);
  EXPECT_EQ(stream->readable(only->holder()).batches, 0U) << "steps 2 and 3 are finished";
  source_->answer();
  only->pass(*stream, 1);
  EXPECT_GE(stream->readable(only->holder()).batches, 2U);
}

TEST_F(StreamTest, FreesWhatAReaderIsNotToReadAnyMore) {
  const auto stream = make();
  const auto shorter = joined(*stream, 1);
  const auto other = joined(*stream, 2);
  start(stream);
  settle(*stream);
  stream->set_until(shorter->holder(), 1);
  expect_steps(*stream, {other}, 0, kSlots);
  EXPECT_EQ(stream->readable(shorter->holder()).batches, 1U);
  EXPECT_TRUE(stream->readable(shorter->holder()).to_its_end);
  EXPECT_FALSE(stream->readable(other->holder()).to_its_end);
  stream->set_until(shorter->holder(), 2);
  EXPECT_EQ(shorter->pass(*stream, 0), rows_of(0));
}

TEST_F(StreamTest, KeepsWhatIsReadyForAReaderWhoseEndMovesOn) {
  const auto stream = make();
  const auto longer = joined_until(*stream, 1, 1);
  const auto other = joined(*stream, 2);
  start(stream);
  settle(*stream);
  stream->set_until(longer->holder(), kNoIndex);
  expect_steps(*stream, {other, longer}, 0, kSlots);
}

TEST_F(StreamTest, MakesAnEpochOnlyWhenItIsOpen) {
  const auto stream = make();
  const auto only = reader(1);
  ReaderTerms one_epoch = terms(only, kSteps - 1);
  one_epoch.open_epochs = 1;
  ASSERT_TRUE(stream->join(only, one_epoch, one_epoch.next));
  start(stream);
  only->pass(*stream, kSteps - 1);
  EXPECT_EQ(only->poll(*stream, kSteps), std::nullopt);
  stream->open_epochs(only->holder(), 2);
  EXPECT_EQ(only->pass(*stream, kSteps), rows_of(0));
}

TEST_F(StreamTest, BeginsNothingWhileItIsHeld) {
  const auto stream = make();
  const auto only = joined(*stream, 1);
  EXPECT_EQ(stream->hold(), 0U) << "nothing has begun";
  start(stream);
  EXPECT_EQ(only->poll(*stream, 0), std::nullopt);
  EXPECT_EQ(stream->hold(), 0U);
  stream->go_on();
  EXPECT_EQ(stream->pool()->slots().counts().free, kSlots) << "another one still holds it";
  stream->go_on();
  only->pass(*stream, 0);
  settle(*stream);
  EXPECT_EQ(stream->hold(), kSlots + 1);
  stream->go_on();
}

TEST_F(StreamTest, BeginsWhenTheOneBeforeHasBegunEverything) {
  const auto before = make();
  const auto only = joined_until(*before, 1, 6);
  StreamOptions options{.span = span({0, 6}), .maker = 1, .after = before};
  const auto next = make(std::move(options));
  ASSERT_TRUE(join(*next, only));
  before->lead(next);
  start(next);
  EXPECT_EQ(only->poll(*next, 0), std::nullopt);
  EXPECT_EQ(next->pool()->slots().counts().free, kSlots);
  start(before);
  expect_steps(*before, {only}, 0, 6);
  EXPECT_EQ(only->pass(*next, 0), rows_of(6));
}

TEST_F(StreamTest, WaitsForTheOneBeforeAsLongAsAReaderGoesOnThere) {
  const auto before = make();
  const auto only = joined_until(*before, 1, 2);
  const auto next = make({.span = span({0, 6}), .maker = 1, .after = before});
  ASSERT_TRUE(join(*next, only));
  before->lead(next);
  ASSERT_TRUE(before->set_until(only->holder(), 6));
  start(next);
  start(before);
  settle(*before);  // two of its batches have no slots yet
  EXPECT_EQ(next->pool()->slots().counts().free, kSlots);
  ASSERT_TRUE(before->set_until(only->holder(), 3));
  EXPECT_EQ(only->pass(*next, 0), rows_of(6));
}

TEST_F(StreamTest, DoesNotWaitForOneThatHasEnded) {
  const auto before = make();
  const auto only = joined_until(*before, 1, 6);
  StreamOptions options{.span = span({0, 6}), .maker = 1, .after = before};
  const auto next = make(std::move(options));
  ASSERT_TRUE(join(*next, only));
  before->lead(next);
  start(next);
  start(before);
  settle(*before);  // two of its batches have no slots yet
  before->leave(only->holder());
  EXPECT_EQ(only->pass(*next, 0), rows_of(6));
}

TEST_F(StreamTest, FailsOnlyTheJobThatCannotBearALoss) {
  source_->fail(5, Status(Code::kDataLoss, "truncated"));
  const auto stream = make();
  const auto patient = joined(*stream, 1);
  const auto strict = joined(*stream, reader(2, 0));
  start(stream);
  EXPECT_EQ(strict->wait_for_failure().message(), "no more of them");
  for (std::uint64_t step = 0; step < kSteps; ++step) patient->pass(*stream, step);
  EXPECT_FALSE(patient->has_failed());
  EXPECT_THAT(patient->judge_of.items(), Each(5));
  EXPECT_THAT(stream->jobs(), ElementsAre(1));
}

TEST_F(StreamTest, FailsAllWhenNobodyCanBearALoss) {
  source_->fail(5, Status(Code::kDataLoss, "truncated"));
  const auto stream = make();
  const auto one = joined(*stream, reader(1, 0));
  const auto other = joined(*stream, reader(2, 0));
  start(stream);
  EXPECT_EQ(one->wait_for_failure().message(), "no more of them");
  EXPECT_EQ(other->wait_for_failure().message(), "no more of them");
  EXPECT_TRUE(stream->ended());
}

TEST_F(StreamTest, AsksOnlyThoseWhoReadTheStepAtHand) {
  source_->fail(5, Status(Code::kDataLoss, "truncated"));  // step 1
  const auto stream = make();
  const auto first = joined(*stream, 1);
  const auto brief = joined(*stream, reader(2, 0));
  stream->set_until(brief->holder(), 1);
  start(stream);
  for (std::uint64_t step = 0; step < 3; ++step) first->pass(*stream, step);
  EXPECT_FALSE(brief->has_failed());
  EXPECT_EQ(brief->pass(*stream, 0), rows_of(0));
}

TEST_F(StreamTest, TellsALaterReaderWhatWasReplacedBeforeItCame) {
  source_->fail(5, Status(Code::kDataLoss, "truncated"));
  const auto stream = make();
  const auto first = joined(*stream, 1);
  const auto late = reader(2);
  start(stream);
  settle(*stream);
  ASSERT_TRUE(join(*stream, late));
  EXPECT_THAT(late->read(*stream, 0).replaced, IsEmpty());
  const auto batch = late->read(*stream, 1);
  ASSERT_EQ(batch.replaced.size(), 1U);
  EXPECT_EQ(batch.replaced[0].item, 5U);
  first->pass(*stream, 0);
  EXPECT_THAT(first->read(*stream, 1).replaced, IsEmpty()) << "it was asked at the time";
}

TEST_F(StreamTest, TellsAllReadersWhyNothingFollows) {
  source_->fail(5, Status(Code::kUnavailable, "I/O error"));
  const auto stream = make();
  const auto one = joined(*stream, 1);
  const auto other = joined(*stream, 2);
  start(stream);
  EXPECT_THAT(one->wait_for_failure().message(), HasSubstr("I/O error"));
  EXPECT_THAT(other->wait_for_failure().message(), HasSubstr("I/O error"));
  stream->leave(one->holder());
  stream->leave(other->holder());
  expect_idle(stream->pool());
}

TEST_F(StreamTest, NamesWhoIsHeldUpByAnotherJob) {
  const auto stream = make();
  const auto fast = joined(*stream, 1);
  const auto stuck = joined(*stream, 2);
  start(stream);
  clock_.advance(std::chrono::milliseconds(1000));
  EXPECT_THAT(stream->held_up(), IsEmpty()) << "nothing was asked for";
  expect_steps(*stream, {fast}, 0, kSlots);
  EXPECT_EQ(fast->poll(*stream, kSlots), std::nullopt);
  clock_.advance(std::chrono::milliseconds(150));
  stuck->pass(*stream, 0);
  (void)fast->read(*stream, kSlots);
  clock_.advance(std::chrono::milliseconds(850));
  EXPECT_THAT(stream->held_up(), IsEmpty()) << "less than a fifth of the time";
  EXPECT_EQ(fast->poll(*stream, kSlots + 1), std::nullopt);
  clock_.advance(std::chrono::milliseconds(1000));
  EXPECT_THAT(stream->held_up(), ElementsAre(fast));
}

TEST_F(StreamTest, HoldsNobodyUpWhoHasNothingElseToReadHere) {
  const auto stream = make_replicated(2);
  const auto fast = joined(*stream, 1);
  const auto slow = joined(*stream, 1, 1);
  start(stream);
  expect_steps(*stream, {fast}, 0, kSlots);
  EXPECT_EQ(fast->poll(*stream, kSlots), std::nullopt);
  clock_.advance(std::chrono::milliseconds(5000));
  EXPECT_THAT(stream->held_up(), IsEmpty()) << "replicas wait for each other";
}

TEST_F(StreamTest, BeginsOnceNoneOfItsReadersWaitsForTheStreamBeforeIt) {
  const auto before = make();
  const auto mine = joined_until(*before, 1, 10);
  const auto other = joined(*before, 2);
  start(before);
  auto options = StreamOptions{.span = span(phase("other"), {0, 10}), .maker = 1, .after = before};
  const auto next = make(std::move(options));
  ASSERT_TRUE(join(*next, mine));
  before->lead(next);
  start(next);
  settle(*before);  // the other reads nothing: that stream never comes to step 10
  EXPECT_EQ(next->pool()->slots().counts().free, kSlots);
  before->leave(mine->holder());
  EXPECT_EQ(mine->pass(*next, 0), rows_of(10));
  EXPECT_EQ(other->pass(*before, 0), rows_of(0));
}

}  // namespace
}  // namespace spdld::stream
