// SPDX-License-Identifier: Apache-2.0
#include "engine/work_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace spdld::engine {
namespace {

// A claim is worth so much of a worker's time, and has so many rows at most.
constexpr std::chrono::nanoseconds kClaimTime = std::chrono::microseconds(200);
constexpr std::uint64_t kMostRows = 256;

// CPU time, over its weight, that a run may catch up on after it had nothing to do.
constexpr double kMaxOwedS = 0.02;

// A run that had a row no longer ago may have the next one soon: a training step takes less, and
// what has been prefetched bridges longer ones.
constexpr std::chrono::seconds kAwake{1};
// Of the longest row of late, so much is forgotten with each row.
constexpr int kFading = 16;

std::int64_t ns_of(std::chrono::steady_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

bool takes_long(const Lane& lane) { return lane.longest_row >= kLongRow; }

// It has rows to be made, or had some of late: its consumers may have slots free again shortly.
bool is_awake(const Lane& lane) {
  if (lane.workers() > 0 || !lane.ready.empty() || !lane.parked.empty()) return true;
  return lane.last_row_at && lane.run->clock().now() - *lane.last_row_at < kAwake;
}

std::uint64_t rows_at_once(const Lane& lane) {
  if (lane.mean_row.count() <= 0) return 1;
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(kClaimTime / lane.mean_row), 1,
                                   kMostRows);
}

// Free tasks for so many rows, and new ones where there are too few.
void take_tasks(Lane& lane, std::size_t count, std::vector<Task*>& tasks) {
  while (lane.free_tasks.size() < count) {
    lane.tasks.push_back(std::make_unique<Task>());
    lane.tasks.back()->lane = &lane;
    lane.free_tasks.push_back(lane.tasks.back().get());
  }
  const auto first = lane.free_tasks.end() - static_cast<std::ptrdiff_t>(count);
  tasks.assign(first, lane.free_tasks.end());
  lane.free_tasks.erase(first, lane.free_tasks.end());
}

// Rows of one batch, in the order in which they came.
void take_ready(Lane& lane, std::size_t most, std::vector<Task*>& tasks) {
  const OpenBatch& batch = *lane.ready.front()->batch;  // iterators of two lists do not compare
  while (!lane.ready.empty() && &*lane.ready.front()->batch == &batch && tasks.size() < most) {
    tasks.push_back(lane.ready.front());
    lane.ready.pop_front();
  }
  lane.begun -= static_cast<int>(tasks.size());
  tasks.front()->batch->ready -= static_cast<int>(tasks.size());
}

void note_rows(Lane& lane, const WorkQueue::Outcome& outcome, std::chrono::nanoseconds held) {
  if (outcome.done == 0) return;
  for (std::size_t row = 0; row < outcome.done && lane.longest_row > outcome.took; ++row)
    lane.longest_row -= lane.longest_row / kFading;
  lane.longest_row = std::max(lane.longest_row, outcome.took);
  lane.last_row_at = outcome.now;
  const std::chrono::nanoseconds row = held / static_cast<std::int64_t>(outcome.done);
  lane.mean_row = lane.mean_row.count() == 0 ? row : (3 * lane.mean_row + row) / 4;
}

}  // namespace

Stream& WorkQueue::add(std::shared_ptr<Run> run, std::shared_ptr<StreamPort> port) {
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
  return stream;
}

Stream* WorkQueue::find(StreamId id, Lane** lane) {
  for (Lane& candidate : lanes_) {
    for (Stream& stream : candidate.streams) {
      if (stream.id != id) continue;
      *lane = &candidate;
      return &stream;
    }
  }
  return nullptr;
}

void WorkQueue::erase_idle(std::list<Stream>& streams, std::list<Lane>& lanes) {
  for (auto next = lanes_.begin(); next != lanes_.end();) {
    const auto lane = next++;
    for (auto later = lane->streams.begin(); later != lane->streams.end();) {
      const auto stream = later++;
      if (stream->closed && !stream->opening && stream->batches.empty())
        streams.splice(streams.end(), lane->streams, stream);
    }
    if (lane->streams.empty() && lane->is_idle()) lanes.splice(lanes.end(), lanes_, lane);
  }
}

