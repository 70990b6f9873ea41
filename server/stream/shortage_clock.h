// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "engine/executor.h"
#include "engine/head_time.h"
#include "stream/shortage.h"
#include "stream/span.h"

namespace spdld::stream {

class Stream;

// Adds up what a reader lacked. A value without a lock of its own, under that of its reader.
class ShortageClock {
 public:
  // From now on the reader lacks nothing, or ...
  void end();
  // ... this; `filling`: a stream that makes batches ahead for the reader meanwhile, and is wanted.
  void lacks(Shortage why, std::shared_ptr<const Stream> filling = nullptr);
  // ... this batch of the stream; `otherwise` for as long as that is not being made.
  void lacks_batch(const std::shared_ptr<const Stream>& stream, Index at, Shortage otherwise);
  // Whether it lacks this batch already: `otherwise` need not be found again.
  bool lacks_batch(const Stream& stream, Index at) const;

  // Up to now.
  ShortageTime total() const;

 private:
  // What is lacked now, and since when.
  struct Lack {
    Shortage why;
    std::shared_ptr<const Stream> stream = nullptr;   // null: it is not about a batch
    std::shared_ptr<const Stream> filling = nullptr;  // where `stream` is null; may be null
    Index at = 0;
    engine::HeadTime before = {};
  };

  static void add(const Lack& lack, const engine::HeadTime& now, ShortageTime& to);
  void pass(std::optional<Lack> next);

  std::optional<Lack> lack_;
  std::optional<engine::Executor::Starving> starving_;  // while a stream makes what it lacks
  ShortageTime time_{};
};

}  // namespace spdld::stream
