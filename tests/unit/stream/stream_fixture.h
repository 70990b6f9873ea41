// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>

#include "stream/stream.h"
#include "tests/unit/stream/reading.h"

namespace spdld::stream {

// Of each stream's own arena.
inline constexpr std::uint32_t kSlots = 4;

// One stream, of which a test reads as whoever it needs.
class StreamTest : public testing::StreamsFixture {
 protected:
  std::shared_ptr<Stream> make(StreamOptions options) {
    const delivery::ArenaShape shape{.slot_bytes = plan_->layout.slot_bytes(),
                                     .slot_count = kSlots};
    auto pool = SlotPool::create(shape, 0, arenas_, meter_, executor_);
    EXPECT_TRUE(pool) << pool.error().message();
    auto stream = std::make_shared<Stream>(std::move(options), *pool, executor_, clock_);
    return stream;
  }
  std::shared_ptr<Stream> make() { return make(StreamOptions{.span = span(), .maker = 1}); }
  // One of `replicas`; all the others are awaited.
  std::shared_ptr<Stream> make_replicated(std::uint32_t replicas,
                                          AbsentReplica absent = AbsentReplica::kWait) {
    return make(testing::replicated(span(), replicas, absent));
  }
  static ReaderTerms terms(const testing::ReaderPtr& reader, Index from = 0,
                           std::uint32_t replica = 0) {
    return {.holder = reader->holder(),
            .job = reader->job,
            .replica = replica,
            .next = from,
            .open_epochs = 100};
  }
  static bool join(Stream& stream, const testing::ReaderPtr& reader, Index from = 0,
                   std::uint32_t replica = 0) {
    return stream.join(reader, terms(reader, from, replica), from).has_value();
  }
  // A reader that has joined at the first batch.
  static testing::ReaderPtr joined(Stream& stream, testing::ReaderPtr reader,
                                   std::uint32_t replica = 0) {
    EXPECT_TRUE(join(stream, reader, 0, replica));
    return reader;
  }
  testing::ReaderPtr joined(Stream& stream, JobTag job, std::uint32_t replica = 0) {
    return joined(stream, reader(job), replica);
  }
  testing::ReaderPtr joined_until(Stream& stream, JobTag job, Index until) {
    auto made = reader(job);
    ReaderTerms bounded = terms(made);
    bounded.until = until;
    EXPECT_TRUE(stream.join(made, bounded, 0));
    return made;
  }
  // All of these read the batches [from, until) of the first epoch, each before the next.
  static void expect_steps(Stream& stream, std::initializer_list<testing::ReaderPtr> readers,
                           std::uint64_t from, std::uint64_t until) {
    for (std::uint64_t step = from; step < until; ++step) {
      for (const testing::ReaderPtr& reader : readers)
        EXPECT_EQ(reader->pass(stream, step), testing::rows_of(step));
    }
  }
  void start(const std::shared_ptr<Stream>& stream) {
    stream->bind(executor_.open_stream(stream->phase()->run, stream));
  }
};

}  // namespace spdld::stream