bool WorkQueue::pick(Claim& claim) {
  MemoryLine::end_pauses(lanes_);
  if (lanes_.size() == 1) return pick_from(lanes_.front(), claim);
  by_need_.clear();
  const std::int64_t now = ns_of(std::chrono::steady_clock::now());
  for (Lane& lane : lanes_) {
    // Rows that take long count while they take it.
    const std::int64_t held_ns = lane.workers() * now - lane.claimed_since_ns;
    lane.need_s = lane.cpu_per_weight_s + static_cast<double>(held_ns) * 1e-9 / lane.run->weight();
    by_need_.push_back(&lane);
  }
  std::sort(by_need_.begin(), by_need_.end(),
            [](const Lane* a, const Lane* b) { return a->need_s < b->need_s; });
  for (Lane* lane : by_need_) {
    if (!pick_from(*lane, claim)) continue;
    // A run that had nothing to do for a while is not owed the pool for as long.
    lane->cpu_per_weight_s = std::max(lane->cpu_per_weight_s, virtual_time_s_ - kMaxOwedS);
    virtual_time_s_ = std::max(virtual_time_s_, lane->cpu_per_weight_s);
    return true;
  }
  return false;
}

bool WorkQueue::has_work() {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [this](Lane& lane) { return choose(lane).has_value(); });
}

Idle WorkQueue::why_idle() const {
  Idle why = Idle::kWork;
  for (const Lane& lane : lanes_) why = std::max(why, why_idle(lane));
  return why;
}

Idle WorkQueue::why_idle(const Lane& lane) const {
  const bool has_rows =
      std::any_of(lane.streams.begin(), lane.streams.end(), [](const Stream& stream) {
        return std::any_of(stream.batches.begin(), stream.batches.end(),
                           [](const OpenBatch& batch) { return batch.has_rows(); });
      });
  const bool may_open = std::any_of(
      lane.streams.begin(), lane.streams.end(),
      [](const Stream& stream) { return stream.may_open && !stream.opening && !stream.closed; });
  const bool wants_worker = has_rows || may_open || !lane.ready.empty() || !lane.parked.empty();
  if (wants_worker && !may_have_worker(lane)) {
    const int cap = lane.run->process_concurrency();
    if (cap == 0 || lane.workers() < cap)
      return must_leave_worker(lane) ? Idle::kLeft : Idle::kYield;
    return lane.run->is_bound_by_job() ? Idle::kJobBound : Idle::kStageBound;
  }
  if (!lane.parked.empty()) return Idle::kMemory;
  if (lane.fetching > 0) return Idle::kBytes;
  if (lane.calling > 0) return Idle::kCalls;
  if (has_rows) return Idle::kBytes;
  return lane.streams.empty() ? Idle::kWork : Idle::kSlot;
}

std::optional<HeadWait> WorkQueue::head_wait(const Lane& lane, const Stream& stream) const {
  if (stream.batches.empty()) return std::nullopt;
  const OpenBatch& first = stream.batches.front();
  if (first.has_rows()) {
    if (!may_have_task(lane) && !lane.parked.empty()) return HeadWait::kMemory;
    if (!may_call(lane)) return HeadWait::kCalls;
    return may_fetch(lane) ? HeadWait::kWorker : HeadWait::kBytes;
  }
  if (first.fetching > 0) return HeadWait::kBytes;
  if (first.ready > 0) return HeadWait::kWorker;
  if (first.calling > 0) return HeadWait::kCalls;
  return first.parked > 0 ? HeadWait::kMemory : HeadWait::kMaking;
}

