// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text/counted.h"

namespace spdld::engine {
namespace {

// A claim whose rows take longer than was expected is given back after that.
constexpr std::chrono::nanoseconds kLongestClaim = std::chrono::milliseconds(1);

// Of a file's bytes, what a row that is done keeps for the next one, and all rows of a run
// together.
constexpr std::size_t kKeptByARow = std::size_t{1} << 20;
constexpr std::size_t kKeptByARun = std::size_t{64} << 20;

void begin_rows(Claim& claim) {
  OpenBatch& batch = **claim.batch;
  std::uint64_t index = claim.rows.first;
  for (Task* const task : claim.tasks) {
    task->stream = claim.stream;
    task->batch = *claim.batch;
    task->order = &batch.order;
    task->port = batch.port.get();
    task->index = index++;
    task->packing = batch.packing.get();
    task->dropped = &batch.given_up;
    task->attempt = 0;
    task->failures = 0;
    task->needs_bytes = 0;
    task->alone = false;
    task->bytes.restart();
    if (task->calls != nullptr) task->calls->restart();
  }
  claim.begun.assign(claim.tasks.begin(), claim.tasks.end());
}

// Charges the run with this thread's CPU time since `cpu_time`. Returns it, and sets `cpu_time`.
std::chrono::nanoseconds charge(Run& run, std::chrono::nanoseconds& cpu_time) {
  const auto before = std::exchange(cpu_time, thread_cpu_time());
  run.count_cpu_time(cpu_time - before);
  return cpu_time - before;
}

}  // namespace

// Lives on the stack of one of the executor's methods.
class SPDLD_THREAD_ANNOTATION(scoped_lockable) Executor::Change {
 public:
  explicit Change(Executor& executor) SPDLD_ACQUIRE(executor.mutex_) : executor_(executor) {
    executor_.mutex_.lock();
  }
  ~Change() SPDLD_RELEASE() {
    if (wakes_) executor_.wake_worker();
    executor_.mutex_.unlock();
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  // Nothing more can be picked than before, or it is made by a worker that looks for work before it
  // does anything else.
  void wakes_nobody() { wakes_ = false; }

 private:
  Executor& executor_;
  bool wakes_ = true;
};

Executor::Executor(ExecutorOptions options)
    : options_([&options] {
        options.most_threads = std::max(options.most_threads, options.threads);
        return std::move(options);
      }()),
      threads_(options_.threads),
      queue_({.workers = options_.threads,
              .decode_memory_bytes = options_.decode_memory_bytes,
              .many_fetches = options_.many_fetches,
              .few_fetches = options_.few_fetches,
              .ahead = options_.ahead}),
      clocks_(options_.most_threads),
      last_runs_(options_.most_threads),
      ended_(options_.most_threads, true) {
  SPDLD_CHECK(options_.threads > 0);
  MutexLock lock(starting_);
  workers_.resize(options_.most_threads);
  for (unsigned worker = 0; worker < options_.threads; ++worker) {
    if (start_worker(worker)) continue;
    MutexLock stopping(mutex_);
    stopping_ = true;
    work_may_wait_.notify_all();
    throw std::system_error(EAGAIN, std::generic_category(), "a CPU worker's thread");
  }
}

bool Executor::start_worker(unsigned worker) {
  {
    MutexLock lock(mutex_);
    if (!ended_[worker]) return true;  // it has not seen yet that it was one too many
    ended_[worker] = false;
  }
  if (workers_[worker].joinable()) workers_[worker].join();
  try {
    workers_[worker] = std::jthread([this, worker] { work(worker); });
    return true;
  } catch (const std::system_error&) {
    MutexLock lock(mutex_);
    ended_[worker] = true;
    return false;
  }
}

Status Executor::set_threads(unsigned threads) {
  SPDLD_CHECK(threads > 0 && threads <= options_.most_threads);
  MutexLock starting(starting_);
  const auto set = [this](unsigned count) {
    MutexLock lock(mutex_);
    threads_ = count;
    queue_.set_workers(count);
    work_may_wait_.notify_all();
  };
  const unsigned before = threads_;
  {
    MutexLock lock(mutex_);
    if (stopping_) return {};
  }
  set(threads);
  for (unsigned worker = before; worker < threads; ++worker) {
    if (start_worker(worker)) continue;
    set(worker);
    return Status(Code::kResourceExhausted,
                  "the machine gives the daemon no further thread, so that it has " +
                      counted(worker, "CPU worker") + ": raise its limit of tasks (TasksMax=)");
  }
  return {};
}

Executor::~Executor() {
  stop();
  MutexLock lock(mutex_);
  const auto away = [this]() SPDLD_REQUIRES(mutex_) {
    return std::any_of(queue_.lanes().begin(), queue_.lanes().end(),
                       [](const Lane& lane) { return lane.fetching > 0 || lane.calling > 0; });
  };
  while (away()) rows_came_back_.wait(mutex_);
}

StreamId Executor::open_stream(std::shared_ptr<Run> run, std::shared_ptr<StreamPort> port) {
  const Change change(*this);
  return queue_.add(std::move(run), std::move(port)).id;
}

void Executor::wake(StreamId id) {
  const Change change(*this);
  Lane* lane = nullptr;
  if (Stream* stream = queue_.find(id, &lane)) stream->may_open = true;
}

void Executor::set_limits(Run& run, RunLimits limits) {
  const Change change(*this);
  run.set_limits(limits);
}

void Executor::tune(Run& run, int fetch_concurrency, int process_concurrency) {
  const Change change(*this);
  run.tune(fetch_concurrency, process_concurrency);
}

void Executor::begin_starving(const StreamPort& port) {
  const Change change(*this);
  port.starving_.fetch_add(1, std::memory_order_relaxed);
}

void Executor::wake_worker() {
  if (clocks_.sleepers() == 0 || stopping_) return;
  const bool has_work = queue_.has_work();
  if (!has_work) clocks_.idle_for(queue_.why_idle());
  if (has_work || (timed_ == 0 && queue_.pause_end())) work_may_wait_.notify_one();
}

void Executor::cancel(StreamId id, std::uint64_t epoch, std::uint64_t step) {
  Aftermath after;
  {
    const Change change(*this);
    Lane* lane = nullptr;
    if (Stream* stream = queue_.find(id, &lane)) give_up(*lane, *stream, epoch, step, after);
  }
  tell(after);
}

Executor::Headway Executor::headway(StreamId id) {
  using Holder = Task::Holder;
  Headway headway;
  std::shared_ptr<Run> run;
  const Task* oldest = nullptr;  // null: a claim is
  std::uint64_t needs_bytes = 0;
  std::uint64_t item = 0;
  std::optional<std::chrono::steady_clock::time_point> since;
  Holder holder = Holder::kNobody;
  {
    MutexLock lock(mutex_);
    Lane* lane = nullptr;
    const Stream* const stream = queue_.find(id, &lane);
    if (stream == nullptr) return headway;
    headway.moves = stream->moves;
    const auto is_oldest = [&](const Stream* of, BatchIterator batch,
                               std::chrono::steady_clock::time_point held_since) {
      const bool own = of == stream && &*batch == &stream->batches.front();
      if (since && (own != headway.own ? !own : held_since > *since)) return false;
      headway.own = own;
      since = held_since;
      return true;
    };
    for (const auto& task : lane->tasks) {
      if (task->holder != Holder::kNobody && is_oldest(task->stream, task->batch, task->held_since))
        oldest = task.get();
    }
    for (const Claim* const claim : lane->claims) {
      if (is_oldest(claim->stream, *claim->batch, claim->since)) oldest = nullptr;
    }
    if (!since) return headway;
    run = lane->run;
    if (oldest != nullptr) {
      holder = oldest->holder;
      item = oldest->item;
      needs_bytes = oldest->needs_bytes;
    }
  }
  headway.held = std::chrono::steady_clock::now() - *since;
  const auto held = std::chrono::floor<std::chrono::seconds>(headway.held);
  const std::string for_s = " for " + std::to_string(held.count()) + " s";
  if (holder == Holder::kNobody) {
    headway.doing = "stage '" + run->plan().process.name + "' has had a row" + for_s;
    return headway;
  }
  const std::string name = std::to_string(item) + " (" + run->source().uri(item) + ")";
  headway.doing = "item " + name;
  if (holder == Holder::kCaller) {
    const std::string waits = run->waits_for_runners();
    headway.doing += " is with a function of yours" + for_s + (waits.empty() ? "" : ": " + waits);
    return headway;
  }
  if (holder == Holder::kSource) headway.reads = name;
  headway.doing += holder == Holder::kMemoryLine
                       ? why_parked(needs_bytes)
                       : " is being read" + for_s +
                             "; see that its storage answers, and in 'spdlctl get users' whether "
                             "FILES is at its limit";
  return headway;
}

std::string Executor::why_parked(std::uint64_t needs_bytes) const {
  return " waits until there is room for the " + std::to_string(needs_bytes) +
         " bytes that it takes to decode; executor.decode_memory is " +
         std::to_string(options_.decode_memory_bytes);
}

void Executor::close_stream(StreamId id) {
  Aftermath after;
  {
    const Change change(*this);
    Lane* lane = nullptr;
    if (Stream* stream = queue_.find(id, &lane)) {
      stream->closed = true;
      give_up(*lane, *stream, 0, 0, after);
      queue_.erase_idle(after.streams, after.lanes);
    }
  }
  tell(after);
}

HeadTime Executor::head_time(StreamId id) {
  MutexLock lock(mutex_);
  Lane* lane = nullptr;
  const Stream* const stream = queue_.find(id, &lane);
  HeadClock head = stream == nullptr ? HeadClock() : stream->head;
  head.pass(head.now);
  return head.time;
}

WorkerTime Executor::worker_time() {
  MutexLock lock(mutex_);
  return clocks_.total();
}

std::optional<std::chrono::nanoseconds> Executor::waited_for_cores() {
  std::vector<pid_t> threads;
  std::chrono::nanoseconds of_ended{0};
  {
    MutexLock lock(mutex_);
    threads = clocks_.threads();
    of_ended = clocks_.ended_waited();
  }
  const auto waited = engine::waited_for_cores(threads);
  return waited ? std::optional(*waited + of_ended) : std::nullopt;
}

std::optional<CpuPriority> Executor::priority() {
  std::vector<pid_t> threads;
  {
    MutexLock lock(mutex_);
    threads = clocks_.threads();
  }
  return threads.empty() ? std::nullopt : cpu_priority(threads.front());
}

std::uint64_t Executor::most_decode_memory() {
  MutexLock lock(mutex_);
  return queue_.memory().most_taken_bytes();
}

void Executor::stop() {
  Aftermath after;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (Lane& lane : queue_.lanes()) {
      for (Stream& stream : lane.streams) {
        for (OpenBatch& batch : stream.batches) batch.given_up = true;
      }
      if (lane.calling > 0) lane.run->look_for_dropped();
    }
    work_may_wait_.notify_all();
  }
  {
    MutexLock starting(starting_);
    for (std::jthread& worker : workers_) {
      if (worker.joinable()) worker.join();
    }
  }
  {
    MutexLock lock(mutex_);
    for (Lane& lane : queue_.lanes()) {
      for (Stream& stream : lane.streams) {
        stream.closed = true;
        give_up(lane, stream, 0, 0, after);
      }
      while (!lane.ready.empty()) {
        Task& task = *lane.ready.front();
        lane.ready.pop_front();
        --lane.begun;
        take_bytes(task, after);
        end_row(task, after);
        end_if_done(lane, *task.stream, task.batch, after);
      }
    }
    queue_.erase_idle(after.streams, after.lanes);
  }
  tell(after);
}

void Executor::give_up(Lane& lane, Stream& stream, std::uint64_t epoch, std::uint64_t step,
                       Aftermath& after) {
  for (auto batch = stream.batches.begin(); batch != stream.batches.end();) {
    const auto here = batch++;
    if (std::tie(here->order.epoch, here->order.step) < std::tie(epoch, step)) continue;
    here->give_up();
    drop_parked(lane, after);
    end_if_done(lane, stream, here, after);
  }
  queue_.note_head(lane, stream);
  if (lane.calling > 0) lane.run->look_for_dropped();
}

void Executor::fetched(std::uint64_t token, Status status) {
  Task& task = *reinterpret_cast<Task*>(token);
  Aftermath after;
  {
    const Change change(*this);
    queue_.end_fetch(task);
    task.lane->run->fetched(task, std::move(status));
    came_back(task, after);
  }
  tell(after);
}

void Executor::called(std::uint64_t token, Status status) {
  Back row{token, std::move(status)};
  all_called({&row, 1});
}

void Executor::all_called(std::span<Back> rows) {
  Aftermath after;
  {
    const Change change(*this);
    for (Back& row : rows) {
      Task& task = *reinterpret_cast<Task*>(row.token);
      WorkQueue::end_call(task);
      task.lane->run->called(task, std::move(row.status));
      came_back(task, after);
    }
  }
  tell(after);
}

void Executor::came_back(Task& task, Aftermath& after) {
  Lane& lane = *task.lane;
  if (!stopping_) {
    WorkQueue::make_ready(task);
    queue_.note_head(lane, *task.stream);
    return;
  }
  take_bytes(task, after);
  end_row(task, after);
  end_if_done(lane, *task.stream, task.batch, after);
  queue_.erase_idle(after.streams, after.lanes);
  rows_came_back_.notify_all();
}

void Executor::take_bytes(Task& task, Aftermath& after) {
  for (ByteBuffer& buffer : task.bytes.release()) after.bytes.push_back(std::move(buffer));
}

void Executor::end_row(Task& task, Aftermath& after) {
  ++task.stream->moves;
  task.batch->give_up();
  --task.batch->unfinished;
  drop_parked(*task.lane, after);
  WorkQueue::free(task);
}

void Executor::drop_parked(Lane& lane, Aftermath& after) {
  for (Task* const task : queue_.memory().drop_parked(lane)) {
    task->holder = Task::Holder::kNobody;
    take_bytes(*task, after);
    --task->batch->unfinished;
    WorkQueue::free(*task);
  }
}

void Executor::end_if_done(Lane& lane, Stream& stream, BatchIterator batch, Aftermath& after) {
  if (batch->unfinished > 0 || batch->has_rows()) return;
  after.ended.push_back({.order = batch->order,
                         .port = batch->port,
                         .run = lane.run,
                         .given_up = batch->given_up,
                         .packing = std::move(batch->packing)});
  stream.batches.erase(batch);
}

void Executor::tell(Aftermath& after) {
  for (Ended& batch : after.ended) {
    if (!batch.given_up && batch.packing != nullptr) {
      if (Status packed = batch.run->pack(batch.order, *batch.packing); !packed.ok()) {
        batch.port->fail({.status = std::move(packed)});
        batch.given_up = true;
      }
    }
    if (batch.given_up) {
      batch.port->abandon(batch.order);
    } else {
      batch.port->commit(batch.order);
    }
  }
}

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
  Claim claim;
  std::chrono::nanoseconds cpu_time = thread_cpu_time();
  {
    MutexLock lock(mutex_);
    clocks_.begin(worker);
  }
  while (true) {
    {
      const Change change(*this);
      bool has_picked = false;
      while (!stopping_ && worker < threads_ && !(has_picked = queue_.pick(claim))) sleep(worker);
      if (!has_picked) {
        clocks_.end(worker);
        ended_[worker] = true;
        return;
      }
    }
    if (claim.batch) {
      process(claim, worker, cpu_time);
    } else {
      open_batch(claim, worker, cpu_time);
    }
  }
}

