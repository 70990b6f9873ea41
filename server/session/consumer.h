// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "delivery/connection.h"
#include "job/membership.h"
#include "session/epochs.h"
#include "session/gate.h"
#include "session/grant.h"
#include "session/leases.h"
#include "session/loop.h"
#include "session/way.h"
#include "stream/shortage_clock.h"
#include "stream/stream_reader.h"

namespace spdld::session {

// Counts the rows that the consumers of a job were handed, and the work saved by reading rows that
// another job's stream had made. Any thread may use it; each number stands alone.
struct SharingGain {
  std::atomic<std::uint64_t> handed_rows{0};
  std::atomic<std::uint64_t> rows{0};  // of handed_rows: those that another job had made
  std::atomic<std::uint64_t> saved_ns{0};
};

// The requests of a consumer to its job. Called under the consumer's lock; each returns at once,
// and is answered on the keeper's thread (Attacher::Host).
class ConsumerHost {
 public:
  virtual ~ConsumerHost() = default;
  // The consumer has been sent half of the turns that grant() has allowed, or all of them.
  virtual void asks_for_grant() = 0;
  // The consumer's next turn is the one at which the planned swap takes effect for it.
  virtual void comes_to_planned() = 0;
  // The consumer's loop has come to a turn at which other shards enter the job.
  virtual void comes_to_entry() = 0;
};

// The job of a consumer, as the consumer sees it.
struct ConsumerJob {
  std::shared_ptr<ConsumerHost> host;
  std::shared_ptr<stream::FailureJudge> judge;
  std::shared_ptr<SharingGain> gain;
};

struct ConsumerOptions {
  JobPlanPtr plan;
  job::OwnSeeks own = {};
  job::Turn turn = 0;  // its loop has been handed so many batches
  WayTerms way;
  ConsumerJob job;
  job::Turn granted = job::kNoTurn;  // it is sent no turn from here on; grant() raises it
  std::uint64_t open_epochs = 0;     // epochs [0, open_epochs) may be made
  bool last_known = false;           // open_epochs is the job's end, not a gate that will open
  // The GPU on which the consumer reads batches delivered to a GPU; null: it reads all of them in
  // main memory.
  delivery::DeviceMemoryPtr gpu = nullptr;
};

// One attached consumer of a job: decides which batch the consumer is sent at which turn, keeps its
// leases, and orders the messages to its process. Shared by Sessions and the consumer's streams.
// Thread-safe.
//
// States: connected (streams work for it); begun (it is sent their batches); ended (it is sent
// nothing more); then exited, when its process reads nothing any more. A failure of its streams
// ends the consumer and its connection.
class Consumer final : public stream::StreamReader, public std::enable_shared_from_this<Consumer> {
 public:
  Consumer(ConsumerOptions options, std::shared_ptr<delivery::Connection> connection,
           stream::Streams& streams);

  // Joins the streams; a refusal for lack of resources comes from this call.
  // With a reserve, memory on the GPU comes from the reserve, and a shortage there is refused.
  Status connect(stream::DeviceReserve* reserve = nullptr) SPDLD_EXCLUDES(mutex_);
  // The facts of the answer to its attach, once it is connected.
  struct Start {
    job::Turn turn = 0;
    Loop::Place
        place;  // behind the batches that it was handed, before the job's edits of that turn
    pipeline::PhasePtr phase;  // of the next batch
    std::uint64_t steps_per_epoch = 0;
    std::uint32_t credits = 0;
    std::string gpu;          // UUID of the one that its first batches lie on; empty: main memory
    std::string gpu_warning;  // why they lie there though it has a GPU; told no second time
  };
  Start start() SPDLD_EXCLUDES(mutex_);
  // From now on it is sent batches. After Attached has been sent.
  void begin() SPDLD_EXCLUDES(mutex_);

  // From the consumer.
  void note_waited(const delivery::WaitedNotice& notice) SPDLD_EXCLUDES(mutex_);
  void release(std::uint64_t lease) SPDLD_EXCLUDES(mutex_);
  void handed(job::Turn turn) SPDLD_EXCLUDES(mutex_);
  // Fails, and does nothing, if no loop of its job can ask for that; any other failure leaves it
  // without a stream.
  Status seek(const delivery::SeekRequest& request) SPDLD_EXCLUDES(mutex_);

