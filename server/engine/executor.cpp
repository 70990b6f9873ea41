// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "engine/executor_change.h"

namespace spdld::engine {

Executor::Executor(ExecutorOptions options)
    : options_(std::move(options)),
      memory_(options_.decode_memory_bytes),
      last_runs_(options_.threads) {
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
  while (fetching()) fetches_ended_.wait(mutex_);
}

StreamId Executor::open_stream(std::shared_ptr<Run> run, std::shared_ptr<StreamPort> port) {
  const Change change(*this);
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
  const Change change(*this);
  Lane* lane = nullptr;
  if (Stream* stream = find(id, &lane)) stream->may_open = true;
}

void Executor::set_limits(Run& run, RunLimits limits) {
  const Change change(*this);
  run.set_limits(limits);
}

void Executor::tune(Run& run, int fetch_concurrency, int process_concurrency) {
  const Change change(*this);
  run.tune(fetch_concurrency, process_concurrency);
}

void Executor::wake_worker() {
  if (asleep_ == 0 || stopping_) return;
  const bool can_pick =
      std::any_of(lanes_.begin(), lanes_.end(),
                  [this](Lane& lane) SPDLD_REQUIRES(mutex_) { return choose(lane).has_value(); });
  if (can_pick || (timed_ == 0 && pause_end())) work_may_wait_.notify_one();
}

void Executor::cancel(StreamId id, std::uint64_t epoch, std::uint64_t step) {
  Aftermath after;
  {
    const Change change(*this);
    Lane* lane = nullptr;
    if (Stream* stream = find(id, &lane)) give_up(*lane, *stream, epoch, step, after);
  }
  tell(after);
}

Executor::Headway Executor::headway(StreamId id) {
  Headway headway;
  std::shared_ptr<Run> run;
  Holder holder = Holder::kNobody;
  std::uint64_t needs_bytes = 0;
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
    holder = oldest->holder;
    if (holder != Holder::kWorker) item = oldest->item;
    if (holder == Holder::kParked) needs_bytes = oldest->needs_bytes;
  }
  const auto held =
      std::chrono::floor<std::chrono::seconds>(std::chrono::steady_clock::now() - since);
  const std::string for_s = " for " + std::to_string(held.count()) + " s";
  if (holder == Holder::kWorker) {
    headway.doing = "stage '" + run->plan().process.name + "' has had a row" + for_s;
    return headway;
  }
  headway.doing = "item " + std::to_string(item) + " (" + run->source().uri(item) + ")";
  headway.doing += holder == Holder::kParked
                       ? why_parked(needs_bytes)
                       : " is being read" + for_s +
                             "; see that its storage answers, and in 'spdlctl get users' whether "
                             "FILES is at its limit";
  return headway;
}

void Executor::close_stream(StreamId id) {
  Aftermath after;
  {
    const Change change(*this);
    Lane* lane = nullptr;
    if (Stream* stream = find(id, &lane)) {
      stream->closed = true;
      give_up(*lane, *stream, 0, 0, after);
      remove_closed(after);
    }
  }
  tell(after);
}

void Executor::stop() {
  Aftermath after;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (Lane& lane : lanes_) {
      for (Stream& stream : lane.streams) {
        for (OpenBatch& batch : stream.batches) batch.given_up = true;
      }
    }
    work_may_wait_.notify_all();
  }
  for (std::jthread& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
  {
    MutexLock lock(mutex_);
    for (Lane& lane : lanes_) {
      for (Stream& stream : lane.streams) {
        stream.closed = true;
        give_up(lane, stream, 0, 0, after);
      }
      while (!lane.ready.empty()) {
        Task* task = lane.ready.front();
        lane.ready.pop_front();
        after.take(task->bytes);
        end_row(*task, true, after);
      }
    }
    remove_closed(after);
  }
  tell(after);
}

void Executor::give_up(Lane& lane, Stream& stream, std::uint64_t epoch, std::uint64_t step,
                       Aftermath& after) {
  for (auto batch = stream.batches.begin(); batch != stream.batches.end();) {
    const auto here = batch++;
    if (std::tie(here->order.epoch, here->order.step) < std::tie(epoch, step)) continue;
    here->given_up = true;
    here->next_row = here->order.rows.rows;
    drop_parked(lane, after);
    end_if_done(lane, stream, here, after);
  }
}

void Executor::fetched(std::uint64_t token, Status status) {
  Task& task = *reinterpret_cast<Task*>(token);
  Aftermath after;
  {
    const Change change(*this);
    Lane& lane = *task.lane;
    --lane.fetching;
    --fetching_;
    task.holder = Holder::kNobody;
    ++task.stream->moves;
    lane.run->fetched(task, std::move(status));
    if (stopping_) {
      after.take(task.bytes);
      end_row(task, true, after);
      remove_closed(after);
      fetches_ended_.notify_all();
    } else {
      lane.ready.push_back(&task);
    }
  }
  tell(after);
}

void Executor::end_row(Task& task, bool failed, Aftermath& after) {
  const BatchIterator batch = task.batch;
  task.holder = Holder::kNobody;
  ++task.stream->moves;
  --batch->unfinished;
  if (failed) {
    batch->given_up = true;
    batch->next_row = batch->order.rows.rows;
    drop_parked(*task.lane, after);
  }
  task.lane->free_tasks.push_back(&task);
  end_if_done(*task.lane, *task.stream, batch, after);
}

void Executor::end_if_done(Lane& lane, Stream& stream, BatchIterator batch, Aftermath& after) {
  if (batch->unfinished > 0 || batch->next_row < batch->order.rows.rows) return;
  after.ended.push_back({.order = batch->order,
                         .port = batch->port,
                         .run = lane.run,
                         .given_up = batch->given_up,
                         .packing = std::move(batch->packing)});
  stream.batches.erase(batch);
}

void Executor::remove_closed(Aftermath& after) {
  for (auto next = lanes_.begin(); next != lanes_.end();) {
    const auto lane = next++;
    for (auto later = lane->streams.begin(); later != lane->streams.end();) {
      const auto stream = later++;
      if (stream->closed && !stream->opening && stream->batches.empty())
        after.streams.splice(after.streams.end(), lane->streams, stream);
    }
    const bool idle = lane->free_tasks.size() == lane->tasks.size();
    if (lane->streams.empty() && idle && lane->processing == 0)
      after.lanes.splice(after.lanes.end(), lanes_, lane);
  }
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

}  // namespace spdld::engine
