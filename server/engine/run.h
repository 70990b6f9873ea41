// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/cache/sample_cache.h"
#include "engine/op_times.h"
#include "engine/plan/packing.h"
#include "engine/plan/plan.h"
#include "engine/row.h"
#include "engine/row_fetch.h"
#include "engine/row_sample.h"
#include "engine/stage_stats.h"
#include "engine/stream_port.h"
#include "op/jpeg_images.h"
#include "source/file/retry_pauses.h"
#include "source/item/source.h"
#include "source/order/sampler.h"

namespace spdld::engine {

// How much of the pool a run may have. May be changed while it runs.
struct RunLimits {
  double weight = 1.0;  // share of the CPU pool when runs compete
  int workers = 0;      // that may work for it at once; 0: all
  int fetching = 0;     // rows at once; 0, here and below: as the plan says
  int processing = 0;
};

// What is the same for all runs of one executor.
struct RunPool {
  unsigned workers = 1;
  // A row that takes more memory while it is made is an error of its item.
  std::uint64_t row_memory_bytes = std::numeric_limits<std::uint64_t>::max();
};

// A plan executing on one source in one order, for one job: makes rows. Which row when is the
// executor's matter. Immutable but for limits, counters and what each worker owns; worker `w` may
// call process() while others do the same with their own numbers.
class Run {
 public:
  // `pool`: of the executor that is to have it. `cache`: that which SampleCaches opened for this
  // plan and source; null: nothing is kept. `callers`: one for each of the plan's calls.
  Run(std::shared_ptr<const Plan> plan, std::shared_ptr<source::Source> source,
      source::Sampler sampler, std::uint64_t seed, RunPool pool, RunLimits limits,
      const Clock& clock, std::shared_ptr<SampleCache> cache = nullptr, RowCallers callers = {});

  double weight() const { return weight_.load(std::memory_order_relaxed); }
  // Rows that may be fetched at once.
  int fetch_concurrency() const;
  // Rows that may be processed at once; 0: as many as there are workers.
  int process_concurrency() const;
  // What is said of both without RunLimits.
  int plan_fetching() const { return fetch_concurrency_.load(std::memory_order_relaxed); }
  int plan_processing() const { return stage_concurrency_.load(std::memory_order_relaxed); }
  // Whether that is because the job may have no more workers.
  bool is_bound_by_job() const;

  // Of rows that were begun just now: brings the bytes of those whose items are at hand, which
  // process() then finds there.
  void bring_at_hand(std::span<Row* const> rows);

  // Told of rows that are not to be touched until then.
  struct Sinks {
    source::FetchSink& fetch;  // once the bytes are there
    CallSink& call;            // once a call has come back
  };
  // Takes the row as far as it gets without blocking. kPending, kCalled: one of the sinks is told
  // `token`; until process() is called again nobody touches the row. kFailed: `failure` says why. A
  // row for which memory was lacking while it was alone has failed. `granted_bytes` of the memory
  // for decoding are the row's during the call.
  RowState process(Row& row, unsigned worker, std::uint64_t granted_bytes, Sinks sinks,
                   std::uint64_t token, StreamFailure& failure);

  // The rows that may be at calls before no further one is begun.
  int most_called() const { return most_called_; }
  // The call of `row` has come back: process() may be called again.
  void called(Row& row, Status status);
  // Some rows have been dropped that may be at calls.
  void look_for_dropped() const {
    for (const auto& caller : callers_) caller->look_for_dropped();
  }
  // Why a call has rows wait, and what to start; empty: none does.
  std::string waits_for_runners() const;
  // RowCaller::wanted() of the calls that no process serves.
  std::vector<std::string> wanted_runners() const;

  // The pending fetch of `row` has ended: process() may be called again.
  void fetched(Row& row, Status status) { fetch_.ended(row.bytes, std::move(status)); }

  // Packs what waits of a batch's rows into its slot.
  Status pack(const BatchOrder& order, const Packing& packing) const;

