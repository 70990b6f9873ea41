// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "engine/lane.h"
#include "engine/memory_line.h"
#include "engine/worker_time.h"

namespace spdld::engine {

// Decides the next work of the executor's workers. The run that has had the least CPU time for its
// weight comes first. Of its work, rows whose bytes have just come are first, then rows of the
// lowest step, then a new batch for the stream that is least ahead. So no row is begun that has no
// slot to go to, and a row that is begun gets done.
//
// A worker claims as many rows of one batch as are worth about 200 us by what the run's rows have
// taken: one image, or hundreds of small records. All that a worker must do under the lock it does
// once for a claim.
//
// Rows that take long never have all workers while another run has work: the last worker without
// such a row is left to runs whose rows are short (docs/sessions.md#limits).
//
// While no reader lacks a batch that workers could make, all that is made is made ahead of need: no
// more than Bounds::ahead workers have rows then. Batches may be opened beside them.
//
// Owned by the executor, under its lock; changed by nobody else.
class WorkQueue {
 public:
  struct Bounds {
    unsigned workers = 1;
    std::uint64_t decode_memory_bytes = 0;
    // Once sources have so many rows, of all runs together, a run may only add to the few.
    int many_fetches = 0;
    int few_fetches = 0;
    // Workers that may have rows while no reader lacks a batch that workers could make.
    unsigned ahead = std::numeric_limits<unsigned>::max();
  };
  explicit WorkQueue(Bounds bounds) : bounds_(bounds), memory_(bounds.decode_memory_bytes) {}

  void set_workers(unsigned workers) { bounds_.workers = workers; }

  // The stream's lane comes with its first stream; erase_idle() takes it away.
  Stream& add(std::shared_ptr<Run> run, std::shared_ptr<StreamPort> port);
  Stream* find(StreamId id, Lane** lane);
  // Streams that are closed, and lanes without a stream, go to where they can die under no lock.
  void erase_idle(std::list<Stream>& streams, std::list<Lane>& lanes);
  std::list<Lane>& lanes() { return lanes_; }
  MemoryLine& memory() { return memory_; }

  // False: there is nothing to do. Else the worker has the claim until end().
  bool pick(Claim& claim);
  // Whether pick() would find something; changes nothing.
  bool has_work();
  // Where has_work() is false: why.
  Idle why_idle() const;
  // When a row's pause ends, which gives workers something.
  std::optional<std::chrono::steady_clock::time_point> pause_end() const {
    return MemoryLine::pause_end(lanes_);
  }

  // How a claim has ended.
  struct Outcome {
    std::size_t rows = 0;  // the claim's first rows, which the worker took up; the others go back
    std::size_t done = 0;  // how many of these did not have to wait for their bytes
    double cpu_s = 0;
    std::chrono::nanoseconds took{0};  // by the run's clock, as the next one
    std::chrono::nanoseconds now{0};
  };
  void end(Claim& claim, const Outcome& outcome);
  // A row that has left its claim, or that its source has brought, can be picked once more.
  static void make_ready(Task& task);
  // The task of a row that has ended can hold another row.
  static void free(Task& task) { task.lane->free_tasks.push_back(&task); }

  // A source has the row, of this batch; the answer may have come before, and with it another row.
  void begin_fetch(Task& task, OpenBatch& batch, std::uint64_t answers);
  void end_fetch(Task& task);
  // Likewise, of a row at a call.
  static void begin_call(Task& task, OpenBatch& batch, std::uint64_t answers);
  static void end_call(Task& task);
  bool may_fetch(const Lane& lane) const;
  // Whether its callers take further rows.
  static bool may_call(const Lane& lane) {
    return lane.calling == 0 || lane.calling < lane.run->most_called();
  }
  // The stream's rows have come to wait for something else: its time up to now is added up.
  void note_head(const Lane& lane, Stream& stream) const;
  void note_heads(Lane& lane) const;  // of all its streams

 private:
  // The next work in a lane. No `stream`: the row that was parked first, or the rows that became
  // ready first.
  struct Choice {
    bool parked = false;
    Stream* stream = nullptr;
    std::optional<BatchIterator> batch = std::nullopt;  // to begin rows of; none: to be opened
  };

  bool pick_from(Lane& lane, Claim& claim);
  // The one place that says what may be picked; changes nothing.
  std::optional<Choice> choose(Lane& lane) const;
  Idle why_idle(const Lane& lane) const;
  std::optional<HeadWait> head_wait(const Lane& lane, const Stream& stream) const;
  bool may_have_task(const Lane& lane) const;
  bool may_have_worker(const Lane& lane) const;
  // Whether a stream of which a reader lacks a batch has anything for workers.
  bool is_work_wanted() const;
  // Workers that may have rows, as things are.
  unsigned may_work() const;
  unsigned long_workers() const;  // that have rows which take long
  // Whether as many workers have rows as may.
  bool must_yield(const Lane& lane) const;
  // Whether its rows take long, and all other workers have such rows, and a run whose rows are
  // short has work.
  bool must_leave_worker(const Lane& lane) const;

  Bounds bounds_;
  std::list<Lane> lanes_;
  MemoryLine memory_;
  int fetching_ = 0;            // the sum of the lanes'
  unsigned working_ = 0;        // workers that have a claim
  std::vector<Lane*> by_need_;  // pick()'s scratch
  double virtual_time_s_ = 0;   // of the lane picked last
  StreamId next_stream_ = 1;
};

}  // namespace spdld::engine
