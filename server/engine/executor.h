// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/run.h"
#include "engine/stream_port.h"
#include "source/source.h"

namespace spdld::engine {

using StreamId = std::uint64_t;

struct ExecutorOptions {
  unsigned threads = 1;
  std::vector<int> cpus = {};  // empty: wherever the process may run
  int nice = 0;
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
// Owned by the daemon; outlives every stream. All methods are thread-safe. A source that still has
// rows when the executor is destroyed must be stopped before (IoPool): it is waited for.
class Executor final : private source::FetchSink {
 public:
  explicit Executor(ExecutorOptions options);
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  unsigned threads() const { return options_.threads; }

  // From now on `port` is asked for batches of `run`. Both are kept until the stream is closed and
  // its last batch is given back.
  StreamId open_stream(std::shared_ptr<Run> run, std::shared_ptr<StreamPort> port)
      SPDLD_EXCLUDES(mutex_);
  // StreamPort::open may have something again.
  void wake(StreamId stream) SPDLD_EXCLUDES(mutex_);
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

  // Ends the workers; every batch under way is abandoned. Idempotent.
  void stop() SPDLD_EXCLUDES(mutex_);

 private:
  struct Lane;
  struct Stream;

  // A batch in the making. Its rows hold pointers to it, so it does not move.
  struct OpenBatch {
    BatchOrder order;
    std::shared_ptr<StreamPort> port;
    std::uint64_t next_row = 0;    // rows before it have been begun
    std::uint64_t unfinished = 0;  // rows begun, not done
    bool given_up = false;
    std::vector<ByteBuffer> packed;  // encoded bytes, by row
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
  // Whose the row is now. Only a source's row may be looked into under the lock alone.
  enum class Holder { kNobody, kWorker, kSource };
  struct Task : Row {
    Lane* lane = nullptr;
    Stream* stream = nullptr;
    BatchIterator batch;
    Holder holder = Holder::kNobody;
    std::uint64_t turn = 0;  // counts the workers that have had it
    std::chrono::steady_clock::time_point held_since;
  };
  // A run with its streams.
  struct Lane {
    std::shared_ptr<Run> run;
    std::list<Stream> streams;
    std::deque<Task*> ready;  // fetched, to be processed
    std::vector<std::unique_ptr<Task>> tasks;
    std::vector<Task*> free_tasks;
    int fetching = 0;  // rows that a source has; less than 0 while an answer overtakes its question
    int processing = 0;  // rows that a worker has
    double cpu_per_weight_s = 0;
  };
  // What a worker does next.
  struct Work {
    Lane* lane = nullptr;
    Task* task = nullptr;      // process its row ...
    std::uint64_t turn = 0;    // (the task's)
    Stream* stream = nullptr;  // ... or ask this one for a batch
  };
  // A batch that has come to its end, to be told to its port without the lock.
  struct Ended {
    BatchOrder order;
    std::shared_ptr<StreamPort> port;
    std::shared_ptr<Run> run;
    bool given_up = false;
    std::vector<ByteBuffer> packed;
  };

  void fetched(std::uint64_t token, Status status) override SPDLD_EXCLUDES(mutex_);

  void work(unsigned worker) SPDLD_EXCLUDES(mutex_);
  void enter_pool(unsigned worker) const;  // affinity, niceness, name
  std::optional<Work> pick() SPDLD_REQUIRES(mutex_);
  std::optional<Work> pick_from(Lane& lane) SPDLD_REQUIRES(mutex_);
  void open_batch(const Work& work) SPDLD_EXCLUDES(mutex_);
  void process(const Work& work, unsigned worker) SPDLD_EXCLUDES(mutex_);
  void end_row(Task& task, bool failed, std::vector<Ended>& ended) SPDLD_REQUIRES(mutex_);
  void end_if_done(Lane& lane, Stream& stream, BatchIterator batch, std::vector<Ended>& ended)
      SPDLD_REQUIRES(mutex_);
  void give_up(Lane& lane, Stream& stream, std::uint64_t epoch, std::uint64_t step,
               std::vector<Ended>& ended) SPDLD_REQUIRES(mutex_);
  Task* free_task(Lane& lane) SPDLD_REQUIRES(mutex_);
  static Work begin(Lane& lane, Task& task);
  void remove_closed() SPDLD_REQUIRES(mutex_);
  Stream* find(StreamId id, Lane** lane) SPDLD_REQUIRES(mutex_);
  static void tell(std::vector<Ended>& ended);

  const ExecutorOptions options_;
  Mutex mutex_;
  CondVar changed_;
  std::list<Lane> lanes_ SPDLD_GUARDED_BY(mutex_);
  std::vector<Lane*> by_need_ SPDLD_GUARDED_BY(mutex_);  // pick()'s scratch
  double virtual_time_s_ SPDLD_GUARDED_BY(mutex_) = 0;   // of the lane picked last
  StreamId next_stream_ SPDLD_GUARDED_BY(mutex_) = 1;
  bool stopping_ SPDLD_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> workers_;
};

}  // namespace spdld::engine
