// SPDX-License-Identifier: Apache-2.0
#include "engine/row_fetch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "tests/support/clocks.h"
#include "tests/support/fake_source.h"

namespace spdld::engine {
namespace {

class NoSink final : public source::FetchSink {
 public:
  void fetched(std::uint64_t, Status) override { FAIL() << "nothing is pending"; }
};

TEST(RowFetch, LeavesNoClipOfTheItemThatTheRowHadBefore) {
  testing::FakeSource source({"clip", "whole"});
  source.on_given = [](std::uint64_t item, source::FetchedItem& out) {
    if (item == 0) out.clips.set(0).stream.codec = std::make_shared<const CodecParameters>();
  };
  Plan plan;
  plan.requests = {{}};
  const SystemClock clock;
  RowFetch fetch(plan, source, nullptr, clock);
  NoSink sink;
  RowBytes bytes;
  ASSERT_EQ(fetch.bring(0, bytes, sink, 1), source::FetchState::kReady);
  EXPECT_NE(fetch.clip(bytes, 0), nullptr);
  bytes.restart();
  ASSERT_EQ(fetch.bring(1, bytes, sink, 2), source::FetchState::kReady);
  EXPECT_EQ(fetch.clip(bytes, 0), nullptr);
  EXPECT_EQ(fetch.part(bytes, 0).size(), 5u);
}

TEST(RowFetch, TellsTheTimeInLineForAThreadFromTheTimeOfTheRead) {
  class Sink final : public source::FetchSink {
   public:
    void fetched(std::uint64_t, Status) override { ++answers; }
    int answers = 0;
  };
  testing::FakeSource source({"late", "at once"});
  source.hold(0);
  source.on_given = [](std::uint64_t item, source::FetchedItem& out) {
    if (item == 0) out.queued = std::chrono::milliseconds(7);
  };
  Plan plan;
  plan.requests = {{}};
  testing::HandClock clock;
  RowFetch fetch(plan, source, nullptr, clock);
  Sink sink;
  RowBytes bytes;
  ASSERT_EQ(fetch.bring(0, bytes, sink, 1), source::FetchState::kPending);
  clock.advance(std::chrono::milliseconds(10));
  ASSERT_EQ(source.answer(), 1U);
  ASSERT_EQ(sink.answers, 1);
  fetch.ended(bytes, {});
  EXPECT_EQ(fetch.stats().snapshot().busy, std::chrono::milliseconds(3));
  EXPECT_EQ(fetch.stats().snapshot().wait, std::chrono::milliseconds(7));

  bytes.restart();  // what the last read waited does not count for the next one
  ASSERT_EQ(fetch.bring(1, bytes, sink, 2), source::FetchState::kReady);
  EXPECT_EQ(fetch.stats().snapshot().busy, std::chrono::milliseconds(3));
  EXPECT_EQ(fetch.stats().snapshot().wait, std::chrono::milliseconds(7));
}

}  // namespace
}  // namespace spdld::engine