void WorkQueue::note_head(const Lane& lane, Stream& stream) const {
  const std::optional<HeadWait> wait = head_wait(lane, stream);
  if (wait != stream.head.now) stream.head.pass(wait);
}

void WorkQueue::note_heads(Lane& lane) const {
  for (Stream& stream : lane.streams) note_head(lane, stream);
}

// Every worker can have a claim in its hands while the source has all that it may have.
bool WorkQueue::may_have_task(const Lane& lane) const {
  return lane.begun + lane.workers() <
         lane.run->fetch_concurrency() + static_cast<int>(bounds_.workers);
}

bool WorkQueue::may_fetch(const Lane& lane) const {
  const int wanted = lane.run->fetch_concurrency();
  const bool many = fetching_ >= bounds_.many_fetches;
  return lane.fetching < (many ? std::min(wanted, bounds_.few_fetches) : wanted);
}

bool WorkQueue::may_have_worker(const Lane& lane) const {
  const int cap = lane.run->process_concurrency();
  return !must_yield(lane) && (cap == 0 || lane.workers() < cap) && !must_leave_worker(lane);
}

bool WorkQueue::is_work_wanted() const {
  for (const Lane& lane : lanes_) {
    const int cap = lane.run->process_concurrency();
    if (cap > 0 && lane.workers() >= cap) continue;
    const bool may_begin = may_have_task(lane) && may_fetch(lane) && may_call(lane);
    for (const Stream& stream : lane.streams) {
      if (!stream.port->is_wanted() || stream.closed) continue;
      if (stream.may_open && !stream.opening && may_begin) return true;
      for (const OpenBatch& batch : stream.batches) {
        if (batch.ready > 0 || (batch.has_rows() && may_begin) ||
            (batch.parked > 0 && memory_.may_unpark(lane)))
          return true;
      }
    }
  }
  return false;
}

unsigned WorkQueue::may_work() const {
  if (bounds_.ahead >= bounds_.workers || is_work_wanted()) return bounds_.workers;
  return bounds_.ahead;
}

unsigned WorkQueue::long_workers() const {
  int workers = 0;
  for (const Lane& lane : lanes_) {
    if (takes_long(lane)) workers += lane.workers();
  }
  return static_cast<unsigned>(workers);
}

bool WorkQueue::must_yield(const Lane& lane) const {
  if (working_ < std::min(bounds_.ahead, bounds_.workers)) return false;
  const unsigned most = may_work();
  if (working_ < most) return false;
  // Where one worker may have rows, and has one that takes long, short rows have another worker.
  return most > 1 || working_ > 1 || takes_long(lane) || long_workers() == 0;
}

// It has a worker again once one of the long rows is done: that worker looks.
bool WorkQueue::must_leave_worker(const Lane& lane) const {
  if (lanes_.size() == 1 || bounds_.workers == 1 || !takes_long(lane)) return false;
  const auto waits = [](const Lane& other) { return !takes_long(other) && is_awake(other); };
  return long_workers() + 1 >= std::max(may_work(), 2U) && std::ranges::any_of(lanes_, waits);
}

