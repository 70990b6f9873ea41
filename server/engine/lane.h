// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "engine/head_time.h"
#include "engine/row.h"
#include "engine/run.h"
#include "engine/stream_port.h"

// The executor's records of what is under way. Plain values; the executor's lock guards them all,
// but for the rows of a claim, which its worker has to itself.
namespace spdld::engine {

using StreamId = std::uint64_t;

// A row that takes longer is noticed by the consumers of others that wait for it.
inline constexpr std::chrono::nanoseconds kLongRow = std::chrono::milliseconds(100);

struct Lane;

// Neighbours in a batch.
struct RowRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

// A batch in the making. Its rows hold pointers to it, so it does not move.
struct OpenBatch {
  BatchOrder order;
  std::shared_ptr<StreamPort> port;
  std::uint64_t next_row = 0;      // rows before it have been claimed ...
  std::vector<RowRange> returned;  // ... and of these some came back, not begun
  // Rows claimed and not done. A claim counts as one of them until it has ended, so that the batch
  // outlives it.
  std::uint64_t unfinished = 0;
  // Its rows are dropped. Set under the lock; workers look at it while they make a row.
  std::atomic<bool> given_up = false;
  std::unique_ptr<Packing> packing;  // of plans that pack
  // Of its rows, outside of claims. Less than 0 while a source's answer overtakes begin_fetch().
  int fetching = 0;
  int calling = 0;  // likewise, of a caller's
  int ready = 0;
  int parked = 0;

  // Whether there are rows that no claim has had, or that one has given back.
  bool has_rows() const { return next_row < order.rows.rows || !returned.empty(); }
  // Claims up to `most` neighbours of those rows that has_rows() speaks of.
  RowRange claim(std::uint64_t most) {
    RowRange claimed;
    if (returned.empty()) {
      claimed = {next_row, std::min(most, order.rows.rows - next_row)};
      next_row += claimed.count;
    } else {
      RowRange& left = returned.back();
      claimed = {left.first, std::min(most, left.count)};
      left = {left.first + claimed.count, left.count - claimed.count};
      if (left.count == 0) returned.pop_back();
    }
    unfinished += claimed.count;
    return claimed;
  }
  void give_back(RowRange rows) {
    unfinished -= rows.count;
    if (!given_up && rows.count > 0) returned.push_back(rows);
  }
  // No further row of it is made.
  void give_up() {
    given_up = true;
    next_row = order.rows.rows;
    returned.clear();
  }
};
using BatchIterator = std::list<OpenBatch>::iterator;

// Adds up what a stream's first batch waits for.
struct HeadClock {
  std::optional<HeadWait> now = std::nullopt;  // none: no batch is being made
  HeadTime time;

  void pass(std::optional<HeadWait> next) {
    const auto at = std::chrono::steady_clock::now();
    if (now) time.waited[static_cast<std::size_t>(*now)] += at - time.at;
    time.at = at;
    now = next;
  }
};

struct Stream {
  StreamId id = 0;
  std::shared_ptr<StreamPort> port;
  std::list<OpenBatch> batches;  // by (epoch, step)
  bool may_open = true;
  bool opening = false;  // a worker is inside port->open()
  bool closed = false;
  std::uint64_t moves = 0;       // rows that came from their source, and rows that were made
  std::uint64_t last_epoch = 0;  // of the batch opened last
  std::uint64_t last_step = 0;
  HeadClock head;
};

struct Task : Row {
  // Of a row outside of claims.
  enum class Holder { kNobody, kSource, kMemoryLine, kCaller };

  Lane* lane = nullptr;
  Stream* stream = nullptr;
  BatchIterator batch;
  Holder holder = Holder::kNobody;
  std::uint64_t answers = 0;  // that its source and its callers have given
  std::chrono::steady_clock::time_point held_since;
  std::optional<std::chrono::steady_clock::time_point> paused_until;  // while it is parked
};

// The next work of a worker: rows of one batch, or a batch to be opened.
struct Claim {
  Lane* lane = nullptr;
  Stream* stream = nullptr;
  std::optional<BatchIterator> batch;  // none: the stream is asked for one
  RowRange rows;                       // rows that are begun; none: `tasks` were begun before
  std::vector<Task*> tasks;            // one for each row; null: the row has left the claim
  std::vector<Row*> begun;             // the same, where they were not begun before
  std::uint64_t granted_bytes = 0;     // of memory for decoding, for the only row
  std::chrono::steady_clock::time_point since;
};

// A run with its streams.
struct Lane {
  std::shared_ptr<Run> run;
  std::list<Stream> streams;
  std::deque<Task*> ready;   // fetched, to be processed
  std::deque<Task*> parked;  // fetched, waiting for memory
  std::vector<std::unique_ptr<Task>> tasks;
  std::vector<Task*> free_tasks;
  std::vector<const Claim*> claims;  // each of a worker
  // Rows that the source has. Less than 0 while its answer to fetch() overtakes begin_fetch().
  int fetching = 0;
  int calling = 0;                    // rows that callers have; likewise
  int begun = 0;                      // rows that the source has, or that are ready or parked
  std::int64_t claimed_since_ns = 0;  // the sum of Claim::since
  // The longest time that a claim took of late; each row that is done takes a part of it away.
  // Until the first one is done, the lane's rows count as long.
  std::chrono::nanoseconds longest_row = kLongRow;
  std::chrono::nanoseconds mean_row{0};                 // what a row took of late; 0: not known
  std::optional<std::chrono::nanoseconds> last_row_at;  // by the run's clock
  double cpu_per_weight_s = 0;                          // of rows that workers are done with
  double need_s = 0;  // WorkQueue::pick()'s: the same, with what claims have taken until now

  int workers() const { return static_cast<int>(claims.size()); }
  bool is_idle() const { return claims.empty() && free_tasks.size() == tasks.size(); }
};

}  // namespace spdld::engine
