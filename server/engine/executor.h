// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu_priority.h"
#include "base/mutex.h"
#include "engine/lane.h"
#include "engine/run.h"
#include "engine/stream_port.h"
#include "engine/work_queue.h"
#include "engine/worker_time.h"
#include "source/item/source.h"

namespace spdld::engine {

struct ExecutorOptions {
  unsigned threads = 1;
  unsigned most_threads = 0;   // for set_threads(); fewer than `threads`: as many as these
  std::vector<int> cpus = {};  // empty: wherever the process may run
  int nice = 0;                // of the workers
  std::uint64_t decode_memory_bytes = std::uint64_t{1} << 30;  // the ceiling of DecodeMemory
  // What one row may take of it (RunPool).
  std::uint64_t row_memory_bytes = std::numeric_limits<std::uint64_t>::max();
  // Once sources have so many rows, of all runs together, a run may only add to the few that it is
  // always allowed: what the I/O pool holds is for all runs.
  int many_fetches = 32768;
  int few_fetches = 16;
  // Workers that may have rows while no reader lacks a batch that they could make.
  unsigned ahead = std::numeric_limits<unsigned>::max();
  // Before a row is tried again for which there was no memory.
  std::chrono::nanoseconds memory_pause = std::chrono::seconds(1);
};

// The cores that this process may use: the smaller of its affinity and its cgroup's quota, at
// least 1.
unsigned available_cpus();
// ExecutorOptions::ahead, for this niceness: one of `cpus` is left to the training, unless workers
// have cores of their own, or give way to nobody, or there is one core alone.
unsigned workers_ahead(int nice, bool own_cpus, unsigned cpus);

// The one CPU pool of the daemon. A worker makes one row after the other, from bytes to its place
// in the slot: those that it has claimed of a batch (WorkQueue says which). A row that must wait,
// for its bytes or for memory, leaves its claim, and any worker goes on with it later. What a batch
// that is given up needs is dropped while it is made, as far as the ops look
// (SampleInput::is_dropped).
//
// Owned by the daemon; outlives every stream. All methods are thread-safe. What a stream or a run
// leaves behind (its port, its source with the listing) dies under no lock. A source or a caller
// that still has rows when the executor is destroyed must be stopped before (IoPool): it is waited
// for.
class Executor final : private source::FetchSink, private CallSink {
 public:
  explicit Executor(ExecutorOptions options);
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  unsigned threads() const { return threads_.load(std::memory_order_relaxed); }
  unsigned most_threads() const { return options_.most_threads; }
  // So many workers from now on: at least 1, at most most_threads(). Waits for none: a worker
  // beyond that ends when it is done with its claim. kResourceExhausted: the machine gives no
  // further thread, and there are as many as could be had.
  Status set_threads(unsigned threads) SPDLD_EXCLUDES(starting_, mutex_);
  // For runs that it is given.
  RunPool pool() const { return {options_.most_threads, options_.row_memory_bytes}; }

  // A reader of the port lacks a batch for as long as this lives. While such a port has anything
  // for workers, all of them may have rows; else ExecutorOptions::ahead of them.
  class Starving {
   public:
    Starving(Executor& executor, std::shared_ptr<const StreamPort> port) : port_(std::move(port)) {
      executor.begin_starving(*port_);
    }
    ~Starving() { port_->starving_.fetch_sub(1, std::memory_order_relaxed); }
    Starving(const Starving&) = delete;
    Starving& operator=(const Starving&) = delete;

    const StreamPort& port() const { return *port_; }

   private:
    const std::shared_ptr<const StreamPort> port_;
  };

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
    std::chrono::nanoseconds held{0};
    std::string reads;  // the item that its source has, "7 (a/b.jpg)"; empty: it has none
  };
  Headway headway(StreamId stream) SPDLD_EXCLUDES(mutex_);

  // For what the stream's first batches have waited since it was opened.
  HeadTime head_time(StreamId stream) SPDLD_EXCLUDES(mutex_);

  // No further batch. Those under way are abandoned.
  void close_stream(StreamId stream) SPDLD_EXCLUDES(mutex_);

  // The workers' time since the executor was made.
  WorkerTime worker_time() SPDLD_EXCLUDES(mutex_);
  // Of that: so long they were ready to run and waited for a core; none: not known.
  std::optional<std::chrono::nanoseconds> waited_for_cores() SPDLD_EXCLUDES(mutex_);

  // What the kernel goes by where others want the workers' cores; none: it does not tell.
  std::optional<CpuPriority> priority() SPDLD_EXCLUDES(mutex_);

  // The most that decodes have held of their memory at once.
  std::uint64_t most_decode_memory() SPDLD_EXCLUDES(mutex_);

  // Ends the workers; every batch under way is abandoned. Idempotent.
  void stop() SPDLD_EXCLUDES(mutex_);

