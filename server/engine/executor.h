// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/plan/decode_memory.h"
#include "engine/run.h"
#include "engine/stream_port.h"
#include "source/item/source.h"

namespace spdld::engine {

using StreamId = std::uint64_t;

struct ExecutorOptions {
  unsigned threads = 1;
  std::vector<int> cpus = {};  // empty: wherever the process may run
  int nice = 0;
  std::uint64_t decode_memory_bytes = std::uint64_t{1} << 30;  // the ceiling of DecodeMemory
  // What one row may take of it (RunPool).
  std::uint64_t row_memory_bytes = std::numeric_limits<std::uint64_t>::max();
  // Once sources have so many rows, of all runs together, a run may only add to the few that it is
  // always allowed: what the I/O pool holds is for all runs.
  int many_fetches = 32768;
  int few_fetches = 16;
  // Before a row is tried again for which there was no memory.
  std::chrono::nanoseconds memory_pause = std::chrono::seconds(1);
};

// The cores that this process may use: the smaller of its affinity and its cgroup's quota, at
// least 1.
unsigned available_cpus();

// The one CPU pool of the daemon. A worker takes one row at a time, from bytes to its place in the
// slot. Which row: of the runs, the one that has had the least CPU time for its weight; in it,
// first rows whose bytes have just come, then rows of the lowest step, then a new batch for the
// stream that is least ahead. So nothing is begun that has no slot to go to, and what is begun gets
// done.
//
// Rows that take long never have all workers while another run has work: the last worker without
// such a row is left to runs whose rows are short (docs/sessions.md#limits). What a batch that is
// given up needs is dropped while it is made, as far as the ops look (SampleInput::is_dropped).
//
// A row that needs more memory for decoding than is free is parked: no worker waits for it. Of each
// run the row parked first is in the line for what comes back; the run that has had the least CPU
// time has the line's front, and nobody takes memory before that row has got what it needs: no
// large image is passed by smaller ones for ever.
//
// Owned by the daemon; outlives every stream. All methods are thread-safe. What a stream or a run
// leaves behind (its port, its source with the listing) dies under no lock. A source that still has
// rows when the executor is destroyed must be stopped before (IoPool): it is waited for.
class Executor final : private source::FetchSink {
 public:
  explicit Executor(ExecutorOptions options);
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  unsigned threads() const { return options_.threads; }
  // For runs that it is given.
  RunPool pool() const { return {options_.threads, options_.row_memory_bytes}; }

  // From now on `port` is asked for batches of `run`. Both are kept until the stream is closed and
  // its last batch is given back.
  StreamId open_stream(std::shared_ptr<Run> run, std::shared_ptr<StreamPort> port)
      SPDLD_EXCLUDES(mutex_);
  // StreamPort::open may have something again.
  void wake(StreamId stream) SPDLD_EXCLUDES(mutex_);
  // What a run may have of the pool, from the next row on; and the stage concurrency that another
  // plan asks for and that differs in nothing else. A run's bounds change here alone, so that the
  // workers that a higher bound admits are woken.
  void set_limits(Run& run, RunLimits limits) SPDLD_EXCLUDES(mutex_);
  void tune(Run& run, int fetch_concurrency, int process_concurrency) SPDLD_EXCLUDES(mutex_);
  // Gives up the batches that are being made and are not before (epoch, step): their rows not yet
  // begun are dropped, and each is abandoned once the others are done.
  void cancel(StreamId stream, std::uint64_t epoch, std::uint64_t step) SPDLD_EXCLUDES(mutex_);
  // How far a stream has come: for who waits for its batches.
  struct Headway {
    std::uint64_t moves = 0;  // rows that came from their source, and rows that were made
    // What the row does that has been under way longest: of the stream's first batch, else of any
    // of the run's. Empty: there is none.
    std::string doing;
    bool own = false;  // it is of the first batch
  };
  Headway headway(StreamId stream) SPDLD_EXCLUDES(mutex_);

  // No further batch. Those under way are abandoned.
  void close_stream(StreamId stream) SPDLD_EXCLUDES(mutex_);

  // The most that decodes have held of their memory at once.
  std::uint64_t most_decode_memory() SPDLD_EXCLUDES(mutex_);

  // Ends the workers; every batch under way is abandoned. Idempotent.
  void stop() SPDLD_EXCLUDES(mutex_);

 private:
  // A row that takes longer is noticed by the consumers of others that wait for it.
  static constexpr std::chrono::nanoseconds kLongRow = std::chrono::milliseconds(100);

  struct Lane;
  struct Stream;

