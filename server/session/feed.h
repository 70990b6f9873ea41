// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "delivery/arena.h"
#include "delivery/connection.h"
#include "delivery/slots.h"
#include "engine/executor.h"
#include "engine/stream_port.h"
#include "session/timeline.h"

namespace spdld::session {

// Decides about samples that cannot be made; outlives the feed.
class FailureJudge {
 public:
  virtual ~FailureJudge() = default;
  virtual Status may_replace(const engine::SampleFailure& failure) = 0;
  virtual void stream_failed(const Status& status) = 0;
};

struct FeedOptions {
  Timeline timeline;  // the job's
  std::uint32_t shard = 0;
  std::uint32_t credits = 0;
  StepAt start;
  std::optional<Timeline> own = std::nullopt;  // as the consumer's cursor cuts it, if it does
  std::uint64_t open_epochs = 0;               // epochs [0, open_epochs) may be made
  bool last_known = false;       // open_epochs is the job's end, not a gate that will open
  std::uint64_t slot_bytes = 0;  // of what a batch takes
  std::uint32_t schema_id = 1;
};

// One shard's batches on their way to one consumer: tells the executor which step is next, holds
// what is finished until its turn and a credit come, and takes slots back. Shared by the session
// layer and the executor. Thread-safe.
//
// States: live; then ended (end(): no further batch is made or sent); the arena is let go when the
// executor has given back its last slot and the consumer's process has exited.
class Feed final : public engine::StreamPort {
 public:
  Feed(FeedOptions options, std::unique_ptr<delivery::Arena> arena,
       std::shared_ptr<delivery::Connection> connection, engine::Executor& executor,
       std::shared_ptr<FailureJudge> judge);

  // Once, after the executor was told of the feed.
  void bind(engine::StreamId stream) SPDLD_EXCLUDES(mutex_);

  // From the consumer.
  void release(std::uint64_t lease) SPDLD_EXCLUDES(mutex_);
  // Fails, and does nothing, if no job can have such a place.
  Status seek(StepAt to, std::uint64_t position, std::uint32_t serial) SPDLD_EXCLUDES(mutex_);

  // From the job.
  void open_epochs(std::uint64_t count, bool last_known) SPDLD_EXCLUDES(mutex_);
  // The first step that nothing has been begun of, and its position. Nothing further is begun
  // until as many calls of go_on() have followed.
  struct Frontier {
    StepAt at;
    std::uint64_t position = 0;
  };
  Frontier hold() SPDLD_EXCLUDES(mutex_);
  void go_on() SPDLD_EXCLUDES(mutex_);
  // While held, and with no frontier of any shard behind cut.from. A shard that the cut leaves out
  // ends there.
  void reshard(const Timeline::Cut& cut) SPDLD_EXCLUDES(mutex_);
  // Sends everything from `to` on anew, by the job's new timeline; the consumer is told.
  void move_to(StepAt to, const Timeline& timeline) SPDLD_EXCLUDES(mutex_);

  // No further batch. Idempotent.
  void end() SPDLD_EXCLUDES(mutex_);
  // The consumer cannot release any more but may still read.
  void retire() SPDLD_EXCLUDES(mutex_);
  // Its process has exited. Returns the arena when nothing is being written to it any more;
  // otherwise it goes with the feed.
  std::unique_ptr<delivery::Arena> reclaim() SPDLD_EXCLUDES(mutex_);

  // What the consumer waits for, if it is not for batches in the making; empty otherwise.
  std::string waits_for() const SPDLD_EXCLUDES(mutex_);

  struct View {
    StepAt next;  // to be handed out
    std::uint32_t leases = 0;
    std::uint32_t ready = 0;
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
    std::uint64_t arena_bytes = 0;
    std::uint64_t bad_releases = 0;
  };
  View view() const SPDLD_EXCLUDES(mutex_);
  std::uint32_t shard() const { return shard_; }
  std::uint32_t credits() const { return credits_; }

 private:
  struct Ready {
    std::uint32_t slot = 0;
    engine::BatchOrder order;
  };

  std::optional<engine::BatchOrder> open() override SPDLD_EXCLUDES(mutex_);
  void commit(const engine::BatchOrder& order) override SPDLD_EXCLUDES(mutex_);
  void abandon(const engine::BatchOrder& order) override SPDLD_EXCLUDES(mutex_);
  Status may_replace(const engine::SampleFailure& failure) override;
  void fail(const Status& status) override SPDLD_EXCLUDES(mutex_);

  std::optional<engine::BatchOrder> next_order() SPDLD_EXCLUDES(mutex_);
  delivery::Arena* arena() SPDLD_EXCLUDES(mutex_);
  void pump() SPDLD_REQUIRES(mutex_);
  void restart(StepAt to) SPDLD_REQUIRES(mutex_);
  void announce() SPDLD_REQUIRES(mutex_);
  // `at`, or where the next epoch begins if that is where it points.
  StepAt settled(StepAt at) const SPDLD_REQUIRES(mutex_);
  bool dealt_out(StepAt at) const SPDLD_REQUIRES(mutex_);
  // Holds, and gives up what is under way.
  engine::StreamId interrupt() SPDLD_EXCLUDES(mutex_);

  const std::uint32_t shard_;
  const std::uint32_t credits_;
  const std::uint64_t slot_bytes_;
  const std::uint32_t schema_id_;
  const std::shared_ptr<delivery::Connection> connection_;
  engine::Executor& executor_;
  const std::shared_ptr<FailureJudge> judge_;

  mutable Mutex mutex_;
  std::unique_ptr<delivery::Arena> arena_ SPDLD_GUARDED_BY(mutex_);
  delivery::SlotTable slots_;
  Timeline job_timeline_ SPDLD_GUARDED_BY(mutex_);
  Timeline timeline_ SPDLD_GUARDED_BY(mutex_);  // and where this consumer's own cursor cuts it
  engine::StreamId stream_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t open_epochs_ SPDLD_GUARDED_BY(mutex_);
  bool last_known_ SPDLD_GUARDED_BY(mutex_);
  StepAt to_make_ SPDLD_GUARDED_BY(mutex_);
  StepAt to_send_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t turn_ SPDLD_GUARDED_BY(mutex_) = 0;  // counts restarts: older batches are stale
  std::uint32_t seek_ SPDLD_GUARDED_BY(mutex_) = 0;  // the consumer's serial
  std::map<StepAt, Ready> ready_ SPDLD_GUARDED_BY(mutex_);
  std::uint32_t leases_ SPDLD_GUARDED_BY(mutex_) = 0;
  int holds_ SPDLD_GUARDED_BY(mutex_) = 0;  // while there are any, no batch is begun
  bool ended_ SPDLD_GUARDED_BY(mutex_) = false;
  bool told_last_ SPDLD_GUARDED_BY(mutex_) = false;  // that the job has no further epoch
  std::uint64_t batches_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t rows_ SPDLD_GUARDED_BY(mutex_) = 0;
};

}  // namespace spdld::session
