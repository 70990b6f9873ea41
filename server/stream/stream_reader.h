// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "delivery/slots.h"
#include "engine/stream_port.h"

namespace spdld::stream {

// Decides about samples that cannot be made, for one job. Thread-safe; outlives who refers to it.
class FailureJudge {
 public:
  virtual ~FailureJudge() = default;
  virtual Status may_replace(const engine::SampleFailure& failure) = 0;
  virtual void stream_failed(const engine::StreamFailure& failure) = 0;
};

class Stream;

// A consumer as its stream sees it. Called from workers, under no lock of the stream.
class StreamReader {
 public:
  virtual ~StreamReader() = default;
  virtual delivery::HolderId holder() const = 0;
  virtual FailureJudge& judge() = 0;
  // The batch that it waits for may be there.
  virtual void ready() = 0;
  // This stream makes no further batch.
  virtual void failed(const engine::StreamFailure& failure, const Stream& stream) = 0;
  // Others who share the stream hold it up: it is to go its own way.
  virtual void displaced() = 0;
  // It has been made to leave the stream, whose slots on its GPU have no memory for the reason
  // given.
  virtual void refused_memory(const Status& why, const Stream& stream) = 0;
};

}  // namespace spdld::stream