  // From the job.
  // Streams connected from now on are read on `gpu` where their pipeline delivers to GPUs.
  void read_on(delivery::DeviceMemoryPtr gpu) SPDLD_EXCLUDES(mutex_);
  delivery::DeviceMemoryPtr gpu() const SPDLD_EXCLUDES(mutex_);
  // The record on disk allows it all turns before `until`.
  void grant(job::Turn until) SPDLD_EXCLUDES(mutex_);
  // Takes back what it was granted beyond the turn at which the swap that the schedule plans is
  // due: a seek of its loop may lead it further, and it asks again then.
  Grant::Bound bound_grant(const job::Schedule& schedule) SPDLD_EXCLUDES(mutex_);
  void open_epochs(std::uint64_t count, bool last_known) SPDLD_EXCLUDES(mutex_);
  // Returns the first turn of which no batch has been begun; 0 of a consumer that has ended. No
  // further batch is begun until go_on(), which also carries out a seek that has come meanwhile.
  job::Turn hold() SPDLD_EXCLUDES(mutex_);
  void go_on() SPDLD_EXCLUDES(mutex_);
  // While held: makes ready for another plan, which differs from its own from a turn on that was
  // not begun. Nothing from there on is sent until commit() or abort().
  Status prepare(const JobPlanPtr& plan, job::Turn from, stream::DeviceReserve* reserve = nullptr)
      SPDLD_EXCLUDES(mutex_);
  // The reason for which the prepared plan cannot be committed, if any: one of its batches failed.
  Status prepared() const SPDLD_EXCLUDES(mutex_);
  void commit() SPDLD_EXCLUDES(mutex_);
  Status abort() SPDLD_EXCLUDES(mutex_);
  // The same plan with other names for its phases: the consumer's streams go on as they are.
  void rename(const JobPlanPtr& plan) SPDLD_EXCLUDES(mutex_);

  // A measurement (headspace.h), from time() to end_timing(): batches that are given back are
  // noted, with their times by this clock, which outlives it.
  void time(const Clock& clock) SPDLD_EXCLUDES(mutex_);
  void end_timing() SPDLD_EXCLUDES(mutex_);  // its gate opens and its streams go on; idempotent
  // It is sent no turn from `until` on; kNoTurn: as ever.
  void gate(job::Turn until) SPDLD_EXCLUDES(mutex_);
  // One of its streams is read by another job, too.
  bool shares_stream() const SPDLD_EXCLUDES(mutex_);
  // Its streams begin no batch until release_streams(). False, and nothing is done: it has ended,
  // or shares one.
  bool hold_streams() SPDLD_EXCLUDES(mutex_);
  void release_streams() SPDLD_EXCLUDES(mutex_);
  struct Timed {
    job::Turn turn = 0;       // is sent next
    std::uint32_t ready = 0;  // batches that lie ready for it, also behind its gate
    std::uint32_t leases = 0;
    bool making = false;                       // its streams are making batches
    bool full = false;                         // and none can be begun before it gives one back
    bool over = false;                         // it has ended, or its loop has gone elsewhere
    std::vector<StepTimes::Given> given = {};  // since the last call
  };
  // The slots that its streams take, in main memory and on its GPU.
  Leases::Pools slots() const SPDLD_EXCLUDES(mutex_);
  Timed take_timed() SPDLD_EXCLUDES(mutex_);

  // No further batch; `away`: its process is expected back. Idempotent.
  void end(bool away) SPDLD_EXCLUDES(mutex_);
  // The process cannot release leases any more but may still read them.
  void retire() SPDLD_EXCLUDES(mutex_);
  // Its process has exited.
  void reclaim() SPDLD_EXCLUDES(mutex_);

  // The reason for which the consumer waits; empty if it waits only for batches being made.
  std::string waits_for() const SPDLD_EXCLUDES(mutex_);
  // Of the stream that has the next batch, if that could be handed out and is not ready.
  std::optional<engine::Executor::Headway> starved() const SPDLD_EXCLUDES(mutex_);

