// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "delivery/connection.h"
#include "stream/replica_roll.h"
#include "stream/stream_reader.h"
#include "stream/streams.h"
#include "stream/timeline.h"

namespace spdld::session {

// What the consumers of a job were handed, and what it has gained by reading what another one had
// made. Any thread; the numbers stand alone.
struct SharingGain {
  std::atomic<std::uint64_t> handed_rows{0};
  std::atomic<std::uint64_t> rows{0};  // of those: that another one had made
  std::atomic<std::uint64_t> saved_ns{0};
};

// At `from` a consumer goes on at `to` instead, as `timeline` has it.
struct Jump {
  job::StepAt from;
  job::StepAt to;
  stream::Timeline timeline;  // the job's, then
  std::uint32_t moves = 0;    // of the job, this one included
};

// Batches that a consumer may be sent.
inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

struct ConsumerOptions {
  stream::Timeline timeline;  // the job's
  std::optional<stream::Timeline> own =
      std::nullopt;  // as the consumer's cursor cuts it, if it does
  std::uint32_t shard = 0;
  std::uint32_t replica = 0;
  std::uint32_t replicas = 1;
  stream::AbsentReplica absent = stream::AbsentReplica::kWait;
  bool follows = false;  // begins where the other replicas are, if they are beyond `start`
  std::uint32_t credits = 0;
  job::StepAt start;
  job::StepAt halt = job::kNever;  // where a swap of the job is prepared
  std::uint32_t moves = 0;         // of the job, before `start`
  std::uint32_t moves_seen = 0;    // that its process is known to have gone along with
  bool alone = false;              // in its job, for ever: nobody keeps step with it
  std::uint32_t passage = 0;       // of the job, that `start` is in
  std::vector<Jump> jumps = {};    // yet to come, one after the other
  // The consumer may be sent this many batches in all; grant() raises it. 0 until a record on disk
  // names the consumer.
  std::uint64_t granted = kUnlimited;
  // Called under the consumer's lock where it may be sent none, and where it has been sent half.
  // Returns at once.
  std::function<void()> ask_for_grant = nullptr;
  std::uint64_t open_epochs = 0;  // epochs [0, open_epochs) may be made
  bool last_known = false;        // open_epochs is the job's end, not a gate that will open
  uid_t uid = 0;
  stream::JobTag job = 0;
  // Where it reads what its pipeline delivers to a GPU; null: all is read in main memory.
  delivery::DeviceMemoryPtr gpu = nullptr;
  bool gpu_may_have_room = false;  // soon: until it begins, a full one is no reason to do without
  std::shared_ptr<stream::ByteMeter> meter;
  std::shared_ptr<stream::FailureJudge> judge;
  std::shared_ptr<SharingGain> gain;
  std::shared_ptr<stream::ReplicaRoll> roll = std::make_shared<stream::ReplicaRoll>();
};

// One attached consumer on its way through its job: which stream it reads from which step on, what
// it holds, and what it is told in which order. Shared by Sessions and the consumer's streams.
// Thread-safe.
//
// States: connected (streams work for it); begun (it is sent what they make); ended (nothing more);
// then exited, when nothing is read by its process any more. A failure of its streams ends it and
// its connection.
class Consumer final : public stream::StreamReader, public std::enable_shared_from_this<Consumer> {
 public:
  Consumer(ConsumerOptions options, std::shared_ptr<delivery::Connection> connection,
           stream::Streams& streams);

  // Takes its place at the streams; what can be refused is refused here.
  // With a reserve, memory on its GPU comes from there, and what that lacks is refused.
  Status connect(stream::DeviceReserve* reserve = nullptr) SPDLD_EXCLUDES(mutex_);
  // Where it begins: known once it is connected.
  job::StepAt start() const SPDLD_EXCLUDES(mutex_);
  // UUID of the GPU that its first batches lie on; empty: in main memory.
  std::string reads_on() const SPDLD_EXCLUDES(mutex_);
  // Why they lie in main memory though it has a GPU: for the answer to its attach. Afterwards it
  // is told by itself.
  std::string gpu_warning() const SPDLD_EXCLUDES(mutex_);
  // From now on it is sent batches. After Attached has been sent.
  void begin() SPDLD_EXCLUDES(mutex_);

