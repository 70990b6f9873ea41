// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "delivery/device_layout.h"
#include "engine/executor.h"
#include "engine/stream_port.h"
#include "spec/pipeline_spec.h"
#include "stream/finished_batches.h"
#include "stream/replica_presence.h"
#include "stream/shortage.h"
#include "stream/slot_pool.h"
#include "stream/span.h"
#include "stream/stall_clock.h"
#include "stream/stream_reader.h"

namespace spdld::stream {

using spec::AbsentReplica;

struct StreamOptions {
  Span span;
  JobTag maker = 0;
  std::uint32_t replicas = 1;
  job::Turn turn = 0;  // of the batch 0
  AbsentReplica absent = AbsentReplica::kWait;
  std::vector<AwaitedReplica> awaited = {};  // batches are kept for these until they come
  // This stream begins no batch before that one has begun all that readers of both read there.
  std::shared_ptr<class Stream> after = nullptr;
};

// Makes one shard's batches of one span, in order: tells the executor the next batch, and keeps the
// finished ones until every reader has taken them (finished_batches.h). Readers are the replicas of
// a shard, or consumers of different jobs that happen to need the same batches at about the same
// time. A stream goes forward only; a consumer that goes back takes another stream.
//
// States: live; then ended, when its last reader has left or it failed. Shared by its readers and
// the executor. Thread-safe; calls readers under no lock of its own.
//
// Batches for readers on a GPU are copied there in the order of steps, as far as that has free
// slots.
class Stream final : public engine::StreamPort,
                     public DeviceSlotWaiter,
                     public std::enable_shared_from_this<Stream> {
 public:
  Stream(StreamOptions options, std::shared_ptr<SlotPool> pool, engine::Executor& executor,
         const Clock& clock);

  // Once, after the executor was told of the stream.
  void bind(engine::StreamId stream) SPDLD_EXCLUDES(mutex_);
  // `next` begins where readers leave this stream: it is woken once all that one of them reads here
  // is begun.
  void lead(const std::shared_ptr<Stream>& next) SPDLD_EXCLUDES(mutex_);

  // The batch from which on such a reader could take all: `terms.next` itself, or a later one if
  // earlier batches are gone. None: it cannot join at all.
  std::optional<Index> offers(const ReaderTerms& terms) const SPDLD_EXCLUDES(mutex_);
  // Joins at the first batch from terms.next to `latest` that the stream still offers, and returns
  // it. None, and nothing is done, if there is none before terms.until.
  std::optional<Index> join(const std::shared_ptr<StreamReader>& reader, ReaderTerms terms,
                            Index latest) SPDLD_EXCLUDES(mutex_);
  // With `away`, a replica that is expected back. The last one to leave ends the stream.
  void leave(delivery::HolderId reader, bool away = false) SPDLD_EXCLUDES(mutex_);
  // A replica that is away does not come here any more.
  void dismiss(JobTag job, std::uint32_t replica) SPDLD_EXCLUDES(mutex_);

  // Leases the batch `at` to the reader, if it is there.
  std::optional<TakenBatch> take(delivery::HolderId reader, Index at) SPDLD_EXCLUDES(mutex_);
  // The reader needs nothing before `to`, which it is sent at `turn`. False, and nothing is done,
  // if the stream cannot go there: `to` lies behind it, or so far ahead that others would be waited
  // for.
  bool jump(delivery::HolderId reader, Index to, job::Turn turn) SPDLD_EXCLUDES(mutex_);
  // False, and nothing is done, if batches that it would read then are gone.
  bool set_until(delivery::HolderId reader, Index until) SPDLD_EXCLUDES(mutex_);
  void open_epochs(delivery::HolderId reader, std::uint64_t count) SPDLD_EXCLUDES(mutex_);

  // Returns the first batch that is not begun. Nothing further is begun until as many calls of
  // go_on() have followed.
  Index hold() SPDLD_EXCLUDES(mutex_);
  void go_on() SPDLD_EXCLUDES(mutex_);

  // Why `reader` waits, when it is not for batches in the making; empty otherwise.
  std::string waits_for(delivery::HolderId reader) const SPDLD_EXCLUDES(mutex_);
  ReadableBatches readable(delivery::HolderId reader) const SPDLD_EXCLUDES(mutex_);
  engine::Executor::Headway headway() const;
  engine::HeadTime head_time() const SPDLD_EXCLUDES(mutex_);
  // What `reader` lacks, while the batch that it needs next is not being made.
  Shortage lacks(delivery::HolderId reader) const SPDLD_EXCLUDES(mutex_);
  // Readers that had nothing to read for more than a fifth of the time since the last call, because
  // readers of other jobs have all the slots: one of them at least stays.
  ReaderRefs held_up() SPDLD_EXCLUDES(mutex_);

  bool ended() const SPDLD_EXCLUDES(mutex_);
  engine::Executor& executor() const { return executor_; }
  const Span& span() const { return options_.span; }
  std::uint32_t replicas() const { return options_.replicas; }
  const pipeline::PhasePtr& phase() const { return span().phase(); }
  const std::shared_ptr<SlotPool>& pool() const { return pool_; }  // batches are made in its slots
  // The pool that the reader is given leases of.
  std::shared_ptr<SlotPool> pool_of(delivery::HolderId reader) const SPDLD_EXCLUDES(mutex_);
  const delivery::DeviceLayout& device_layout() const { return device_layout_; }
  // The jobs that read it now.
  std::vector<JobTag> jobs() const SPDLD_EXCLUDES(mutex_);

 private:
  using Reader = FinishedBatches::Reader;

  // The executor's view: the next batch, and its outcome.
  std::optional<engine::BatchOrder> open() override SPDLD_EXCLUDES(mutex_);
  void commit(const engine::BatchOrder& order) override SPDLD_EXCLUDES(mutex_);
  void abandon(const engine::BatchOrder& order) override SPDLD_EXCLUDES(mutex_);
  Status may_replace(const engine::SampleFailure& failure) override SPDLD_EXCLUDES(mutex_);
  void fail(const engine::StreamFailure& failure) override SPDLD_EXCLUDES(mutex_);
  std::optional<engine::BatchOrder> next_order() SPDLD_EXCLUDES(mutex_);

  // Whether a reader here still reads the stream before this one.
  bool follows() const SPDLD_REQUIRES(mutex_);
  // Whether a batch is still to be begun here for one of these readers.
  bool leads(const std::vector<Reader>& readers) const SPDLD_EXCLUDES(mutex_);
  // Wakes the streams that follow this one, if a reader need not wait for it any more, or `all`.
  void wake_followers(bool all = false) SPDLD_EXCLUDES(mutex_);
  void wake();

  std::optional<Index> offered(const ReaderTerms& terms) const SPDLD_REQUIRES(mutex_);
  // No slot is free: readers that have read all that there is wait for those that have not.
  void note_stall() SPDLD_REQUIRES(mutex_);
  bool starves(const Reader& reader) const SPDLD_REQUIRES(mutex_);

  // Copies to GPUs.
  void device_slot_freed() override SPDLD_EXCLUDES(mutex_);
  // Begins all copies that can be begun.
  void begin_copies() SPDLD_REQUIRES(mutex_);
  // Copies may have queued up for a reader that has left. False: the copy is given up, so that the
  // memory that it would be written to serves others.
  bool may_begin_copy(const FinishedBatches::Copy& copy) SPDLD_EXCLUDES(mutex_);
  void end_copy(const FinishedBatches::Copy& copy, const Status& status) SPDLD_EXCLUDES(mutex_);
  // All readers in these slots leave. Returns those that are not away.
  ReaderRefs dismiss_from(const std::shared_ptr<SlotPool>& on_gpu) SPDLD_EXCLUDES(mutex_);

  const StreamOptions options_;  // but for `after`
  const std::shared_ptr<SlotPool> pool_;
  const delivery::DeviceLayout device_layout_;
  engine::Executor& executor_;
  // Written once, by bind(); 0 before. Atomic, so that wake() takes no lock.
  std::atomic<engine::StreamId> stream_{0};

  mutable Mutex mutex_;
  JobTag maker_ SPDLD_GUARDED_BY(mutex_);
  std::shared_ptr<Stream> after_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Stream>> followers_ SPDLD_GUARDED_BY(mutex_);
  Index to_make_ SPDLD_GUARDED_BY(mutex_) = 0;
  FinishedBatches finished_ SPDLD_GUARDED_BY(mutex_);
  int holds_ SPDLD_GUARDED_BY(mutex_) = 0;  // while there are any, no batch is begun
  bool ended_ SPDLD_GUARDED_BY(mutex_) = false;
  engine::HeadTime last_head_ SPDLD_GUARDED_BY(mutex_);  // once it has ended
  StallClock stall_
      SPDLD_GUARDED_BY(mutex_);  // some reader had nothing to read and no slot was free
};

}  // namespace spdld::stream