  const Plan& plan() const { return *plan_; }
  const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
  const source::Source& source() const { return *source_; }
  const source::Sampler& sampler() const { return sampler_; }
  const StageStats& fetch_stats() const { return fetch_.stats(); }
  const StageStats& process_stats() const { return process_stats_; }
  const StageStats& call_stats(std::size_t call) const { return call_stats_[call]; }
  std::vector<OpTime> op_times() const { return op_times_.times(); }
  // CPU time of the pool's workers that went into the run's rows and batches, and the reading of
  // what is cached of them; not that of threads that wait for storage.
  std::chrono::nanoseconds cpu_time() const {
    return std::chrono::nanoseconds(cpu_ns_.load(std::memory_order_relaxed));
  }
  void count_cpu_time(std::chrono::nanoseconds spent) {
    cpu_ns_.fetch_add(spent.count(), std::memory_order_relaxed);
  }
  JpegImages jpeg_images() const { return jpeg_counter_.images(); }
  // The row that took longest to make, of the last 10 to 20 s in which rows were made.
  struct SlowRow {
    std::uint64_t item = 0;
    std::chrono::nanoseconds took{0};  // 0: none was made yet
  };
  SlowRow slowest() const SPDLD_EXCLUDES(slowest_mutex_);
  const SampleCache* cache() const { return cache_.get(); }
  const Clock& clock() const { return clock_; }

  // Frees what `worker` keeps between rows, if it is more than a little.
  void shrink(unsigned worker);
  // Items that filters have judged.
  struct Judged {
    std::uint64_t items = 0;
    std::uint64_t rejected = 0;
  };
  Judged judged() const {
    return {judged_.load(std::memory_order_relaxed), rejected_.load(std::memory_order_relaxed)};
  }
  // Rows of this run that the cache spared something.
  std::uint64_t cache_hits() const { return fetch_.hits(); }

 private:
  friend class Executor;

  // The executor's alone, who has workers to wake when a bound rises. Each number stands alone, so
  // relaxed will do.
  void set_limits(RunLimits limits);
  void tune(int fetch_concurrency, int process_concurrency);

  int stage_concurrency() const;

  // What one worker runs the plan's tasks with.
  struct Worker {
    std::vector<std::unique_ptr<FieldWorker>> tasks;  // made when first needed
    std::vector<RowOutput> outputs;                   // of one task
    std::vector<Value> values;                        // that the tasks of one row made
    std::uint64_t rows = 0;                           // that were made or rejected
  };
  // How far one call gets with a row.
  enum class Made {
    kDone,
    kNeedsMemory,  // row.needs_bytes must be granted first
    kRejected,     // by row.rejected_by: another item takes its place
  };
  // A row while its tasks are run.
  struct Making {
    Row& row;
    Worker& worker;
    RowSample& sample;
    const std::uint64_t room;
    const bool is_timed;
    std::size_t next = 0;    // task
    std::uint64_t lent = 0;  // what lies in the memory of tasks that were run
  };