  // From the consumer.
  void note_waited(const delivery::WaitedNotice& notice) SPDLD_EXCLUDES(mutex_);
  void release(std::uint64_t lease) SPDLD_EXCLUDES(mutex_);
  // To `skip` steps behind `to`, which begins at `position`. Fails, and does nothing, if no job can
  // have such a place; any other failure leaves it without a stream.
  Status seek(job::StepAt to, std::uint64_t position, std::uint32_t skip, std::uint32_t serial)
      SPDLD_EXCLUDES(mutex_);

  // From the job.
  // What is connected from now on, of a pipeline that delivers to GPUs, is read there.
  void read_on(delivery::DeviceMemoryPtr gpu) SPDLD_EXCLUDES(mutex_);
  bool has_gpu() const SPDLD_EXCLUDES(mutex_);
  // The record on disk allows `ahead` more batches than the `sent` that View::batches told of, if
  // View::turn was `turn` then.
  void grant(std::uint64_t turn, std::uint64_t sent, std::uint64_t ahead) SPDLD_EXCLUDES(mutex_);
  void grant_all() SPDLD_EXCLUDES(mutex_);
  void open_epochs(std::uint64_t count, bool last_known) SPDLD_EXCLUDES(mutex_);
  // The first step that nothing has been begun of. Nothing further is begun until go_on(); where
  // the consumer asks to go meanwhile, it goes then.
  job::StepAt hold() SPDLD_EXCLUDES(mutex_);
  bool ended() const SPDLD_EXCLUDES(mutex_);  // what the job does is none of its business any more
  void go_on() SPDLD_EXCLUDES(mutex_);
  // While held, and with no frontier of any shard behind `from`. A shard that is left out ends
  // there.
  Status resize(job::StepAt from, std::uint64_t position, std::uint32_t num_shards,
                std::uint64_t left_out = 0) SPDLD_EXCLUDES(mutex_);
  // While held, and with no frontier of any shard behind `jump.from`: so all shards take the same
  // steps. The consumer is told when it is there.
  void jump(Jump jump) SPDLD_EXCLUDES(mutex_);
  // Where that is, if it is not there yet.
  std::optional<job::StepAt> jumps_at() const SPDLD_EXCLUDES(mutex_);
  std::uint32_t moves() const SPDLD_EXCLUDES(mutex_);  // of the job, that it has gone along with
  // While held: makes ready for another phase from `from` on, which no frontier is behind, and lets
  // nothing be made from there on until commit_swap() or abort_swap(). One that was to come at
  // `planned`, earlier, is put off: then nothing is made from there on.
  Status prepare_swap(job::StepAt from, const pipeline::PhasePtr& phase,
                      std::optional<job::StepAt> planned = std::nullopt,
                      stream::DeviceReserve* reserve = nullptr) SPDLD_EXCLUDES(mutex_);
  // Why what is prepared cannot be committed, if it cannot: one of its batches failed.
  Status prepared() const SPDLD_EXCLUDES(mutex_);
  void commit_swap() SPDLD_EXCLUDES(mutex_);
  // The same work has another name from now on: what it reads goes on as it is.
  void rename(const pipeline::PhasePtr& phase, const pipeline::PhasePtr& name)
      SPDLD_EXCLUDES(mutex_);
  Status abort_swap() SPDLD_EXCLUDES(mutex_);

  // No further batch; `away`: its process is expected back. Idempotent.
  void end(bool away) SPDLD_EXCLUDES(mutex_);
  // It cannot release any more but may still read.
  void retire() SPDLD_EXCLUDES(mutex_);
  // Its process has exited.
  void reclaim() SPDLD_EXCLUDES(mutex_);

  // What it waits for, if it is not for batches in the making; empty otherwise.
  std::string waits_for() const SPDLD_EXCLUDES(mutex_);