  // A batch in the making. Its rows hold pointers to it, so it does not move.
  struct OpenBatch {
    BatchOrder order;
    std::shared_ptr<StreamPort> port;
    std::uint64_t next_row = 0;    // rows before it have been begun
    std::uint64_t unfinished = 0;  // rows begun, not done
    // Nobody wants it any more. Set under the lock; workers look at it while they make a row.
    std::atomic<bool> given_up = false;
    std::unique_ptr<Packing> packing;  // of plans that pack
  };
  using BatchIterator = std::list<OpenBatch>::iterator;
  struct Stream {
    StreamId id = 0;
    std::shared_ptr<StreamPort> port;
    std::list<OpenBatch> batches;  // by (epoch, step)
    bool may_open = true;
    bool opening = false;  // a worker is inside port->open()
    bool closed = false;
    std::uint64_t moves = 0;       // as in Headway
    std::uint64_t last_epoch = 0;  // of the batch opened last
    std::uint64_t last_step = 0;
  };
  // Whose the row is now. A row that a worker has may not be looked into under the lock alone.
  enum class Holder { kNobody, kWorker, kSource, kParked };
  struct Task : Row {
    Lane* lane = nullptr;
    Stream* stream = nullptr;
    BatchIterator batch;
    Holder holder = Holder::kNobody;
    std::uint64_t turn = 0;  // counts the workers that have had it
    std::chrono::steady_clock::time_point held_since;
    std::optional<std::chrono::steady_clock::time_point> paused_until;  // while it is parked
  };
  // A run with its streams.
  struct Lane {
    std::shared_ptr<Run> run;
    std::list<Stream> streams;
    std::deque<Task*> ready;   // fetched, to be processed
    std::deque<Task*> parked;  // fetched, waiting for memory
    std::vector<std::unique_ptr<Task>> tasks;
    std::vector<Task*> free_tasks;
    int fetching = 0;  // rows that a source has; less than 0 while an answer overtakes its question
    int processing = 0;                    // rows that a worker has
    std::int64_t processing_since_ns = 0;  // when they had it from, in sum
    // The longest that a worker had one of its rows, which fades from row to row. Until a row is
    // done, they count as long.
    std::chrono::nanoseconds longest_row = kLongRow;
    std::optional<std::chrono::nanoseconds> last_row_at;  // by the run's clock
    double cpu_per_weight_s = 0;                          // of rows that workers are done with
    double need_s = 0;  // pick()'s: with what they have had until now
  };
  // What of a lane comes next. No `stream`: the row that was parked first, or that its source
  // brought first.
  struct Choice {
    bool parked = false;
    Stream* stream = nullptr;
    std::optional<BatchIterator> batch = std::nullopt;  // to begin a row of; none: to be opened
  };
  // What a worker does next.
  struct Work {
    Lane* lane = nullptr;
    Task* task = nullptr;             // process its row ...
    std::uint64_t turn = 0;           // (the task's)
    bool given_up = false;            // (nobody wants its batch any more)
    std::uint64_t granted_bytes = 0;  // (of memory for decoding)
    Stream* stream = nullptr;         // ... or ask this one for a batch
  };
  // A batch that has come to its end, to be told to its port without the lock.
  struct Ended {
    BatchOrder order;
    std::shared_ptr<StreamPort> port;
    std::shared_ptr<Run> run;
    bool given_up = false;
    std::unique_ptr<Packing> packing;
  };
  // What a change leaves to be done without the lock: ports to be told, and what is to die.
  struct Aftermath {
    std::vector<Ended> ended;
    std::list<Lane> lanes;
    std::list<Stream> streams;
    std::vector<ByteBuffer> bytes;  // of rows that ended early

    void take(RowBytes& row) {
      for (ByteBuffer& buffer : row.release()) bytes.push_back(std::move(buffer));
    }
    bool empty() const {
      return ended.empty() && lanes.empty() && streams.empty() && bytes.empty();
    }
  };
  // Holds mutex_ for a change of what workers may pick. At its end one of them is woken if there is
  // something to pick: see work_may_wait_.
  class Change;

  void fetched(std::uint64_t token, Status status) override SPDLD_EXCLUDES(mutex_);