  struct View {
    job::Progress progress;
    job::OwnSeeks own;
    job::Turn handed = 0;       // by its process, as far as is known
    std::uint32_t version = 0;  // of the next batch
    std::string gpu;            // UUID of the one that it lies on; empty: in main memory
    std::uint32_t credits = 0;
    std::uint32_t leases = 0;
    std::uint32_t ready = 0;
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
    std::uint64_t arena_bytes = 0;
    std::uint64_t bad_releases = 0;
    bool asks = false;               // for a further grant()
    bool ended = false;              // changes of the job do not concern it any more
    bool resized_away = false;       // it has been sent all that its shard ever had
    delivery::WaitedNotice waiting;  // as it said last; zeros of a client that says nothing
  };
  View view() const SPDLD_EXCLUDES(mutex_);
  // Since it was begun; what it did not lack anything of is the rest of `attached`.
  struct Lacked {
    std::chrono::nanoseconds attached{0};
    stream::ShortageTime time{};
  };
  Lacked lacked() const SPDLD_EXCLUDES(mutex_);
  // The run that makes its next batch: another job's, where that has made the stream. Null: none.
  std::shared_ptr<const engine::Run> made_by() const SPDLD_EXCLUDES(mutex_);
  // The arenas that it knows, or holds a lease of.
  Leases::Pools arenas() const SPDLD_EXCLUDES(mutex_);

  // StreamReader
  delivery::HolderId holder() const override { return connection_->id(); }
  stream::FailureJudge& judge() override { return *job_.judge; }
  void ready() override SPDLD_EXCLUDES(mutex_);
  void failed(const engine::StreamFailure& failure, const stream::Stream& stream) override
      SPDLD_EXCLUDES(mutex_);
  void displaced() override SPDLD_EXCLUDES(mutex_);
  void refused_memory(const Status& why, const stream::Stream& stream) override
      SPDLD_EXCLUDES(mutex_);

 private:
  // Sends what there is to be sent, and notes what is lacking then.
  void pump() SPDLD_REQUIRES(mutex_);
  void send() SPDLD_REQUIRES(mutex_);
  void note_shortage() SPDLD_REQUIRES(mutex_);
  // A batch of the stream is sent. False: none is there, or the consumer has ended: the job does
  // not tolerate the bad items in a batch that another job had made.
  bool send_next(const job::State& at) SPDLD_REQUIRES(mutex_);
  // Tells the process the arena, version and schema of the current leg, and the arenas that it
  // needs no more.
  void take_up_leg() SPDLD_REQUIRES(mutex_);
  // Joins streams from `from` on in place of the legs there.
  Status join(job::Turn from, const Way::Joining& how = {}) SPDLD_REQUIRES(mutex_);
  // Joins streams for turns further ahead.
  Status extend() SPDLD_REQUIRES(mutex_);
  Status make_seek(const delivery::SeekRequest& request) SPDLD_REQUIRES(mutex_);
  void tell_warning() SPDLD_REQUIRES(mutex_);
  // Ends the consumer and tells its process the failure.
  void give_up(const engine::StreamFailure& failure) SPDLD_REQUIRES(mutex_);
  void note_given(job::Turn turn) SPDLD_REQUIRES(mutex_);
  bool is_at_gate() const SPDLD_REQUIRES(mutex_) {
    return gate_ != nullptr && loop_.turn >= gate_->until;
  }
  job::Turn released() const SPDLD_REQUIRES(mutex_);
  bool shares() const SPDLD_REQUIRES(mutex_);

  const WayTerms terms_;
  const ConsumerJob job_;
  const std::shared_ptr<delivery::Connection> connection_;

  mutable Mutex mutex_;
  Loop loop_ SPDLD_GUARDED_BY(mutex_);
  Way way_ SPDLD_GUARDED_BY(mutex_);
  Grant grant_ SPDLD_GUARDED_BY(mutex_);
  Epochs epochs_ SPDLD_GUARDED_BY(mutex_);
  Leases leases_ SPDLD_GUARDED_BY(mutex_);
  // The last one that came between hold() and go_on().
  std::optional<delivery::SeekRequest> delayed_ SPDLD_GUARDED_BY(mutex_);
  std::uint32_t credits_ SPDLD_GUARDED_BY(mutex_) = 0;  // of the leg that it reads
  bool begun_ SPDLD_GUARDED_BY(mutex_) = false;
  bool ended_ SPDLD_GUARDED_BY(mutex_) = false;
  bool resized_away_ SPDLD_GUARDED_BY(mutex_) = false;
  delivery::WaitedNotice waiting_ SPDLD_GUARDED_BY(mutex_);
  std::unique_ptr<Gate> gate_ SPDLD_GUARDED_BY(mutex_);  // null: it is not being timed
  stream::ShortageClock shortage_ SPDLD_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point begun_at_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session
