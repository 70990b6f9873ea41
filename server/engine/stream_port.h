// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "source/order/sharding.h"

namespace spdld::engine {

// A batch that a stream wants made, and the memory it is to be made in.
struct BatchOrder {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  source::BatchRows rows;
  std::uint64_t next_position = 0;  // the cursor after it, over all shards
  std::byte* slot = nullptr;
  std::uint64_t ticket = 0;  // the port's own
};

// A sample that could not be made, and why.
struct SampleFailure {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  std::uint64_t item = 0;
  std::string uri;
  Status status;
  std::optional<std::uint64_t> replaced_by = std::nullopt;  // the item that is tried next
};

// Why a stream makes no further batch, and the sample that could not be made if it was one.
struct StreamFailure {
  Status status;
  std::optional<SampleFailure> sample = std::nullopt;
};

// That the sample cannot be made, for the reason `why`, and ends its stream.
inline StreamFailure ended_by(SampleFailure sample, const Status& why) {
  sample.status = why;
  sample.replaced_by.reset();
  return {.status = why, .sample = std::move(sample)};
}

// Where a stream's batches come from and go to: the executor's view of a consumer. Implemented in
// session/. The executor calls it from its workers without holding a lock of its own, several at
// once, and never after abandon() or commit() gave the last batch back to a closed stream.
class StreamPort {
 public:
  virtual ~StreamPort() = default;

  // The next batch with a slot on loan for it, or nothing for now: no free slot, the epoch is not
  // open yet, the stream has ended. Whoever changes that calls Executor::wake(). Not called twice
  // at once for one stream.
  virtual std::optional<BatchOrder> open() = 0;

  // Exactly one of these for each batch opened, in any order of steps.
  virtual void commit(const BatchOrder& order) = 0;
  virtual void abandon(
      const BatchOrder& order) = 0;  // cancelled, or failed: the slot is not filled

  // Whether the substitute may take the sample's place. Ok: yes, and it is counted. Otherwise the
  // stream fails with what is returned, which names the item.
  virtual Status may_replace(const SampleFailure& failure) = 0;
  // The stream makes no further batch.
  virtual void fail(const StreamFailure& failure) = 0;

  // Whether a reader lacks a batch of it (Executor::Starving).
  bool is_wanted() const { return starving_.load(std::memory_order_relaxed) > 0; }

 private:
  friend class Executor;
  mutable std::atomic<int> starving_{0};  // such readers
};

}  // namespace spdld::engine