  // It could be handed a batch, and none is there.
  bool starves() const SPDLD_EXCLUDES(mutex_);
  // Of the stream whose batches come next.
  engine::Executor::Headway headway() const SPDLD_EXCLUDES(mutex_);

  // With jumps to come, of where the last one leads.
  struct View {
    job::StepAt next;   // to be handed out
    job::StepAt acked;  // everything before was given back
    std::uint64_t acked_position = 0;
    std::uint32_t leases = 0;
    std::uint32_t ready = 0;
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
    std::uint64_t arena_bytes = 0;
    std::uint64_t bad_releases = 0;
    std::uint32_t moves = 0;    // of the job, that its process is known to have gone along with
    std::uint64_t turn = 0;     // so many times it went elsewhere since it attached
    bool asks = false;          // for more batches than grant() has allowed
    std::uint64_t ahead = 0;    // so many it may be sent without another grant()
    bool resized_away = false;  // it has been sent all that its shard ever had
    delivery::WaitedNotice waiting;  // as it said last; zeros of a client that says nothing
  };
  View view() const SPDLD_EXCLUDES(mutex_);
  // The arenas that it knows, or holds a lease of.
  std::vector<std::shared_ptr<stream::SlotPool>> arenas() const SPDLD_EXCLUDES(mutex_);
  // What it reads by: the job's, and where its own cursor cuts it.
  stream::Timeline timeline() const SPDLD_EXCLUDES(mutex_);
  std::uint32_t shard() const { return shard_; }
  std::uint32_t replica() const { return replica_; }
  std::uint32_t credits() const { return credits_; }

  // StreamReader
  delivery::HolderId holder() const override { return connection_->id(); }
  stream::FailureJudge& judge() override { return *judge_; }
  void ready() override SPDLD_EXCLUDES(mutex_);
  void failed(const engine::StreamFailure& failure, const stream::Stream& stream) override
      SPDLD_EXCLUDES(mutex_);
  void displaced() override SPDLD_EXCLUDES(mutex_);
  void refused_memory(const Status& why, const stream::Stream& stream) override
      SPDLD_EXCLUDES(mutex_);

 private:
  struct Lease {
    std::uint64_t id = 0;
    job::StepAt at;
    std::uint64_t turn = 0;
    std::uint64_t number = 0;  // of the batches that were sent
    std::uint32_t moves = 0;
    std::shared_ptr<stream::SlotPool> pool;
  };
  struct Shown {
    std::shared_ptr<stream::SlotPool> pool;
    bool lent = false;
  };
  struct Unseen {
    std::shared_ptr<stream::SlotPool> pool;
    std::uint64_t until = 0;  // a batch behind so many is given back
  };
  struct Seek {
    job::StepAt to;
    std::uint64_t position = 0;
    std::uint32_t skip = 0;
    std::uint32_t serial = 0;
  };
  // A swap that is prepared: what the way is from first() on if it is committed.
  struct Pending {
    job::StepAt from;
    pipeline::PhasePtr phase;
    std::optional<job::StepAt> planned;
    std::vector<stream::Leg> legs;
    delivery::DeviceMemoryPtr gpu = nullptr;  // as the consumer's, from then on
    engine::StreamFailure failure = {};       // of their streams, meanwhile

    // The first step that it changes.
    job::StepAt first() const { return planned ? std::min(*planned, from) : from; }
  };

  void pump() SPDLD_REQUIRES(mutex_);
  void let_streams_go_on() SPDLD_EXCLUDES(mutex_);  // that hold() has held
  bool tell_epoch_end() SPDLD_REQUIRES(mutex_);     // false: there is nothing to tell for now
  // The consumer hears what the leg that it is on now is made of, and what it needs no more.
  void take_up_leg() SPDLD_REQUIRES(mutex_);
  // Tells the consumer of the arena and the layout of the batches that it reads of `stream`.
  void show(const stream::Stream& stream, const std::shared_ptr<stream::SlotPool>& pool)
      SPDLD_REQUIRES(mutex_);
  void show(const std::shared_ptr<stream::SlotPool>& pool) SPDLD_REQUIRES(mutex_);
  void send(const stream::Stream::Taken& taken) SPDLD_REQUIRES(mutex_);
  void retire_arenas() SPDLD_REQUIRES(mutex_);
  void announce() SPDLD_REQUIRES(mutex_);
  bool dealt_out(job::StepAt at) const SPDLD_REQUIRES(mutex_);

