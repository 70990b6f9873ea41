// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "delivery/device_layout.h"
#include "engine/executor.h"
#include "engine/stream_port.h"
#include "spec/pipeline_spec.h"
#include "stream/replica_roll.h"
#include "stream/slot_pool.h"
#include "stream/stream_reader.h"
#include "stream/timeline.h"

namespace spdld::stream {

// Which job a reader belongs to: a number that no other job of this daemon's life has.
using JobTag = std::uint64_t;

using spec::AbsentReplica;

struct StreamOptions {
  Timeline timeline;
  std::uint32_t shard = 0;
  job::StepAt from;
  JobTag maker = 0;
  std::uint32_t replicas = 1;
  std::uint32_t passage = 0;  // with replicas: of their job
  AbsentReplica absent = AbsentReplica::kWait;
  std::vector<AwaitedReplica> awaited = {};  // whom batches are kept for until they come
  // Not begun before that one has begun everything before `from`, or none of the readers is there.
  std::shared_ptr<class Stream> after = nullptr;
};

// What a reader wants of a stream.
struct ReaderTerms {
  delivery::HolderId holder = 0;
  JobTag job = 0;
  std::uint32_t replica = 0;
  job::StepAt from;
  job::StepAt until = job::kNever;  // one behind its last step
  std::uint64_t open_epochs = 0;    // epochs [0, open_epochs) may be made for it
  // Where it reads: slots on its GPU, or none for those of main memory.
  std::shared_ptr<SlotPool> on_gpu = nullptr;
};

// One shard's batches of one phase, in order, for those who read them: tells the executor which
// step is next, holds what is finished until every reader has taken it, and keeps count of who has
// to. Readers are the replicas of a shard, or consumers of different jobs that happen to need the
// same batches at about the same time. Goes forward only; who wants to go back takes another
// stream.
//
// States: live; then ended, when its last reader has left or it failed. Shared by its readers and
// the executor. Thread-safe; calls readers under no lock of its own.
//
// What is to be read on a GPU is copied there in the order of steps, as far as that has free slots:
// the copy is one more reader of the slot in main memory, and once it is over, readers there wait
// for the slot on the GPU instead.
class Stream final : public engine::StreamPort,
                     public DeviceSlotWaiter,
                     public std::enable_shared_from_this<Stream> {
 public:
  Stream(StreamOptions options, std::shared_ptr<SlotPool> pool, engine::Executor& executor,
         const Clock& clock);

  // Once, after the executor was told of the stream.
  void bind(engine::StreamId stream) SPDLD_EXCLUDES(mutex_);
  // `next` is to begin where this stream's readers leave: it is told when all before is begun.
  void lead(const std::shared_ptr<Stream>& next) SPDLD_EXCLUDES(mutex_);

  // The step from which on such a reader could have all batches: `terms.from` itself, or a later
  // one if earlier batches are gone. None: it cannot join at all.
  std::optional<job::StepAt> offers(const ReaderTerms& terms) const SPDLD_EXCLUDES(mutex_);
  // Joins at the first step from terms.from to `latest` that the stream still offers, and returns
  // it. None, and nothing is done, if there is none before terms.until.
  std::optional<job::StepAt> join(const std::shared_ptr<StreamReader>& reader,
                                  const ReaderTerms& terms, job::StepAt latest)
      SPDLD_EXCLUDES(mutex_);
  // With `away`, a replica that is expected back. The last one to leave ends the stream.
  void leave(delivery::HolderId reader, bool away = false) SPDLD_EXCLUDES(mutex_);
  // A replica that is away does not come here any more.
  void dismiss(JobTag job, std::uint32_t replica) SPDLD_EXCLUDES(mutex_);

  // From a reader. The batch of step `at`, leased to it, if it is there.
  struct Taken {
    std::uint64_t lease = 0;
    std::shared_ptr<SlotPool> pool;  // whose `slot` it lies in
    std::uint32_t slot = 0;
    engine::BatchOrder order;
    bool shared = false;  // another job has made it
    // Samples of it that were replaced before this reader's job could be asked.
    std::vector<engine::SampleFailure> replaced = {};
  };
  std::optional<Taken> take(delivery::HolderId reader, job::StepAt at) SPDLD_EXCLUDES(mutex_);
  // It needs nothing before `to`. False, and nothing is done, if the stream does not go that way:
  // `to` lies behind it, or so far ahead that others would be waited for.
  bool jump(delivery::HolderId reader, job::StepAt to) SPDLD_EXCLUDES(mutex_);
  // False, and nothing is done, if what it would read then is gone in part.
  bool set_until(delivery::HolderId reader, job::StepAt until) SPDLD_EXCLUDES(mutex_);
  void open_epochs(delivery::HolderId reader, std::uint64_t count) SPDLD_EXCLUDES(mutex_);

  // The first step that nothing has been begun of; none if the stream itself has not begun. Nothing
  // further is begun until as many calls of go_on() have followed.
  std::optional<job::StepAt> hold() SPDLD_EXCLUDES(mutex_);
  void go_on() SPDLD_EXCLUDES(mutex_);
  // While held. False, and nothing is done, if others than this job's consumers read it.
  bool retime(const Timeline& timeline, JobTag job) SPDLD_EXCLUDES(mutex_);

  // What `reader` waits for, when it is not for batches in the making; empty otherwise.
  std::string waits_for(delivery::HolderId reader) const SPDLD_EXCLUDES(mutex_);
  // The batches that it could take now one after the other: what is finished behind one that is not
  // does not count.
  struct Readable {
    std::uint32_t batches = 0;
    bool to_its_end = false;  // it reads nothing here behind them
  };
  Readable readable(delivery::HolderId reader) const SPDLD_EXCLUDES(mutex_);
  engine::Executor::Headway headway() const SPDLD_EXCLUDES(mutex_);
  // Readers that had nothing to read for more than a fifth of the time since the last call, because
  // readers of other jobs have all the slots: one of them at least stays.
  std::vector<std::shared_ptr<StreamReader>> held_up() SPDLD_EXCLUDES(mutex_);

  bool ended() const SPDLD_EXCLUDES(mutex_);
  std::uint32_t shard() const { return shard_; }
  std::uint32_t replicas() const { return replicas_; }
  std::uint32_t passage() const { return passage_; }
  uid_t uid() const { return pool_->uid(); }
  const pipeline::PhasePtr& phase() const { return phase_; }
  const std::shared_ptr<SlotPool>& pool() const { return pool_; }  // that is written to
  // That the reader is given leases of.
  std::shared_ptr<SlotPool> pool_of(delivery::HolderId reader) const SPDLD_EXCLUDES(mutex_);
  const delivery::DeviceLayout& device_layout() const { return device_layout_; }
  Timeline timeline() const SPDLD_EXCLUDES(mutex_);
  // The jobs that read it now.
  std::vector<JobTag> jobs() const SPDLD_EXCLUDES(mutex_);

 private:
  struct Reader {
    delivery::HolderId id = 0;  // 0: a replica that is away
    std::weak_ptr<StreamReader> reader;
    JobTag job = 0;
    std::uint32_t replica = 0;
    job::StepAt next;
    job::StepAt until = job::kNever;
    std::uint64_t open_epochs = 0;
    std::shared_ptr<SlotPool> on_gpu = nullptr;  // null: it reads in main memory
    bool hungry = false;                         // asked for a batch that was not there
    // A replica that has not joined this stream yet: it may come to main memory or to any GPU that
    // has readers. What these take is kept there for it, too.
    bool unplaced = false;

    bool wants(job::StepAt at) const { return next <= at && at < until; }
  };
  // A batch on a GPU, or on its way there: as long as somebody is expected to take it.
  struct Copied {
    std::shared_ptr<SlotPool> pool;
    std::uint32_t slot = 0;
    bool there = false;
    bool taken = false;          // by somebody
    std::uint32_t expected = 0;  // once it is there: readers that have yet to take it, at least one
  };
  using CopiedAt = std::vector<Copied>::iterator;
  // The slot in main memory is free again once nobody is expected to read it there, and none of its
  // copies is on its way.
  struct Ready {
    std::uint32_t slot = 0;
    engine::BatchOrder order;
    std::uint32_t expected = 0;  // readers that have yet to take it, or are to be copied for
    std::vector<Copied> copies = {};

    bool is_read() const;  // by all
  };
  using ReadyAt = std::map<job::StepAt, Ready>::iterator;
  struct Replaced {
    engine::SampleFailure failure;
    std::vector<JobTag> told;
  };
  using ReaderRefs = std::vector<std::shared_ptr<StreamReader>>;

  std::optional<engine::BatchOrder> open() override SPDLD_EXCLUDES(mutex_);
  void commit(const engine::BatchOrder& order) override SPDLD_EXCLUDES(mutex_);
  void abandon(const engine::BatchOrder& order) override SPDLD_EXCLUDES(mutex_);
  Status may_replace(const engine::SampleFailure& failure) override SPDLD_EXCLUDES(mutex_);
  void fail(const engine::StreamFailure& failure) override SPDLD_EXCLUDES(mutex_);

  std::optional<engine::BatchOrder> next_order() SPDLD_EXCLUDES(mutex_);
  // Somebody here is yet to come from another stream.
  bool follows() const SPDLD_REQUIRES(mutex_);
  // Whether one of these is yet to be made something here before `at`.
  bool leads(const std::vector<delivery::HolderId>& readers, job::StepAt at) const
      SPDLD_EXCLUDES(mutex_);
  void tell_followers() SPDLD_EXCLUDES(mutex_);
  void wake_followers() SPDLD_EXCLUDES(mutex_);
  void wake() SPDLD_EXCLUDES(mutex_);
  Reader* find(delivery::HolderId reader) SPDLD_REQUIRES(mutex_);
  const Reader* find(delivery::HolderId reader) const SPDLD_REQUIRES(mutex_);
  // Of all readers, the step that is needed first.
  job::StepAt lowest() const SPDLD_REQUIRES(mutex_);
  // The reader does not take what it wanted of [from, to).
  void forgo(const Reader& reader, job::StepAt from, job::StepAt to) SPDLD_REQUIRES(mutex_);
  // It takes nothing any more.
  void remove(std::vector<Reader>::iterator reader) SPDLD_REQUIRES(mutex_);
  void note_stall() SPDLD_REQUIRES(mutex_);
  bool starves(const Reader& reader) const SPDLD_REQUIRES(mutex_);
  // Others have all slots on the reader's GPU, and its next batch is in none of them.
  bool lacks_room(const Reader& reader) const SPDLD_REQUIRES(mutex_);
  ReaderRefs live_readers() const SPDLD_REQUIRES(mutex_);
  void forget(job::StepAt at) SPDLD_REQUIRES(mutex_);
  ReadyAt drop(ReadyAt ready) SPDLD_REQUIRES(mutex_);
  // Whether the batch lies where who reads in these slots (null: in main memory) takes it.
  static bool is_there(const Ready& ready, const std::shared_ptr<SlotPool>& on_gpu);
  // Whether it can come there.
  static bool reaches(const Ready& ready, const std::shared_ptr<SlotPool>& on_gpu);
  // The copy in these slots, there or on its way; the end if nobody has begun one.
  static CopiedAt copy_in(Ready& ready, const std::shared_ptr<SlotPool>& on_gpu);
  // The one that is there.
  static CopiedAt copy_of(Ready& ready, const std::shared_ptr<SlotPool>& on_gpu);
  // One of those who were expected to take the copy does not any more. Returns the one behind it.
  static CopiedAt take_off(Ready& ready, CopiedAt copy);
  // One reader in these slots more is to take it.
  void expect(Ready& ready, const std::shared_ptr<SlotPool>& on_gpu) SPDLD_REQUIRES(mutex_);
  // The reader is not to take it any more.
  void forgo(Ready& ready, const Reader& reader) SPDLD_REQUIRES(mutex_);

  // Copies to GPUs (stream_copies.cpp).
  void device_slot_freed() override SPDLD_EXCLUDES(mutex_);
  // Begins what can be begun.
  void begin_copies() SPDLD_REQUIRES(mutex_);
  bool has_reader(const std::shared_ptr<SlotPool>& on_gpu) const SPDLD_REQUIRES(mutex_);
  // A reader in these slots has left them; copies that are kept for nobody there go.
  void left(const std::shared_ptr<SlotPool>& on_gpu) SPDLD_REQUIRES(mutex_);
  // How many that have not joined yet want the batch.
  std::uint32_t awaited(job::StepAt at) const SPDLD_REQUIRES(mutex_);
  // Nobody is expected to take the copy any more.
  static CopiedAt give_up(Ready& ready, CopiedAt copy);
  // The first batch in the order of steps that a reader in these slots needs a copy of.
  ReadyAt to_copy(const std::shared_ptr<SlotPool>& on_gpu) SPDLD_REQUIRES(mutex_);
  void begin_copy(ReadyAt ready, const std::shared_ptr<SlotPool>& on_gpu) SPDLD_REQUIRES(mutex_);
  void end_copy(job::StepAt at, const std::shared_ptr<SlotPool>& on_gpu, std::uint32_t slot,
                std::uint64_t lease, const Status& status) SPDLD_EXCLUDES(mutex_);
  // False: nobody wants it there any more, and it has ended.
  bool may_begin_copy(job::StepAt at, const std::shared_ptr<SlotPool>& on_gpu, std::uint32_t slot,
                      std::uint64_t lease) SPDLD_EXCLUDES(mutex_);
  // Its slots go to `readers` on that GPU and those that have not joined yet, or are free again.
  void settle_copy(job::StepAt at, const std::shared_ptr<SlotPool>& on_gpu, std::uint32_t slot,
                   std::uint64_t lease, std::uint32_t readers) SPDLD_REQUIRES(mutex_);
  // Nothing further is kept, or copied, for readers in these slots.
  void want_nothing(const std::shared_ptr<SlotPool>& on_gpu) SPDLD_REQUIRES(mutex_);
  // No reader in these slots goes on.
  void give_up(const std::shared_ptr<SlotPool>& on_gpu, const Status& why) SPDLD_EXCLUDES(mutex_);
  // Those of slots whose memory cannot be had.
  void give_up_refused() SPDLD_EXCLUDES(mutex_);
  // All readers in these slots leave. Those that are not away.
  ReaderRefs dismiss_from(const std::shared_ptr<SlotPool>& on_gpu) SPDLD_EXCLUDES(mutex_);
  std::optional<job::StepAt> offered(const ReaderTerms& terms) const SPDLD_REQUIRES(mutex_);
  void end() SPDLD_EXCLUDES(mutex_);

  const std::uint32_t shard_;
  const job::StepAt from_;
  const std::uint32_t replicas_;
  const std::uint32_t passage_;
  const AbsentReplica absent_;
  const pipeline::PhasePtr phase_;
  const std::shared_ptr<SlotPool> pool_;
  const delivery::DeviceLayout device_layout_;
  engine::Executor& executor_;
  const Clock& clock_;

  mutable Mutex mutex_;
  Timeline timeline_ SPDLD_GUARDED_BY(mutex_);
  JobTag maker_ SPDLD_GUARDED_BY(mutex_);
  std::shared_ptr<Stream> after_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Stream>> followers_ SPDLD_GUARDED_BY(mutex_);
  engine::StreamId stream_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::vector<Reader> readers_ SPDLD_GUARDED_BY(mutex_);
  job::StepAt to_make_ SPDLD_GUARDED_BY(mutex_);
  // Behind the last step that was made and is not kept any more: who joins begins there, however
  // far back the slowest reader is. That one may end before it.
  job::StepAt gone_ SPDLD_GUARDED_BY(mutex_);
  std::map<job::StepAt, Ready> ready_ SPDLD_GUARDED_BY(mutex_);
  // Of batches in the making and ready ones.
  std::map<job::StepAt, std::vector<Replaced>> replaced_ SPDLD_GUARDED_BY(mutex_);
  int holds_ SPDLD_GUARDED_BY(mutex_) = 0;  // while there are any, no batch is begun
  bool ended_ SPDLD_GUARDED_BY(mutex_) = false;
  // For how long some reader had nothing to read and no slot was free.
  std::optional<std::chrono::nanoseconds> stalled_since_ SPDLD_GUARDED_BY(mutex_);
  std::chrono::nanoseconds stalled_ SPDLD_GUARDED_BY(mutex_){0};
  std::chrono::nanoseconds watched_since_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::stream
