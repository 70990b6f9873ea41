// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace spdld::engine {
namespace {

// CPU time, over its weight, that a run may catch up on after it had nothing to do.
constexpr double kMaxOwedS = 0.02;

}  // namespace

Executor::Executor(ExecutorOptions options) : options_(std::move(options)) {
  SPDLD_CHECK(options_.threads > 0);
  for (unsigned worker = 0; worker < options_.threads; ++worker)
    workers_.emplace_back([this, worker] { work(worker); });
}

Executor::~Executor() {
  stop();
  MutexLock lock(mutex_);
  const auto fetching = [this]() SPDLD_REQUIRES(mutex_) {
    return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& l) { return l.fetching > 0; });
  };
  while (fetching()) changed_.wait(mutex_);
}

StreamId Executor::open_stream(std::shared_ptr<Run> run, std::shared_ptr<StreamPort> port) {
  MutexLock lock(mutex_);
  auto lane = std::find_if(lanes_.begin(), lanes_.end(),
                           [&](const Lane& known) { return known.run == run; });
  if (lane == lanes_.end()) {
    lane = lanes_.emplace(lanes_.end());
    lane->run = std::move(run);
    lane->cpu_per_weight_s = virtual_time_s_;  // it owes nothing for the time before
  }
  Stream& stream = lane->streams.emplace_back();
  stream.id = next_stream_++;
  stream.port = std::move(port);
  changed_.notify_one();
  return stream.id;
}

Executor::Stream* Executor::find(StreamId id, Lane** lane) {
  for (Lane& candidate : lanes_) {
    for (Stream& stream : candidate.streams) {
      if (stream.id != id) continue;
      *lane = &candidate;
      return &stream;
    }
  }
  return nullptr;
}

void Executor::wake(StreamId id) {
  MutexLock lock(mutex_);
  Lane* lane = nullptr;
  if (Stream* stream = find(id, &lane)) {
    stream->may_open = true;
    changed_.notify_one();
  }
}

void Executor::cancel(StreamId id, std::uint64_t epoch, std::uint64_t step) {
  std::vector<Ended> ended;
  {
    MutexLock lock(mutex_);
    Lane* lane = nullptr;
    if (Stream* stream = find(id, &lane)) give_up(*lane, *stream, epoch, step, ended);
  }
  tell(ended);
}

Executor::Headway Executor::headway(StreamId id) {
  Headway headway;
  std::shared_ptr<Run> run;
  bool with_source = false;
  std::uint64_t item = 0;
  std::chrono::steady_clock::time_point since;
  {
    MutexLock lock(mutex_);
    Lane* lane = nullptr;
    const Stream* const stream = find(id, &lane);
    if (stream == nullptr) return headway;
    headway.moves = stream->moves;
    const Task* oldest = nullptr;
    for (const auto& task : lane->tasks) {
      if (task->holder == Holder::kNobody) continue;
      const bool own = task->stream == stream && task->batch == stream->batches.begin();
      if (oldest != nullptr && (own != headway.own ? !own : task->held_since > oldest->held_since))
        continue;
      oldest = task.get();
      headway.own = own;
    }
    if (oldest == nullptr) return headway;
    run = lane->run;
    since = oldest->held_since;
    with_source = oldest->holder == Holder::kSource;
    if (with_source) item = oldest->item;
  }
  const auto held =
      std::chrono::floor<std::chrono::seconds>(std::chrono::steady_clock::now() - since);
  const std::string for_s = " for " + std::to_string(held.count()) + " s";
  headway.doing = with_source ? "item " + std::to_string(item) + " (" + run->source().uri(item) +
                                    ") is being read" + for_s + "; see that its storage answers"
                              : "stage '" + run->plan().process.name + "' has had a row" + for_s;
  return headway;
}

void Executor::close_stream(StreamId id) {
  std::vector<Ended> ended;
  {
    MutexLock lock(mutex_);
    Lane* lane = nullptr;
    if (Stream* stream = find(id, &lane)) {
      stream->closed = true;
      give_up(*lane, *stream, 0, 0, ended);
      remove_closed();
    }
  }
  tell(ended);
}

