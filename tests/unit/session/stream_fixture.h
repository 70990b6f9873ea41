// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "session/stream.h"
#include "tests/unit/session/reading.h"

namespace spdld::session {

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
  std::shared_ptr<Stream> make(JobTag maker = 1, StepAt from = {}) {
    return make(StreamOptions{.timeline = Timeline(phase(), 1), .from = from, .maker = maker});
  }
  // One of `replicas`; all the others are awaited.
  std::shared_ptr<Stream> make_replicated(std::uint32_t replicas,
                                          AbsentReplica absent = AbsentReplica::kWait) {
    StreamOptions options{.timeline = Timeline(phase(), 1),
                          .from = {},
                          .maker = 1,
                          .replicas = replicas,
                          .absent = absent};
    for (std::uint32_t replica = 1; replica < replicas && absent == AbsentReplica::kWait; ++replica)
      options.awaited.push_back({replica, {}});
    return make(std::move(options));
  }
  static ReaderTerms terms(const testing::ReaderPtr& reader, StepAt from = {},
                           std::uint32_t replica = 0) {
    return {.holder = reader->holder(),
            .job = reader->job,
            .replica = replica,
            .from = from,
            .open_epochs = 100};
  }
  static bool join(Stream& stream, const testing::ReaderPtr& reader, StepAt from = {},
                   std::uint32_t replica = 0) {
    return stream.join(reader, terms(reader, from, replica), from).has_value();
  }
  void start(const std::shared_ptr<Stream>& stream) {
    stream->bind(executor_.open_stream(stream->phase()->run, stream));
  }
};

}  // namespace spdld::session