std::optional<WorkQueue::Choice> WorkQueue::choose(Lane& lane) const {
  if (!may_have_worker(lane)) return std::nullopt;
  if (memory_.may_unpark(lane)) return Choice{.parked = true};
  if (!lane.ready.empty()) return Choice{};
  if (!may_have_task(lane) || !may_fetch(lane) || !may_call(lane)) return std::nullopt;

  Choice lowest;
  for (Stream& stream : lane.streams) {
    for (auto batch = stream.batches.begin(); batch != stream.batches.end(); ++batch) {
      if (!batch->has_rows()) continue;
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

bool WorkQueue::pick_from(Lane& lane, Claim& claim) {
  if (may_have_worker(lane)) memory_.stand_in_line(lane);
  const std::optional<Choice> choice = choose(lane);
  if (!choice) return false;
  claim.lane = &lane;
  claim.stream = choice->stream;
  claim.batch = choice->batch;
  claim.rows = {};
  claim.tasks.clear();
  claim.granted_bytes = 0;
  if (choice->batch) {
    claim.rows = (*choice->batch)->claim(rows_at_once(lane));
    take_tasks(lane, claim.rows.count, claim.tasks);
  } else if (choice->stream != nullptr) {
    choice->stream->opening = true;
    choice->stream->may_open = false;
    return true;
  } else if (choice->parked) {
    claim.tasks.push_back(&memory_.unpark(lane, claim.granted_bytes));
  } else {
    take_ready(lane, rows_at_once(lane), claim.tasks);
  }
  if (!claim.batch) {
    claim.stream = claim.tasks.front()->stream;
    claim.batch = claim.tasks.front()->batch;
  }
  ++(*claim.batch)->unfinished;
  claim.since = std::chrono::steady_clock::now();
  lane.claims.push_back(&claim);
  ++working_;
  lane.claimed_since_ns += ns_of(claim.since);
  note_heads(lane);
  return true;
}

void WorkQueue::end(Claim& claim, const Outcome& outcome) {
  Lane& lane = *claim.lane;
  OpenBatch& batch = **claim.batch;
  lane.cpu_per_weight_s += outcome.cpu_s / lane.run->weight();
  lane.claims.erase(std::find(lane.claims.begin(), lane.claims.end(), &claim));
  --working_;
  lane.claimed_since_ns -= ns_of(claim.since);
  note_rows(lane, outcome, std::chrono::steady_clock::now() - claim.since);

  const auto rest = claim.tasks.begin() + static_cast<std::ptrdiff_t>(outcome.rows);
  if (claim.rows.count > 0) {
    batch.give_back({claim.rows.first + outcome.rows, claim.rows.count - outcome.rows});
    lane.free_tasks.insert(lane.free_tasks.end(), rest, claim.tasks.end());
  } else {
    lane.begun += static_cast<int>(claim.tasks.end() - rest);
    batch.ready += static_cast<int>(claim.tasks.end() - rest);
    lane.ready.insert(lane.ready.begin(), rest, claim.tasks.end());
  }
  claim.tasks.erase(rest, claim.tasks.end());
  // Those that are still there are made.
  std::erase(claim.tasks, nullptr);
  lane.free_tasks.insert(lane.free_tasks.end(), claim.tasks.begin(), claim.tasks.end());
  claim.stream->moves += claim.tasks.size();
  batch.unfinished -= claim.tasks.size() + 1;
}

void WorkQueue::make_ready(Task& task) {
  task.holder = Task::Holder::kNobody;
  ++task.lane->begun;
  ++task.batch->ready;
  task.lane->ready.push_back(&task);
}

void WorkQueue::begin_fetch(Task& task, OpenBatch& batch, std::uint64_t answers) {
  ++fetching_;
  ++task.lane->fetching;  // the answer may have come before: the sum is right
  ++task.lane->begun;
  ++batch.fetching;
  if (task.answers != answers) return;
  task.holder = Task::Holder::kSource;
  task.held_since = std::chrono::steady_clock::now();
}

void WorkQueue::end_fetch(Task& task) {
  --fetching_;
  --task.lane->fetching;
  --task.lane->begun;
  --task.batch->fetching;
  ++task.answers;
  task.holder = Task::Holder::kNobody;
  ++task.stream->moves;
}

void WorkQueue::begin_call(Task& task, OpenBatch& batch, std::uint64_t answers) {
  ++task.lane->calling;
  ++batch.calling;
  if (task.answers != answers) return;
  task.holder = Task::Holder::kCaller;
  task.held_since = std::chrono::steady_clock::now();
}

void WorkQueue::end_call(Task& task) {
  --task.lane->calling;
  --task.batch->calling;
  ++task.answers;
  task.holder = Task::Holder::kNobody;
  ++task.stream->moves;
}

}  // namespace spdld::engine
