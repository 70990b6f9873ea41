// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "delivery/slots.h"
#include "engine/stream_port.h"
#include "stream/slot_pool.h"
#include "stream/span.h"

namespace spdld::stream {

// The job that a reader belongs to: a number that no other job of this daemon's life has.
using JobTag = std::uint64_t;

// The batches [next, until) that a reader asks a stream for, and the conditions.
struct ReaderTerms {
  delivery::HolderId holder = 0;
  JobTag job = 0;
  std::uint32_t replica = 0;
  Index next = 0;
  Index until = kNoIndex;
  // The turn at which this reader would be sent the stream's batch 0; wraps below 0. Replicas share
  // a stream only where these are equal.
  job::Turn turn = 0;
  std::uint64_t open_epochs = 0;  // epochs [0, open_epochs) may be made for it
  // The slots on its GPU that it reads in; null: it reads in main memory.
  std::shared_ptr<SlotPool> on_gpu = nullptr;
};

// Decides about samples that cannot be made, for one job. Thread-safe; outlives all users.
class FailureJudge {
 public:
  virtual ~FailureJudge() = default;
  virtual Status may_replace(const engine::SampleFailure& failure) = 0;
  virtual void stream_failed(const engine::StreamFailure& failure) = 0;
};

class Stream;

// A consumer as its stream sees it. Called from any thread of the daemon, under no lock of
// the stream.
class StreamReader {
 public:
  virtual ~StreamReader() = default;
  virtual delivery::HolderId holder() const = 0;
  virtual FailureJudge& judge() = 0;
  // The batch that it waits for may be there.
  virtual void ready() = 0;
  // This stream makes no further batch.
  virtual void failed(const engine::StreamFailure& failure, const Stream& stream) = 0;
  // Other readers of the stream hold it up: it is to take a stream of its own.
  virtual void displaced() = 0;
  // It has been made to leave the stream, whose slots on its GPU have no memory for the reason
  // given.
  virtual void refused_memory(const Status& why, const Stream& stream) = 0;
};
using ReaderRefs = std::vector<std::shared_ptr<StreamReader>>;

}  // namespace spdld::stream