void Executor::stop() {
  std::vector<Ended> ended;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::jthread& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
  {
    MutexLock lock(mutex_);
    for (Lane& lane : lanes_) {
      for (Stream& stream : lane.streams) {
        stream.closed = true;
        give_up(lane, stream, 0, 0, ended);
      }
      while (!lane.ready.empty()) {
        Task* task = lane.ready.front();
        lane.ready.pop_front();
        end_row(*task, true, ended);
      }
    }
    remove_closed();
  }
  tell(ended);
}

void Executor::give_up(Lane& lane, Stream& stream, std::uint64_t epoch, std::uint64_t step,
                       std::vector<Ended>& ended) {
  for (auto batch = stream.batches.begin(); batch != stream.batches.end();) {
    const auto here = batch++;
    if (std::tie(here->order.epoch, here->order.step) < std::tie(epoch, step)) continue;
    here->given_up = true;
    here->next_row = here->order.rows.rows;
    end_if_done(lane, stream, here, ended);
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
  while (true) {
    std::optional<Work> next;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && !(next = pick())) changed_.wait(mutex_);
      if (stopping_) return;
    }
    if (next->task != nullptr) {
      process(*next, worker);
    } else {
      open_batch(*next);
    }
  }
}

std::optional<Executor::Work> Executor::pick() {
  if (lanes_.size() == 1) return pick_from(lanes_.front());
  by_need_.clear();
  for (Lane& lane : lanes_) by_need_.push_back(&lane);
  std::sort(by_need_.begin(), by_need_.end(),
            [](const Lane* a, const Lane* b) { return a->cpu_per_weight_s < b->cpu_per_weight_s; });
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
Executor::Task* Executor::free_task(Lane& lane) {
  if (lane.free_tasks.empty()) {
    const std::size_t limit =
        static_cast<std::size_t>(lane.run->fetch_concurrency()) + options_.threads;
    if (lane.tasks.size() >= limit) return nullptr;
    lane.tasks.push_back(std::make_unique<Task>());
    lane.tasks.back()->lane = &lane;
    lane.free_tasks.push_back(lane.tasks.back().get());
  }
  return lane.free_tasks.back();
}

Executor::Work Executor::begin(Lane& lane, Task& task) {
  ++lane.processing;
  task.holder = Holder::kWorker;
  task.held_since = std::chrono::steady_clock::now();
  return {.lane = &lane, .task = &task, .turn = ++task.turn};
}

std::optional<Executor::Work> Executor::pick_from(Lane& lane) {
  const int cap = lane.run->process_concurrency();
  if (cap > 0 && lane.processing >= cap) return std::nullopt;

  if (!lane.ready.empty()) {
    Task* const fetched = lane.ready.front();
    lane.ready.pop_front();
    return begin(lane, *fetched);
  }

  Task* const task = free_task(lane);
  if (task == nullptr || lane.fetching >= lane.run->fetch_concurrency()) return std::nullopt;
  Stream* lowest = nullptr;
  BatchIterator next;
  for (Stream& stream : lane.streams) {
    for (auto batch = stream.batches.begin(); batch != stream.batches.end(); ++batch) {
      if (batch->next_row == batch->order.rows.rows) continue;
      if (lowest == nullptr || std::tie(batch->order.epoch, batch->order.step) <
                                   std::tie(next->order.epoch, next->order.step)) {
        lowest = &stream;
        next = batch;
      }
      break;  // a stream's batches are in order
    }
  }
  if (lowest != nullptr) {
    lane.free_tasks.pop_back();
    task->stream = lowest;
    task->batch = next;
    task->order = &next->order;
    task->port = next->port.get();
    task->index = next->next_row++;
    task->packed = next->packed.empty() ? nullptr : &next->packed[task->index];
    task->attempt = 0;
    task->fetched = false;
    task->fetch_status = {};
    ++next->unfinished;
    return begin(lane, *task);
  }

  for (Stream& stream : lane.streams) {
    if (!stream.may_open || stream.opening || stream.closed) continue;
    if (lowest == nullptr || std::tie(stream.last_epoch, stream.last_step) <
                                 std::tie(lowest->last_epoch, lowest->last_step))
      lowest = &stream;
  }
  if (lowest == nullptr) return std::nullopt;
  lowest->opening = true;
  lowest->may_open = false;
  return Work{.lane = &lane, .stream = lowest};
}

void Executor::open_batch(const Work& work) {
  Stream& stream = *work.stream;
  std::optional<BatchOrder> order = stream.port->open();
  std::vector<Ended> ended;
  {
    MutexLock lock(mutex_);
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
      if (!work.lane->run->plan().image) batch->packed.resize(order->rows.rows);
      stream.last_epoch = order->epoch;
      stream.last_step = order->step;
      stream.may_open = true;
      if (stream.closed || stopping_) {
        batch->given_up = true;
        batch->next_row = batch->order.rows.rows;
        end_if_done(*work.lane, stream, batch, ended);
      }
      changed_.notify_all();
    }
    remove_closed();
  }
  tell(ended);
}