void Executor::sleep(unsigned worker) {
  clocks_.idle_for(queue_.why_idle());
  clocks_.sleeps(worker);
  if (const auto until = queue_.pause_end()) {
    ++timed_;
    work_may_wait_.wait_for(mutex_, *until - std::chrono::steady_clock::now());
    --timed_;
  } else {
    work_may_wait_.wait(mutex_);
  }
  clocks_.wakes(worker);
}

void Executor::open_batch(const Claim& claim, unsigned worker, std::chrono::nanoseconds& cpu_time) {
  Stream& stream = *claim.stream;
  const std::shared_ptr<Run> run = claim.lane->run;
  std::optional<BatchOrder> order = stream.port->open();
  Aftermath after;
  {
    Change change(*this);
    clocks_.opened_batch(worker);
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
      const Run& run = *claim.lane->run;
      if (run.plan().packs())
        batch->packing = std::make_unique<Packing>(run.shared_plan(), order->rows.rows);
      stream.last_epoch = order->epoch;
      stream.last_step = order->step;
      stream.may_open = true;
      if (stream.closed || stopping_) {
        batch->give_up();
        end_if_done(*claim.lane, stream, batch, after);
      }
      queue_.note_head(*claim.lane, stream);
    }
    queue_.erase_idle(after.streams, after.lanes);
    if (after.empty()) change.wakes_nobody();
  }
  tell(after);
  charge(*run, cpu_time);
}