 private:
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

    bool empty() const {
      return ended.empty() && lanes.empty() && streams.empty() && bytes.empty();
    }
  };
  // Holds mutex_ for a change of what workers may pick. At its end one of them is woken if there is
  // something to pick: see work_may_wait_.
  class Change;

  void fetched(std::uint64_t token, Status status) override SPDLD_EXCLUDES(mutex_);
  void called(std::uint64_t token, Status status) override SPDLD_EXCLUDES(mutex_);
  void all_called(std::span<Back> rows) override SPDLD_EXCLUDES(mutex_);
  // The row is no longer with its source or its caller: it goes on, or ends where the pool stops.
  void came_back(Task& task, Aftermath& after) SPDLD_REQUIRES(mutex_);
  void begin_starving(const StreamPort& port) SPDLD_EXCLUDES(mutex_);

  // Unless it runs. False: there is no thread for it.
  bool start_worker(unsigned worker) SPDLD_REQUIRES(starting_) SPDLD_EXCLUDES(mutex_);
  void work(unsigned worker) SPDLD_EXCLUDES(mutex_);
  void enter_pool(unsigned worker) const;  // affinity, niceness, name
  // Until there may be something to pick.
  void sleep(unsigned worker) SPDLD_REQUIRES(mutex_);
  void wake_worker() SPDLD_REQUIRES(mutex_);
  // `cpu_time`: of the thread, when it had ended its last claim, here and below; looking for this
  // one counts, too.
  void open_batch(const Claim& claim, unsigned worker, std::chrono::nanoseconds& cpu_time)
      SPDLD_EXCLUDES(mutex_);
  void process(Claim& claim, unsigned worker, std::chrono::nanoseconds& cpu_time)
      SPDLD_EXCLUDES(mutex_);
  // `worker` turns to this run: what it has kept for another one is freed.
  void enter_run(unsigned worker, const std::shared_ptr<Run>& run);
  // Lets the run have the row for as long as it has the memory that it needs.
  RowState make_row(Task& task, Run& run, unsigned worker, std::uint64_t& granted_bytes,
                    StreamFailure& failure) SPDLD_EXCLUDES(mutex_);
  // The row is not made, or not yet. `answers`: that its source had given before. False: no further
  // row of the claim is to be begun.
  bool leave(Claim& claim, Task& task, RowState state, std::uint64_t answers,
             std::uint64_t granted_bytes, Aftermath& after) SPDLD_EXCLUDES(mutex_);
  // A row that failed, or that nobody wants any more, and with it its batch.
  void end_row(Task& task, Aftermath& after) SPDLD_REQUIRES(mutex_);
  static void take_bytes(Task& task, Aftermath& after);
  void drop_parked(Lane& lane, Aftermath& after) SPDLD_REQUIRES(mutex_);
  void end_if_done(Lane& lane, Stream& stream, BatchIterator batch, Aftermath& after)
      SPDLD_REQUIRES(mutex_);
  void give_up(Lane& lane, Stream& stream, std::uint64_t epoch, std::uint64_t step,
               Aftermath& after) SPDLD_REQUIRES(mutex_);
  std::string why_parked(std::uint64_t needs_bytes) const;
  static void tell(Aftermath& after);

  const ExecutorOptions options_;
  std::atomic<unsigned> threads_;  // changed under both locks; atomic to be told without any
  Mutex starting_;                 // taken before mutex_
  Mutex mutex_;
  // Where workers sleep. The rule: while there is something to pick, none sleeps, or a worker that
  // is awake is about to look. A worker sleeps only after it looked and found nothing. Whatever may
  // give workers something (a stream that is opened or woken, bytes that come, a bound that is
  // raised, somebody who lacks a batch, memory that comes back, a row or a batch that ends) is made
  // under a Change, which wakes one worker if anything can be picked. A worker that takes something
  // does so under a Change, too: if it leaves more, the next one is woken before it begins with its
  // rows, which may last. So an event that admits many wakes many, one by the other. A worker that
  // ends does so under a Change, as it may have been woken for something; set_threads() wakes all,
  // so that they look. While a row's pause is pending, one of those that sleep has a timeout.
  CondVar work_may_wait_;
  unsigned timed_ SPDLD_GUARDED_BY(mutex_) = 0;  // workers that sleep with a timeout
  CondVar rows_came_back_;                       // the destructor waits here
  WorkQueue queue_ SPDLD_GUARDED_BY(mutex_);
  WorkerClocks clocks_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Run>> last_runs_;  // [worker], which alone touches it
  bool stopping_ SPDLD_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> workers_ SPDLD_GUARDED_BY(starting_);  // [worker]
  std::vector<bool> ended_ SPDLD_GUARDED_BY(mutex_);  // [worker]: it runs no more, or never has
};

}  // namespace spdld::engine
