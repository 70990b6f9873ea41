// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "delivery/connection.h"
#include "job/membership.h"
#include "session/job_plan.h"
#include "session/told.h"
#include "session/way.h"
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

struct ConsumerOptions {
  JobPlanPtr plan;
  job::OwnSeeks own = {};
  job::Turn turn = 0;    // its loop has been handed so many batches
  bool follows = false;  // begins where the other replicas are, if they are beyond that
  WayTerms way;
  job::Turn granted = job::kNoTurn;  // it is sent no turn from here on; grant() raises it
  std::shared_ptr<ConsumerHost> host;
  std::uint64_t open_epochs = 0;  // epochs [0, open_epochs) may be made
  bool last_known = false;        // open_epochs is the job's end, not a gate that will open
  // The GPU on which the consumer reads batches delivered to a GPU; null: it reads all of them in
  // main memory.
  delivery::DeviceMemoryPtr gpu = nullptr;
  bool gpu_may_have_room = false;  // soon: until it begins, a full one is no reason to do without
  std::shared_ptr<stream::FailureJudge> judge;
  std::shared_ptr<SharingGain> gain;
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
  // The consumer's place as the answer to its attach tells it, once it is connected.
  struct Start {
    job::Turn turn = 0;
    job::StepAt at;  // behind the batches that it was handed, before the job's edits of that turn
    std::uint64_t position = 0;
    pipeline::PhasePtr phase;  // of the next batch
    std::uint64_t steps_per_epoch = 0;
  };
  Start start() const SPDLD_EXCLUDES(mutex_);
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
  void handed(job::Turn turn) SPDLD_EXCLUDES(mutex_);
  // Fails, and does nothing, if no loop of its job can ask for that; any other failure leaves it
  // without a stream.
  Status seek(const delivery::SeekRequest& request) SPDLD_EXCLUDES(mutex_);

  // From the job.
  // Streams connected from now on are read on `gpu` where their pipeline delivers to GPUs.
  void read_on(delivery::DeviceMemoryPtr gpu) SPDLD_EXCLUDES(mutex_);
  bool has_gpu() const SPDLD_EXCLUDES(mutex_) { return gpu() != nullptr; }
  delivery::DeviceMemoryPtr gpu() const SPDLD_EXCLUDES(mutex_);
  // The record on disk allows it all turns before `until`.
  void grant(job::Turn until) SPDLD_EXCLUDES(mutex_);
  struct Bound {
    job::Turn granted = 0;
    job::Turn due = job::kNoTurn;  // it is sent no turn from here on before the swap has its turn
  };
  // Takes back what it was granted beyond the turn at which the swap that the schedule plans is
  // due: a seek of its loop may lead it further, and it asks again then.
  Bound bound_grant(const job::Schedule& schedule) SPDLD_EXCLUDES(mutex_);
  void open_epochs(std::uint64_t count, bool last_known) SPDLD_EXCLUDES(mutex_);
  // Returns the first turn of which no batch has been begun. No further batch is begun until
  // go_on(), which also carries out a seek that has come meanwhile.
  job::Turn hold() SPDLD_EXCLUDES(mutex_);
  void go_on() SPDLD_EXCLUDES(mutex_);
  bool ended() const SPDLD_EXCLUDES(mutex_);  // changes of the job do not concern it any more
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

  // No further batch; `away`: its process is expected back. Idempotent.
  void end(bool away) SPDLD_EXCLUDES(mutex_);
  // The process cannot release leases any more but may still read them.
  void retire() SPDLD_EXCLUDES(mutex_);
  // Its process has exited.
  void reclaim() SPDLD_EXCLUDES(mutex_);

  // The reason for which the consumer waits; empty if it waits only for batches being made.
  std::string waits_for() const SPDLD_EXCLUDES(mutex_);
  // The consumer could be handed a batch, and none is ready.
  bool starves() const SPDLD_EXCLUDES(mutex_);
  // Of the stream whose batches come next.
  engine::Executor::Headway headway() const SPDLD_EXCLUDES(mutex_);