  // Sets the item that the order says. False: there is no memory for the order.
  bool choose(Row& row, source::Sampler::Epoch& order) const;
  // Unless it is set already.
  bool choose(Row& row) const;
  // FetchedItem::epoch_key of the row.
  std::uint64_t draw_key(const Row& row) const;
  Result<Made> make(Row& row, unsigned worker, std::uint64_t granted_bytes);
  // Whether the row has nothing for a task.
  bool is_absent(const RowSample& sample, std::size_t task) const;
  bool is_absent(const RowSample& sample, const ImageTask& image) const;
  Result<Made> make_tensors(Row& row, unsigned worker, std::uint64_t granted_bytes);
  // Runs the tasks that need no call beyond those that have come back.
  Result<Made> make_behind_calls(Row& row, unsigned worker, std::uint64_t granted_bytes);
  Making making(Row& row, Worker& worker, RowSample& sample, std::uint64_t granted_bytes) const;
  // The key of the row's draws.
  std::uint64_t sample_key(const Row& row) const;
  // From making.next up to that one. False: row.needs_bytes must be granted first.
  Result<bool> run_tasks(Making& making, std::size_t end);
  // Of the filters that do not hold, one that has another item take the row's place, if any has.
  const Rejection* rejecting(const RowSample& sample) const;
  Result<std::uint64_t> run_timed(std::size_t task, FieldWorker& worker, RowSample& sample,
                                  std::span<RowOutput> out, std::uint64_t room_bytes);
  // The row is made: its tensors are its share of the batch from now on.
  void finish(Row& row);
  // A row that a call has given back, in one call of process().
  struct Return {
    unsigned worker = 0;
    std::uint64_t granted_bytes = 0;
    CallSink& sink;
    std::uint64_t token = 0;
    StreamFailure& failure;
  };
  // Gives the row to the next function.
  RowState begin_call(Row& row, CallSink& sink, std::uint64_t token);
  void deliver_into_slot(const Row& row, std::size_t first_array, CallRow& call) const;
  // Looks at what came back, and goes on with it.
  RowState end_call(Row& row, const Return& from);
  // Makes what is made of that, and gives it to the next function or puts it into the batch.
  RowState go_on(Row& row, const Return& from);
  RowState lacks_memory(Row& row, const Status& why, StreamFailure& failure) const;
  // Puts what came back into the batch.
  Status put_arrays(const Row& row) const;
  // Another item takes the row's place where that may be; else `failure` says why it fails.
  RowState give_up(Row& row, const Status& why, bool is_of_item, StreamFailure& failure);
  void note_if_slow(const SlowRow& row, std::chrono::nanoseconds now)
      SPDLD_EXCLUDES(slowest_mutex_);
  void note_slowest(const SlowRow& row, std::chrono::nanoseconds now)
      SPDLD_EXCLUDES(slowest_mutex_);
  Status over_row_memory(std::uint64_t needs_bytes, std::size_t task) const;
  std::unique_ptr<FieldWorker> make_worker(const FieldTask& task);
  Status put_part(Row& row, const RowSample& sample, std::size_t tensor) const;
  Status put_value(Row& row, const RowSample& sample, std::size_t tensor) const;
  RowOutput output(const Row& row, std::size_t tensor) const;
  void drop_workers(unsigned worker);
  // Chooses the substitute, or says why there is none; of a row that failed, and of one that a
  // filter rejected.
  Status replace(Row& row, const Status& why) const;
  Status replace_rejected(Row& row) const;
  void substitute(Row& row, std::uint64_t item) const;
  SampleFailure failure_of(const Row& row, const Status& why) const;
  StreamFailure ended_by(const Row& row, const Status& why) const;
  Status final_error(const Row& row, const Status& why) const;
  Status out_of_memory(const Row& row, const Status& why) const;

  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<source::Source> source_;
  const source::Sampler sampler_;
  const std::uint64_t seed_;
  const std::uint64_t row_memory_bytes_;
  const std::shared_ptr<SampleCache> cache_;
  const RowCallers callers_;
  const int most_called_;
  std::atomic<double> weight_;
  std::atomic<int> max_workers_;
  // RunLimits::fetching and processing.
  std::atomic<int> job_fetching_;
  std::atomic<int> job_processing_;
  std::atomic<int> fetch_concurrency_;
  std::atomic<int> stage_concurrency_;  // of process; 0: as many as there are workers
  const Clock& clock_;
  const source::RetryPauses call_pauses_;
  RowFetch fetch_;
  StageStats process_stats_;
  const std::unique_ptr<StageStats[]> call_stats_;  // [call]
  OpTimes op_times_;
  std::atomic<std::int64_t> cpu_ns_{0};  // relaxed: a count
  JpegCounter jpeg_counter_;
  // Judged's; relaxed: counts.
  std::atomic<std::uint64_t> judged_{0};
  std::atomic<std::uint64_t> rejected_{0};
  // slowest_'s time, and when another one is looked for: few rows need the mutex, under which both
  // are written.
  std::atomic<std::int64_t> slowest_ns_{0};
  std::atomic<std::int64_t> slowest_until_ns_{0};
  mutable Mutex slowest_mutex_;
  SlowRow slowest_ SPDLD_GUARDED_BY(slowest_mutex_);
  SlowRow slowest_before_ SPDLD_GUARDED_BY(slowest_mutex_);  // of the span before
  std::vector<Worker> workers_;                              // [worker]
};

}  // namespace spdld::engine