void Executor::process(Claim& claim, unsigned worker, std::chrono::nanoseconds& cpu_time) {
  Lane& lane = *claim.lane;
  Run& run = *lane.run;
  const OpenBatch& batch = **claim.batch;
  const auto begun = run.clock().now();
  enter_run(worker, lane.run);
  if (claim.rows.count > 0) {
    begin_rows(claim);
    if (!batch.given_up) run.bring_at_hand(claim.begun);
  }
  const auto rows = static_cast<std::size_t>(run.fetch_concurrency()) +
                    std::size_t{threads()} * claim.tasks.size();
  const std::size_t kept = std::min(kKeptByARow, kKeptByARun / rows);
  Aftermath after;
  WorkQueue::Outcome outcome;
  bool goes_on = true;
  while (goes_on && outcome.rows < claim.tasks.size()) {
    if (outcome.rows > 0 &&
        (batch.given_up || std::chrono::steady_clock::now() - claim.since > kLongestClaim))
      break;
    Task& task = *claim.tasks[outcome.rows];
    std::uint64_t granted = std::exchange(claim.granted_bytes, 0);
    const std::uint64_t answers = task.answers;
    StreamFailure failure;
    const RowState state =
        batch.given_up ? RowState::kAgain : make_row(task, run, worker, granted, failure);
    if (state == RowState::kDone || state == RowState::kFailed) task.bytes.shrink(kept);
    if (state == RowState::kFailed) task.port->fail(failure);
    if (state != RowState::kPending) ++outcome.done;
    if (state == RowState::kDone && task.calls != nullptr) task.calls->shrink(kept);
    if (state != RowState::kDone || granted > 0)
      goes_on = leave(claim, task, state, answers, granted, after);
    if (state != RowState::kDone) claim.tasks[outcome.rows] = nullptr;
    ++outcome.rows;
  }
  // Rows that go back unbegun are brought anew.
  for (std::size_t row = outcome.rows; claim.rows.count > 0 && row < claim.tasks.size(); ++row) {
    claim.tasks[row]->bytes.restart();
    claim.tasks[row]->bytes.shrink(kept);
  }
  outcome.cpu_s = std::chrono::duration<double>(charge(run, cpu_time)).count();
  outcome.now = run.clock().now();
  outcome.took = outcome.now - begun;
  {
    Change change(*this);
    Stream& stream = *claim.stream;
    const BatchIterator of = *claim.batch;
    queue_.end(claim, outcome);
    clocks_.made_rows(worker);
    end_if_done(lane, stream, of, after);
    queue_.note_heads(lane);
    queue_.erase_idle(after.streams, after.lanes);
    if (after.empty()) change.wakes_nobody();
  }
  const bool ends_batch = !after.ended.empty();
  tell(after);
  if (ends_batch) charge(run, cpu_time);
}