  struct View {
    job::Progress progress;
    job::OwnSeeks own;
    job::Turn handed = 0;       // by its process, as far as is known
    std::uint32_t version = 0;  // of the next batch
    std::uint32_t leases = 0;
    std::uint32_t ready = 0;
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
    std::uint64_t arena_bytes = 0;
    std::uint64_t bad_releases = 0;
    bool asks = false;               // for a further grant()
    bool resized_away = false;       // it has been sent all that its shard ever had
    delivery::WaitedNotice waiting;  // as it said last; zeros of a client that says nothing
  };
  View view() const SPDLD_EXCLUDES(mutex_);
  // The arenas that it knows, or holds a lease of.
  std::vector<std::shared_ptr<stream::SlotPool>> arenas() const SPDLD_EXCLUDES(mutex_);
  std::uint32_t credits() const { return terms_.credits; }

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
    job::Turn turn = 0;
    std::uint32_t seek = 0;    // its loop's last one when it was sent
    std::uint64_t number = 0;  // of the batches that were sent
    std::shared_ptr<stream::SlotPool> pool;
  };
  // A plan that is prepared: its legs are the last ones of the way.
  struct Pending {
    JobPlanPtr plan;
    job::OwnSeeks own;
    job::Turn from = 0;                  // the first turn that it changes
    engine::StreamFailure failure = {};  // of its streams, meanwhile
  };
  // Where a loop is: the step need not be one that its epoch has.
  struct Place {
    job::StepAt at;
    std::uint64_t position = 0;
  };

  void pump() SPDLD_REQUIRES(mutex_);
  // Tells the ends of the loop's epochs up to this one. False: that must wait.
  bool tell_ends(std::uint64_t epoch) SPDLD_REQUIRES(mutex_);
  // Whether it may go on beyond the edits of its turn; the loop is told what they mean.
  bool pass_edits(const job::State& at) SPDLD_REQUIRES(mutex_);
  // A batch of the stream is sent. False: none is there.
  bool send_next(const job::State& at) SPDLD_REQUIRES(mutex_);
  void let_streams_go_on() SPDLD_EXCLUDES(mutex_);  // that hold() has held
  // Tells the process the arena, version and schema of the current leg, and the arenas that it
  // needs no more.
  void take_up_leg() SPDLD_REQUIRES(mutex_);
  // Joins streams for turns further ahead.
  Status extend() SPDLD_REQUIRES(mutex_);
  // Joins streams from `from` on in place of the legs there.
  Status join_anew(job::Turn from, Way::Joining how) SPDLD_REQUIRES(mutex_);
  // Decides by which plan it reads, and up to where: a planned swap is assumed to come where it is
  // due. If it gets another turn, prepare() joins other streams in place of those.
  void assume() SPDLD_REQUIRES(mutex_);
  Place place() const SPDLD_REQUIRES(mutex_);  // where its loop is
  job::Turn released() const SPDLD_REQUIRES(mutex_);
  // Its own seeks beside a schedule that may have forgotten edits of its own plan's.
  job::OwnSeeks own_in(const job::Schedule& schedule) const SPDLD_REQUIRES(mutex_);
  // Of a loop that has come to the end of its epoch by so many batches.
  Place end_of_epoch(job::Turn turn) const SPDLD_REQUIRES(mutex_);
  // The first one that its own seeks, and the job's edits, say anything of.
  job::Turn first_turn() const SPDLD_REQUIRES(mutex_);
  Status make_seek(const delivery::SeekRequest& request) SPDLD_REQUIRES(mutex_);
  Status go_to(job::Turn turn) SPDLD_REQUIRES(mutex_);
  void send_reset(const Place& place, std::uint32_t seek) SPDLD_REQUIRES(mutex_);
  bool tells(job::Turn turn) SPDLD_REQUIRES(mutex_);
  void look_for_entry() SPDLD_REQUIRES(mutex_);
  void tell_warning() SPDLD_REQUIRES(mutex_);
  // Goes on in main memory at the stream that refused it. False: it has no leg there that may lie
  // there.
  bool go_on_in_main_memory(const Status& why, const stream::Stream& stream) SPDLD_REQUIRES(mutex_);
  // Ends the consumer and tells its process the failure.
  void give_up(const engine::StreamFailure& failure) SPDLD_REQUIRES(mutex_);
  // Tells the job of the bad items in a batch that another job had made. False: the job does not
  // tolerate them, and the consumer has ended.
  bool accept(const std::vector<engine::SampleFailure>& replaced) SPDLD_REQUIRES(mutex_);
  std::vector<std::shared_ptr<stream::SlotPool>> pools() const SPDLD_REQUIRES(mutex_);

  const WayTerms terms_;
  const bool follows_;
  const bool gpu_may_have_room_;
  const std::shared_ptr<ConsumerHost> host_;
  const std::shared_ptr<stream::FailureJudge> judge_;
  const std::shared_ptr<SharingGain> gain_;
  const std::shared_ptr<delivery::Connection> connection_;
  stream::Streams& streams_;

  mutable Mutex mutex_;
  JobPlanPtr plan_ SPDLD_GUARDED_BY(mutex_);      // the one that counts
  JobPlanPtr way_plan_ SPDLD_GUARDED_BY(mutex_);  // by which it reads: assume()
  job::OwnSeeks own_ SPDLD_GUARDED_BY(mutex_);
  Way way_ SPDLD_GUARDED_BY(mutex_);
  std::optional<Pending> pending_ SPDLD_GUARDED_BY(mutex_);
  job::Turn turn_ SPDLD_GUARDED_BY(mutex_);  // is sent next
  // The consumer is sent no turn from here on: the batch there is not decided yet.
  job::Turn limit_ SPDLD_GUARDED_BY(mutex_) = job::kNoTurn;
  job::Turn due_ SPDLD_GUARDED_BY(mutex_) = job::kNoTurn;  // of the planned swap
  job::Turn granted_ SPDLD_GUARDED_BY(mutex_);
  job::Turn ask_at_ SPDLD_GUARDED_BY(mutex_) = 0;  // kNoTurn: it has asked
  job::Turn handed_ SPDLD_GUARDED_BY(mutex_);      // by its process, as far as is known
  bool holds_ SPDLD_GUARDED_BY(mutex_) = false;    // between hold() and go_on()
  std::optional<delivery::SeekRequest> delayed_ SPDLD_GUARDED_BY(mutex_);  // meanwhile; the last
  std::vector<Lease> leases_ SPDLD_GUARDED_BY(mutex_);
  Told told_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t epoch_ SPDLD_GUARDED_BY(mutex_) = 0;  // that its loop is in, as it was told
  std::uint64_t steps_ SPDLD_GUARDED_BY(mutex_) = 0;  // of that, behind the last batch
  // The turn up to whose edits the loop has been told all, and the one whose edits it was told.
  std::optional<job::Turn> left_ SPDLD_GUARDED_BY(mutex_);
  std::optional<job::Turn> passed_ SPDLD_GUARDED_BY(mutex_);
  bool told_last_ SPDLD_GUARDED_BY(mutex_) = false;    // that the job has no further epoch
  job::Turn told_entry_ SPDLD_GUARDED_BY(mutex_) = 0;  // its process was asked to tell
  std::string gpu_warning_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t open_epochs_ SPDLD_GUARDED_BY(mutex_);
  bool last_known_ SPDLD_GUARDED_BY(mutex_);
  std::uint32_t seek_ SPDLD_GUARDED_BY(mutex_) = 0;  // the consumer's serial
  bool begun_ SPDLD_GUARDED_BY(mutex_) = false;
  bool ended_ SPDLD_GUARDED_BY(mutex_) = false;
  bool resized_away_ SPDLD_GUARDED_BY(mutex_) = false;
  std::uint64_t batches_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t rows_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::uint64_t bad_releases_ SPDLD_GUARDED_BY(mutex_) = 0;
  delivery::WaitedNotice waiting_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session
