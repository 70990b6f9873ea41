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
#include "stream/replica_roll.h"
#include "stream/slot_pool.h"
#include "stream/stream.h"
#include "stream/stream_reader.h"
#include "stream/timeline.h"

namespace spdld::stream {

// A part of a consumer's way: the stream that it reads from `from` on.
struct Leg {
  job::StepAt from;
  std::shared_ptr<Stream> stream;
};

// What a consumer needs batches for.
struct StreamWish {
  const Timeline& timeline;
  job::StepAt from;
  job::StepAt until = job::kNever;  // no later than where another phase begins
  std::uint32_t shard = 0;
  std::uint32_t replica = 0;
  std::uint32_t replicas = 1;
  AbsentReplica absent = AbsentReplica::kWait;
  std::shared_ptr<const ReplicaRoll> roll = nullptr;  // with replicas, and
  std::uint32_t passage = 0;                          // in which passage of their job they are
  JobTag job = 0;
  uid_t uid = 0;
  std::uint32_t credits = 0;
  std::uint64_t open_epochs = 0;
  delivery::DeviceMemoryPtr gpu = nullptr;  // where it reads; null: in main memory
  std::shared_ptr<ByteMeter> meter;
  std::shared_ptr<Stream> after = nullptr;    // a new stream begins when that one is through
  std::shared_ptr<SlotPool> reuse = nullptr;  // of a stream that has ended, of the same run
  DeviceReserve* reserve = nullptr;  // of memory on `gpu`; null: batches wait until that is there
};

// All live streams, and who may share one: replicas of a shard always, and consumers of different
// jobs of one user that need the same rows of the same content at about the same time. Owned by
// Sessions. Thread-safe.
class Streams {
 public:
  Streams(engine::Executor& executor, delivery::ArenaPool& arenas, delivery::ArenaKind kind,
          const Clock& clock)
      : executor_(executor), arenas_(arenas), kind_(kind), clock_(clock) {}

  // One leg, or several: for what a shared stream has given away already, another one that still
  // has it or a stream of its own, and then the shared one. Refused when the arena does not fit;
  // then nothing was joined.
  Result<std::vector<Leg>> connect(const std::shared_ptr<StreamReader>& reader,
                                   const StreamWish& wish) SPDLD_EXCLUDES(mutex_);
  // What a job may have of the pool; a run that serves several jobs has the sum.
  void set_limits(JobTag job, engine::RunLimits limits) SPDLD_EXCLUDES(mutex_);
  void forget(JobTag job) SPDLD_EXCLUDES(mutex_);
  // No stream of passages up to this one waits any more for a replica that does not read it now.
  void dismiss(JobTag job, job::Member member, std::uint32_t passage = kEveryPassage)
      SPDLD_EXCLUDES(mutex_);
  // As tick() does: ended streams are not used any more, but hold their phases.
  void drop_ended() SPDLD_EXCLUDES(mutex_);
  // Every second or so: who is kept waiting by other jobs goes its own way.
  void tick() SPDLD_EXCLUDES(mutex_);

 private:
  // What fails has joined the legs that it leaves behind.
  Status connect(const std::shared_ptr<StreamReader>& reader, const StreamWish& wish,
                 std::vector<Leg>& legs) SPDLD_REQUIRES(mutex_);
  Result<std::shared_ptr<Stream>> make(const StreamWish& wish) SPDLD_REQUIRES(mutex_);
  // The slots on its GPU that a reader of the stream is to read in; none if it reads in main
  // memory.
  Result<std::shared_ptr<SlotPool>> slots_on_gpu(const StreamWish& wish, const Stream& stream)
      SPDLD_REQUIRES(mutex_);
  // The last leg of what `wish` asks for, in a stream that there is. Where that leaves something
  // before it, `own` is made ready for it.
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