bool Executor::leave(Claim& claim, Task& task, RowState state, std::uint64_t answers,
                     std::uint64_t granted_bytes, Aftermath& after) {
  Change change(*this);
  OpenBatch& batch = **claim.batch;
  queue_.memory().give_back(granted_bytes);
  const bool is_wanted = !batch.given_up && !stopping_;
  switch (state) {
    case RowState::kDone: return true;
    case RowState::kPending:
      queue_.begin_fetch(task, batch, answers);
      if (granted_bytes == 0) change.wakes_nobody();
      return is_wanted && queue_.may_fetch(*claim.lane);
    case RowState::kCalled:
      WorkQueue::begin_call(task, batch, answers);
      if (granted_bytes == 0) change.wakes_nobody();
      if (!is_wanted) claim.lane->run->look_for_dropped();  // who gave it up did not see the call
      return is_wanted && WorkQueue::may_call(*claim.lane);
    case RowState::kNeedsMemory:
    case RowState::kNoMemory:
      if (!is_wanted) break;
      queue_.memory().park(
          task, state == RowState::kNoMemory ? options_.memory_pause : std::chrono::nanoseconds(0));
      return true;
    case RowState::kAgain:
      if (!is_wanted) break;
      ++task.stream->moves;
      WorkQueue::make_ready(task);
      return true;
    case RowState::kDropped:
    case RowState::kFailed: break;
  }
  if (state != RowState::kFailed) take_bytes(task, after);
  end_row(task, after);
  return false;
}