void Executor::process(const Work& work, unsigned worker) {
  Task& task = *work.task;
  Run& run = *work.lane->run;
  const auto cpu_before = thread_cpu_time();
  Status failure;
  RowState state = RowState::kFailed;
  try {
    state = run.process(task, worker, *this, reinterpret_cast<std::uint64_t>(&task), failure);
  } catch (const std::exception& thrown) {  // memory; a source that has the row throws no more
    failure = Status(Code::kResourceExhausted, "item " + std::to_string(task.item) + " (" +
                                                   run.source().uri(task.item) +
                                                   ") could not be made: " + thrown.what());
  }
  const std::chrono::duration<double> cpu = thread_cpu_time() - cpu_before;

  if (state == RowState::kFailed) task.port->fail(failure);
  std::vector<Ended> ended;
  {
    MutexLock lock(mutex_);
    work.lane->cpu_per_weight_s += cpu.count() / run.weight();
    --work.lane->processing;
    if (state == RowState::kPending) {
      ++work.lane->fetching;  // the answer may have come before: the sum is right
      if (task.turn == work.turn && task.holder == Holder::kWorker) task.holder = Holder::kSource;
    } else {
      end_row(task, state == RowState::kFailed, ended);
    }
    remove_closed();
    changed_.notify_one();
  }
  tell(ended);
}

void Executor::fetched(std::uint64_t token, Status status) {
  Task& task = *reinterpret_cast<Task*>(token);
  std::vector<Ended> ended;
  {
    MutexLock lock(mutex_);
    Lane& lane = *task.lane;
    --lane.fetching;
    task.holder = Holder::kNobody;
    ++task.stream->moves;
    lane.run->fetched(task, std::move(status));
    if (stopping_) {
      end_row(task, true, ended);
      remove_closed();
      changed_.notify_all();
    } else {
      lane.ready.push_back(&task);
      changed_.notify_one();
    }
  }
  tell(ended);
}

void Executor::end_row(Task& task, bool failed, std::vector<Ended>& ended) {
  const BatchIterator batch = task.batch;
  task.holder = Holder::kNobody;
  ++task.stream->moves;
  --batch->unfinished;
  if (failed) {
    batch->given_up = true;
    batch->next_row = batch->order.rows.rows;
  }
  task.lane->free_tasks.push_back(&task);
  end_if_done(*task.lane, *task.stream, batch, ended);
}

void Executor::end_if_done(Lane& lane, Stream& stream, BatchIterator batch,
                           std::vector<Ended>& ended) {
  if (batch->unfinished > 0 || batch->next_row < batch->order.rows.rows) return;
  ended.push_back({.order = batch->order,
                   .port = batch->port,
                   .run = lane.run,
                   .given_up = batch->given_up,
                   .packed = std::move(batch->packed)});
  stream.batches.erase(batch);
}

void Executor::remove_closed() {
  for (auto lane = lanes_.begin(); lane != lanes_.end();) {
    lane->streams.remove_if([](const Stream& stream) {
      return stream.closed && !stream.opening && stream.batches.empty();
    });
    const bool idle = lane->free_tasks.size() == lane->tasks.size();
    lane = lane->streams.empty() && idle && lane->processing == 0 ? lanes_.erase(lane)
                                                                  : std::next(lane);
  }
}

void Executor::tell(std::vector<Ended>& ended) {
  for (Ended& batch : ended) {
    if (!batch.given_up && !batch.packed.empty()) {
      if (Status packed = batch.run->pack(batch.order, batch.packed); !packed.ok()) {
        batch.port->fail(packed);
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

}  // namespace spdld::engine