  // The legs from `from` up to `halt` by `timeline`; on failure none is left joined. Those of
  // phases that deliver to GPUs are read on `gpu`; where that has no memory for one of them, and
  // the phase allows it, in main memory from there on, and `gpu` is let go of.
  Result<std::vector<stream::Leg>> route(const stream::Timeline& timeline, job::StepAt from,
                                         std::shared_ptr<stream::Stream> after,
                                         std::shared_ptr<stream::SlotPool> reuse, job::StepAt halt,
                                         delivery::DeviceMemoryPtr& gpu,
                                         stream::DeviceReserve* reserve = nullptr)
      SPDLD_REQUIRES(mutex_);
  Result<std::vector<stream::Leg>> join(stream::StreamWish& wish, delivery::DeviceMemoryPtr& gpu)
      SPDLD_REQUIRES(mutex_);
  // Its batches lie in main memory from now on: the user is told.
  void tell_in_main_memory(const std::string& warning) SPDLD_REQUIRES(mutex_);
  // Goes on in main memory at the stream that refused it. False: it has no leg there that may lie
  // there.
  bool go_on_in_main_memory(const Status& why, const stream::Stream& stream) SPDLD_REQUIRES(mutex_);
  void leave(const std::vector<stream::Leg>& legs, bool away = false) SPDLD_REQUIRES(mutex_);
  // Drops the legs from `from` on; the one before ends there. The pool that became free by it.
  std::shared_ptr<stream::SlotPool> cut_legs(job::StepAt from) SPDLD_REQUIRES(mutex_);
  // The legs are as the timeline has them from `from` on.
  Status retime(job::StepAt from) SPDLD_REQUIRES(mutex_);
  Status go_to(job::StepAt to, stream::Timeline timeline) SPDLD_REQUIRES(mutex_);
  Status make_jump() SPDLD_REQUIRES(mutex_);
  Status make_seek(const Seek& seek) SPDLD_REQUIRES(mutex_);
  // If its job has gone elsewhere, and its process may not have heard of that: what that asks for
  // counts from where it was then, which is said by an attach.
  bool turn_away() SPDLD_REQUIRES(mutex_);
  // Everything before was given back.
  job::StepAt acked() const SPDLD_REQUIRES(mutex_);
  void forget_old_cuts() SPDLD_REQUIRES(mutex_);
  // It ends, and is told why.
  void give_up(const engine::StreamFailure& failure) SPDLD_REQUIRES(mutex_);
  // What a job must be told of a batch that another one had made. False: it cannot bear it, and the
  // consumer has ended.
  bool accept(const std::vector<engine::SampleFailure>& replaced) SPDLD_REQUIRES(mutex_);
  stream::StreamWish wish(const stream::Timeline& timeline, job::StepAt from, job::StepAt until,
                          const delivery::DeviceMemoryPtr& gpu) const SPDLD_REQUIRES(mutex_);
  Status make_pending(Pending pending, stream::DeviceReserve* reserve = nullptr)
      SPDLD_REQUIRES(mutex_);
  std::vector<std::shared_ptr<stream::SlotPool>> pools() const SPDLD_REQUIRES(mutex_);

  const std::uint32_t shard_;
  const std::uint32_t replica_;
  const std::uint32_t replicas_;
  const stream::AbsentReplica absent_;
  const bool follows_;
  const std::uint32_t credits_;
  const uid_t uid_;
  const stream::JobTag job_;
  const bool gpu_may_have_room_;
  const std::function<void()> ask_for_grant_;
  const std::shared_ptr<stream::ByteMeter> meter_;
  const std::shared_ptr<stream::FailureJudge> judge_;
  const std::shared_ptr<SharingGain> gain_;
  const std::shared_ptr<stream::ReplicaRoll> roll_;
  const std::shared_ptr<delivery::Connection> connection_;
  stream::Streams& streams_;

