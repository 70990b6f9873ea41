// SPDX-License-Identifier: Apache-2.0
// What the executor's workers do: look for a row or a slot to fill, and do that.
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "engine/executor.h"
#include "engine/executor_change.h"

namespace spdld::engine {
namespace {

// CPU time, over its weight, that a run may catch up on after it had nothing to do.
constexpr double kMaxOwedS = 0.02;

// A run that had a row no longer ago may have the next one soon: a training step takes less, and
// what has been prefetched bridges longer ones.
constexpr std::chrono::seconds kAwake{1};
// Of the longest row of late, so much is forgotten with each row.
constexpr int kFading = 16;

// Of a file's bytes, what a row that is done keeps for the next one, and all rows of a run
// together.
constexpr std::size_t kKeptByARow = std::size_t{1} << 20;
constexpr std::size_t kKeptByARun = std::size_t{64} << 20;

std::int64_t ns_of(std::chrono::steady_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

}  // namespace

void Executor::enter_pool(unsigned worker) const {
  pthread_setname_np(pthread_self(), ("spdld-cpu-" + std::to_string(worker)).c_str());
  if (options_.nice != 0 &&
      setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), options_.nice) != 0)
    spdlog::warn("executor.nice {}: {}; the worker runs at the daemon's own priority",
                 options_.nice, errno_status(errno, "setpriority").message());
  if (options_.cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : options_.cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (const int failed = pthread_setaffinity_np(pthread_self(), sizeof set, &set); failed != 0)
    spdlog::warn("executor.cpus: {}; the worker runs wherever the daemon may",
                 errno_status(failed, "pthread_setaffinity_np").message());
}

void Executor::work(unsigned worker) {
  enter_pool(worker);
  while (true) {
    std::optional<Work> next;
    {
      const Change change(*this);
      while (!stopping_ && !(next = pick())) sleep();
      if (stopping_) return;
    }
    if (next->task != nullptr) {
      process(*next, worker);
    } else {
      open_batch(*next);
    }
  }
}

void Executor::sleep() {
  ++asleep_;
  if (const auto until = pause_end()) {
    ++timed_;
    work_may_wait_.wait_for(mutex_, *until - std::chrono::steady_clock::now());
    --timed_;
  } else {
    work_may_wait_.wait(mutex_);
  }
  --asleep_;
}

std::optional<Executor::Work> Executor::pick() {
  end_pauses();
  if (lanes_.size() == 1) return pick_from(lanes_.front());
  by_need_.clear();
  const std::int64_t now = ns_of(std::chrono::steady_clock::now());
  for (Lane& lane : lanes_) {
    // Rows that take long count while they take it.
    const std::int64_t held_ns = lane.processing * now - lane.processing_since_ns;
    lane.need_s = lane.cpu_per_weight_s + static_cast<double>(held_ns) * 1e-9 / lane.run->weight();
    by_need_.push_back(&lane);
  }
  std::sort(by_need_.begin(), by_need_.end(),
            [](const Lane* a, const Lane* b) { return a->need_s < b->need_s; });
  for (Lane* lane : by_need_) {
    auto work = pick_from(*lane);
    if (!work) continue;
    // Who had nothing to do for a while is not owed the pool for as long.
    lane->cpu_per_weight_s = std::max(lane->cpu_per_weight_s, virtual_time_s_ - kMaxOwedS);
    virtual_time_s_ = std::max(virtual_time_s_, lane->cpu_per_weight_s);
    return work;
  }
  return std::nullopt;
}

// Every worker can have a row in its hands while the source has all that it may have.
bool Executor::may_have_task(const Lane& lane) const {
  const std::size_t limit =
      static_cast<std::size_t>(lane.run->fetch_concurrency()) + options_.threads;
  return !lane.free_tasks.empty() || lane.tasks.size() < limit;
}

bool Executor::may_fetch(const Lane& lane) const {
  const int wanted = lane.run->fetch_concurrency();
  const bool many = fetching_ >= options_.many_fetches;
  return lane.fetching < (many ? std::min(wanted, options_.few_fetches) : wanted);
}

Executor::Task& Executor::take_free_task(Lane& lane) {
  if (lane.free_tasks.empty()) {
    lane.tasks.push_back(std::make_unique<Task>());
    lane.tasks.back()->lane = &lane;
    return *lane.tasks.back();
  }
  Task& task = *lane.free_tasks.back();
  lane.free_tasks.pop_back();
  return task;
}

Executor::Work Executor::begin(Lane& lane, Task& task) {
  task.holder = Holder::kWorker;
  task.held_since = std::chrono::steady_clock::now();
  ++lane.processing;
  lane.processing_since_ns += ns_of(task.held_since);
  return {.lane = &lane, .task = &task, .turn = ++task.turn, .given_up = task.batch->given_up};
}

bool Executor::may_have_worker(const Lane& lane) const {
  const int cap = lane.run->process_concurrency();
  return (cap == 0 || lane.processing < cap) && !must_leave_worker(lane);
}

// It has a worker again once one of the long rows is done: that worker looks.
bool Executor::must_leave_worker(const Lane& lane) const {
  if (lanes_.size() == 1 || options_.threads == 1 || !takes_long(lane)) return false;
  unsigned busy = 0;
  bool any_waits = false;
  for (const Lane& other : lanes_) {
    if (takes_long(other))
      busy += static_cast<unsigned>(other.processing);
    else
      any_waits = any_waits || is_awake(other);
  }
  return any_waits && busy + 1 >= options_.threads;
}

bool Executor::is_awake(const Lane& lane) {
  if (lane.processing > 0 || !lane.ready.empty() || !lane.parked.empty()) return true;
  return lane.last_row_at && lane.run->clock().now() - *lane.last_row_at < kAwake;
}

std::optional<Executor::Choice> Executor::choose(Lane& lane) const {
  if (!may_have_worker(lane)) return std::nullopt;
  if (may_unpark(lane)) return Choice{.parked = true};
  if (!lane.ready.empty()) return Choice{};
  if (!may_have_task(lane) || !may_fetch(lane)) return std::nullopt;

  Choice lowest;
  for (Stream& stream : lane.streams) {
    for (auto batch = stream.batches.begin(); batch != stream.batches.end(); ++batch) {
      if (batch->next_row == batch->order.rows.rows) continue;
      if (!lowest.batch || std::tie(batch->order.epoch, batch->order.step) <
                               std::tie((*lowest.batch)->order.epoch, (*lowest.batch)->order.step))
        lowest = {.stream = &stream, .batch = batch};
      break;  // a stream's batches are in order
    }
  }
  if (lowest.batch) return lowest;

  for (Stream& stream : lane.streams) {
    if (!stream.may_open || stream.opening || stream.closed) continue;
    if (lowest.stream == nullptr ||
        std::tie(stream.last_epoch, stream.last_step) <
            std::tie(lowest.stream->last_epoch, lowest.stream->last_step))
      lowest.stream = &stream;
  }
  if (lowest.stream == nullptr) return std::nullopt;
  return lowest;
}

std::optional<Executor::Work> Executor::pick_from(Lane& lane) {
  if (may_have_worker(lane)) stand_in_line(lane);
  const std::optional<Choice> choice = choose(lane);
  if (!choice) return std::nullopt;
  if (choice->parked) return unpark(lane);
  if (choice->stream == nullptr) {
    Task* const fetched = lane.ready.front();
    lane.ready.pop_front();
    return begin(lane, *fetched);
  }
  if (!choice->batch) {
    choice->stream->opening = true;
    choice->stream->may_open = false;
    return Work{.lane = &lane, .stream = choice->stream};
  }
  Task& task = take_free_task(lane);
  const BatchIterator next = *choice->batch;
  task.stream = choice->stream;
  task.batch = next;
  task.order = &next->order;
  task.port = next->port.get();
  task.index = next->next_row++;
  task.packing = next->packing.get();
  task.dropped = &next->given_up;
  task.attempt = 0;
  task.needs_bytes = 0;
  task.alone = false;
  task.bytes.restart();
  ++next->unfinished;
  return begin(lane, task);
}

void Executor::open_batch(const Work& work) {
  Stream& stream = *work.stream;
  std::optional<BatchOrder> order = stream.port->open();
  Aftermath after;
  {
    Change change(*this);
    stream.opening = false;
    if (order) {
      auto at = stream.batches.end();
      while (at != stream.batches.begin() &&
             std::tie(order->epoch, order->step) <
                 std::tie(std::prev(at)->order.epoch, std::prev(at)->order.step))
        --at;
      const auto batch = stream.batches.emplace(at);
      batch->order = *order;
      batch->port = stream.port;
      if (work.lane->run->plan().packs())
        batch->packing = std::make_unique<Packing>(work.lane->run->shared_plan(), order->rows.rows);
      stream.last_epoch = order->epoch;
      stream.last_step = order->step;
      stream.may_open = true;
      if (stream.closed || stopping_) {
        batch->given_up = true;
        batch->next_row = batch->order.rows.rows;
        end_if_done(*work.lane, stream, batch, after);
      }
    }
    remove_closed(after);
    if (after.empty()) change.by_worker_that_looks_next();
  }
  tell(after);
}

void Executor::process(const Work& work, unsigned worker) {
  Task& task = *work.task;
  Run& run = *work.lane->run;
  const auto cpu_before = thread_cpu_time();
  const auto held_since = task.held_since;
  const auto begun = run.clock().now();
  enter_run(worker, work.lane->run);
  StreamFailure failure;
  std::uint64_t granted = work.granted_bytes;
  const RowState state =
      work.given_up ? RowState::kAgain : make_row(task, run, worker, granted, failure);
  const std::chrono::duration<double> cpu = thread_cpu_time() - cpu_before;
  const auto ended = run.clock().now();

  if (state == RowState::kDone || state == RowState::kFailed) {
    const auto rows = static_cast<std::size_t>(run.fetch_concurrency()) + threads();
    task.bytes.shrink(std::min(kKeptByARow, kKeptByARun / rows));
  }
  if (state == RowState::kFailed) task.port->fail(failure);
  Aftermath after;
  {
    Change change(*this);
    work.lane->cpu_per_weight_s += cpu.count() / run.weight();
    --work.lane->processing;
    work.lane->processing_since_ns -= ns_of(held_since);
    if (state == RowState::kDone || state == RowState::kFailed || state == RowState::kAgain) {
      std::chrono::nanoseconds& longest = work.lane->longest_row;
      longest = std::max(ended - begun, longest - longest / kFading);
      work.lane->last_row_at = ended;
    }
    memory_.give_back(granted);
    const bool wants_memory = state == RowState::kNeedsMemory || state == RowState::kNoMemory;
    if (wants_memory && !task.batch->given_up && !stopping_) {
      park(task,
           state == RowState::kNoMemory ? options_.memory_pause : std::chrono::nanoseconds(0));
    } else if (state == RowState::kPending) {
      ++fetching_;
      ++work.lane->fetching;  // the answer may have come before: the sum is right
      if (task.turn == work.turn && task.holder == Holder::kWorker) task.holder = Holder::kSource;
    } else if (state == RowState::kAgain && !task.batch->given_up && !stopping_) {
      task.holder = Holder::kNobody;
      ++task.stream->moves;
      work.lane->ready.push_back(&task);
    } else {
      if (state != RowState::kDone && state != RowState::kFailed) after.take(task.bytes);
      end_row(task, state != RowState::kDone, after);
    }
    remove_closed(after);
    if (after.empty()) change.by_worker_that_looks_next();
  }
  tell(after);
}

// Lets the run have the row for as long as it has the memory that it needs.
RowState Executor::make_row(Task& task, Run& run, unsigned worker, std::uint64_t& granted_bytes,
                            StreamFailure& failure) {
  while (true) {
    RowState state = RowState::kFailed;
    try {
      state = run.process(task, worker, granted_bytes, *this,
                          reinterpret_cast<std::uint64_t>(&task), failure);
    } catch (const std::exception& thrown) {  // a source that has the row throws no more
      failure.status =
          Status(Code::kResourceExhausted, "item " + std::to_string(task.item) + " (" +
                                               run.source().uri(task.item) +
                                               ") could not be made: " + thrown.what());
    }
    // What this row took goes back before others are told that they may have it.
    if (granted_bytes > 0) run.shrink(worker);
    if (state != RowState::kNeedsMemory) return state;
    const Change change(*this);
    memory_.give_back(std::exchange(granted_bytes, 0));
    if (first_in_line_ == nullptr) granted_bytes = take_memory(task);
    if (granted_bytes == 0) return state;
  }
}

}  // namespace spdld::engine