RowState Executor::make_row(Task& task, Run& run, unsigned worker, std::uint64_t& granted_bytes,
                            StreamFailure& failure) {
  while (true) {
    RowState state = RowState::kFailed;
    try {
      state = run.process(task, worker, granted_bytes, {.fetch = *this, .call = *this},
                          reinterpret_cast<std::uint64_t>(&task), failure);
    } catch (const std::exception& thrown) {  // a source that has the row throws no more
      failure.status =
          Status(Code::kResourceExhausted, "item " + std::to_string(task.item) + " (" +
                                               run.source().uri(task.item) +
                                               ") could not be made: " + thrown.what());
    }
    // The row's memory goes back before others are told that they may have it.
    if (granted_bytes > 0) run.shrink(worker);
    if (state != RowState::kNeedsMemory) return state;
    const Change change(*this);
    queue_.memory().give_back(std::exchange(granted_bytes, 0));
    granted_bytes = queue_.memory().take(task);
    if (granted_bytes == 0) return state;
  }
}

void Executor::enter_run(unsigned worker, const std::shared_ptr<Run>& run) {
  std::weak_ptr<Run>& last = last_runs_[worker];
  // Whether both are the same run, without the cost of a lock() for each row.
  if (!last.owner_before(run) && !run.owner_before(last)) return;
  if (const auto left = last.lock()) left->shrink(worker);
  last = run;
}

}  // namespace spdld::engine