  mutable Mutex mutex_;
  delivery::DeviceMemoryPtr gpu_ SPDLD_GUARDED_BY(mutex_);
  std::string gpu_warning_ SPDLD_GUARDED_BY(mutex_);
  stream::Timeline job_timeline_ SPDLD_GUARDED_BY(mutex_);
  stream::Timeline timeline_
      SPDLD_GUARDED_BY(mutex_);  // and where this consumer's own cursor cuts it
  std::vector<stream::Leg> legs_ SPDLD_GUARDED_BY(mutex_);
  std::optional<Pending> pending_ SPDLD_GUARDED_BY(mutex_);
  std::vector<Jump> jumps_ SPDLD_GUARDED_BY(mutex_);
  std::uint32_t moves_ SPDLD_GUARDED_BY(mutex_);       // of the job, that it has gone along with
  std::uint32_t moves_seen_ SPDLD_GUARDED_BY(mutex_);  // and its process has been told so
  const bool alone_;
  bool jumped_ SPDLD_GUARDED_BY(mutex_) = false;       // since it attached
  bool turned_away_ SPDLD_GUARDED_BY(mutex_) = false;  // what it gives back tells no more
  std::uint32_t passage_ SPDLD_GUARDED_BY(mutex_);
  // Nothing is made for it from there on: what follows the swap or the jump is not decided, or
  // other.
  job::StepAt halt_ SPDLD_GUARDED_BY(mutex_);
  bool holds_ SPDLD_GUARDED_BY(mutex_) = false;  // between hold() and go_on()
  std::vector<std::shared_ptr<stream::Stream>> held_ SPDLD_GUARDED_BY(mutex_);  // meanwhile
  std::optional<Seek> delayed_ SPDLD_GUARDED_BY(mutex_);  // meanwhile; the last one
  std::vector<Shown> shown_ SPDLD_GUARDED_BY(mutex_);
  // What was shown and taken back before anything was lent of it: the process may not have looked
  // at it yet, and nobody else is to have it before.
  std::vector<Unseen> unseen_ SPDLD_GUARDED_BY(mutex_);
  std::vector<Lease> leases_ SPDLD_GUARDED_BY(mutex_);
  pipeline::PhasePtr told_ SPDLD_GUARDED_BY(mutex_);      // what the consumer knows of
  std::uint32_t schema_id_ SPDLD_GUARDED_BY(mutex_) = 0;  // sent last, of that one
  bool told_on_gpu_ SPDLD_GUARDED_BY(mutex_) = false;     // that batches of it lie there
  std::uint64_t open_epochs_ SPDLD_GUARDED_BY(mutex_);
  bool last_known_ SPDLD_GUARDED_BY(mutex_);
  job::StepAt to_send_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t turn_ SPDLD_GUARDED_BY(mutex_) = 0;  // counts seeks and moves
  std::uint32_t seek_ SPDLD_GUARDED_BY(mutex_) = 0;  // the consumer's serial
  bool begun_ SPDLD_GUARDED_BY(mutex_) = false;
  bool ended_ SPDLD_GUARDED_BY(mutex_) = false;
  bool resized_away_ SPDLD_GUARDED_BY(mutex_) = false;
  bool told_last_ SPDLD_GUARDED_BY(mutex_) = false;  // that the job has no further epoch
  std::uint64_t batches_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t granted_ SPDLD_GUARDED_BY(mutex_);  // it may be sent so many in all
  // It asks for more when so many have been sent. None: it has asked.
  std::optional<std::uint64_t> ask_at_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t rows_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t bad_releases_ SPDLD_GUARDED_BY(mutex_) = 0;
  delivery::WaitedNotice waiting_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session