  void work(unsigned worker) SPDLD_EXCLUDES(mutex_);
  void enter_pool(unsigned worker) const;  // affinity, niceness, name
  // Until there may be something to pick.
  void sleep() SPDLD_REQUIRES(mutex_);
  std::optional<Work> pick() SPDLD_REQUIRES(mutex_);
  std::optional<Work> pick_from(Lane& lane) SPDLD_REQUIRES(mutex_);
  // The one place that says what may be picked; changes nothing.
  std::optional<Choice> choose(Lane& lane) const SPDLD_REQUIRES(mutex_);
  bool may_have_task(const Lane& lane) const SPDLD_REQUIRES(mutex_);
  bool may_fetch(const Lane& lane) const SPDLD_REQUIRES(mutex_);
  bool may_have_worker(const Lane& lane) const SPDLD_REQUIRES(mutex_);
  // Whether its rows take long, and all other workers have such rows, and a run whose rows are
  // short has work.
  bool must_leave_worker(const Lane& lane) const SPDLD_REQUIRES(mutex_);
  static bool takes_long(const Lane& lane) { return lane.longest_row >= kLongRow; }
  // It has rows to be made, or had some of late: its consumers may have slots free again shortly.
  static bool is_awake(const Lane& lane);
  void wake_worker() SPDLD_REQUIRES(mutex_);
  void open_batch(const Work& work) SPDLD_EXCLUDES(mutex_);
  void process(const Work& work, unsigned worker) SPDLD_EXCLUDES(mutex_);
  // Memory for decoding (executor_memory.cpp).
  std::uint64_t wanted_bytes(const Task& task) const SPDLD_REQUIRES(mutex_);
  // What the row is granted; 0: it must wait.
  std::uint64_t take_memory(const Task& task) SPDLD_REQUIRES(mutex_);
  void park(Task& task, std::chrono::nanoseconds pause) SPDLD_REQUIRES(mutex_);
  // Of the lane's row that was parked first: whether it can be picked; that it goes to the line's
  // front, if that is free and there is no room for it; that it is picked.
  bool may_unpark(const Lane& lane) const SPDLD_REQUIRES(mutex_);
  void stand_in_line(const Lane& lane) SPDLD_REQUIRES(mutex_);
  Work unpark(Lane& lane) SPDLD_REQUIRES(mutex_);
  // Ends the parked rows of batches that are given up.
  void drop_parked(Lane& lane, Aftermath& after) SPDLD_REQUIRES(mutex_);
  // Of the rows that lanes have parked first: when the first pause ends, and that those that are
  // over have ended.
  std::optional<std::chrono::steady_clock::time_point> pause_end() const SPDLD_REQUIRES(mutex_);
  void end_pauses() SPDLD_REQUIRES(mutex_);
  std::string why_parked(std::uint64_t needs_bytes) const;
  // `worker` turns to this run: what it has kept for another one is freed.
  void enter_run(unsigned worker, const std::shared_ptr<Run>& run);

  RowState make_row(Task& task, Run& run, unsigned worker, std::uint64_t& granted_bytes,
                    StreamFailure& failure) SPDLD_EXCLUDES(mutex_);
  void end_row(Task& task, bool failed, Aftermath& after) SPDLD_REQUIRES(mutex_);
  void end_if_done(Lane& lane, Stream& stream, BatchIterator batch, Aftermath& after)
      SPDLD_REQUIRES(mutex_);
  void give_up(Lane& lane, Stream& stream, std::uint64_t epoch, std::uint64_t step,
               Aftermath& after) SPDLD_REQUIRES(mutex_);
  static Task& take_free_task(Lane& lane);
  static Work begin(Lane& lane, Task& task);
  void remove_closed(Aftermath& after) SPDLD_REQUIRES(mutex_);
  Stream* find(StreamId id, Lane** lane) SPDLD_REQUIRES(mutex_);
  static void tell(Aftermath& after);

  const ExecutorOptions options_;
  Mutex mutex_;
  // Where workers sleep. The rule: while there is something to pick, none sleeps, or a worker that
  // is awake is about to look. A worker sleeps only after it looked and found nothing. Whatever may
  // give workers something (a stream that is opened or woken, bytes that come, a bound that is
  // raised, memory that comes back, a row or a batch that ends) is made under a Change, which wakes
  // one worker if anything can be picked. A worker that takes something does so under a Change,
  // too: if it leaves more, the next one is woken before it begins with its row, which may last. So
  // an event that admits many wakes many, one by the other. While a row's pause is pending, one of
  // those that sleep has a timeout.
  CondVar work_may_wait_;
  unsigned asleep_ SPDLD_GUARDED_BY(mutex_) = 0;  // workers
  unsigned timed_ SPDLD_GUARDED_BY(mutex_) = 0;   // those of them with a timeout
  CondVar fetches_ended_;                         // the destructor waits here
  std::list<Lane> lanes_ SPDLD_GUARDED_BY(mutex_);
  int fetching_ SPDLD_GUARDED_BY(mutex_) = 0;            // the sum of the lanes'
  std::vector<Lane*> by_need_ SPDLD_GUARDED_BY(mutex_);  // pick()'s scratch
  double virtual_time_s_ SPDLD_GUARDED_BY(mutex_) = 0;   // of the lane picked last
  DecodeMemory memory_ SPDLD_GUARDED_BY(mutex_);
  Task* first_in_line_ SPDLD_GUARDED_BY(mutex_) = nullptr;  // for memory
  std::vector<std::weak_ptr<Run>> last_runs_;               // [worker], which alone touches it
  StreamId next_stream_ SPDLD_GUARDED_BY(mutex_) = 1;
  bool stopping_ SPDLD_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> workers_;
};

}  // namespace spdld::engine
