// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "delivery/arena_pool.h"
#include "engine/executor.h"
#include "stream/replica_presence.h"
#include "stream/slot_pool.h"
#include "stream/stream.h"
#include "stream/stream_reader.h"

namespace spdld::stream {

// A part of a consumer's batches: from batch `from` of its wish on it reads the stream, beginning
// with the stream's batch `first`.
struct Leg {
  Index from = 0;
  std::shared_ptr<Stream> stream;
  Index first = 0;
};

// The batches that a consumer needs, and its conditions.
struct StreamWish {
  Span span;  // its batches [0, until)
  Index until = kNoIndex;
  job::Turn turn = 0;  // of the first of them
  std::uint32_t replica = 0;
  std::uint32_t replicas = 1;
  AbsentReplica absent = AbsentReplica::kWait;
  std::shared_ptr<const ReplicaPresence> presence = nullptr;  // with replicas
  JobTag job = 0;
  uid_t uid = 0;
  std::uint32_t credits = 0;
  std::uint64_t open_epochs = 0;
  delivery::DeviceMemoryPtr gpu = nullptr;  // where it reads; null: in main memory
  std::shared_ptr<ByteMeter> meter;
  std::shared_ptr<Stream> after = nullptr;    // that it reads before
  std::shared_ptr<SlotPool> reuse = nullptr;  // of a stream that has ended or comes before
  DeviceReserve* reserve = nullptr;  // of memory on `gpu`; null: batches wait until that is there
};

// All live streams. Consumers share one: replicas of a shard always, and consumers of different
// jobs of one user that need the same rows of the same content at about the same time. Owned by
// Sessions. Thread-safe.
class Streams {
 public:
  Streams(engine::Executor& executor, delivery::ArenaPool& arenas, delivery::ArenaKind kind,
          const Clock& clock)
      : executor_(executor), arenas_(arenas), kind_(kind), clock_(clock) {}

  // One leg, or several: batches that a shared stream does not keep any more come from another
  // stream that still has them, or one of its own, and the later ones from the shared one. Refused
  // when the arena does not fit; then nothing was joined.
  Result<std::vector<Leg>> connect(const std::shared_ptr<StreamReader>& reader,
                                   const StreamWish& wish) SPDLD_EXCLUDES(mutex_);
  // A job's limits in the worker pool. A run that serves several jobs has the sum, and of bounds of
  // rows at once the highest.
  void set_limits(JobTag job, engine::RunLimits limits) SPDLD_EXCLUDES(mutex_);
  void forget(JobTag job) SPDLD_EXCLUDES(mutex_);
  // No stream waits any more for a replica that does not read it now.
  void dismiss(JobTag job, job::Member member) SPDLD_EXCLUDES(mutex_);
  // As tick() does: ended streams are not used any more, but hold their phases.
  void drop_ended() SPDLD_EXCLUDES(mutex_);
  // Every second or so: a consumer that other jobs keep waiting gets a stream of its own.
  void tick() SPDLD_EXCLUDES(mutex_);

 private:
  // A call that fails has joined the legs that it leaves in `legs`.
  Status connect(const std::shared_ptr<StreamReader>& reader, const StreamWish& wish,
                 std::vector<Leg>& legs) SPDLD_REQUIRES(mutex_);
  Result<std::shared_ptr<Stream>> make(const StreamWish& wish) SPDLD_REQUIRES(mutex_);
  // The slots on its GPU that a reader of the stream is to read in; none if it reads in main
  // memory.
  Result<std::shared_ptr<SlotPool>> slots_on_gpu(const StreamWish& wish, const Stream& stream)
      SPDLD_REQUIRES(mutex_);
  // The last leg of `wish`, in a stream that exists. Where batches before it are left, `own` is
  // made ready for them.
  Result<std::optional<Leg>> share(const std::shared_ptr<StreamReader>& reader,
                                   const StreamWish& wish, std::shared_ptr<Stream>& own)
      SPDLD_REQUIRES(mutex_);
  Result<Leg> open(const std::shared_ptr<StreamReader>& reader, const StreamWish& wish,
                   std::shared_ptr<Stream> stream) SPDLD_REQUIRES(mutex_);
  // For the caller to let go of without the lock: a stream can be the last to keep a dataset.
  std::vector<std::shared_ptr<Stream>> take_ended() SPDLD_REQUIRES(mutex_);
  void weigh() SPDLD_REQUIRES(mutex_);

  engine::Executor& executor_;
  delivery::ArenaPool& arenas_;
  const delivery::ArenaKind kind_;
  const Clock& clock_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Stream>> streams_ SPDLD_GUARDED_BY(mutex_);
  std::map<JobTag, engine::RunLimits> limits_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::stream
