// SPDX-License-Identifier: Apache-2.0
// Which rows may be decoded when, by the memory that it takes.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "engine/executor.h"

namespace spdld::engine {

std::uint64_t Executor::most_decode_memory() {
  MutexLock lock(mutex_);
  return memory_.most_taken_bytes();
}

// A row that is tried alone takes all there is.
std::uint64_t Executor::wanted_bytes(const Task& task) const {
  if (!task.alone) return task.needs_bytes;
  return std::max({memory_.ceiling_bytes(), task.needs_bytes, std::uint64_t{1}});
}

std::uint64_t Executor::take_memory(const Task& task) {
  const std::uint64_t wanted = wanted_bytes(task);
  if (!memory_.has_room_for(wanted)) return 0;
  memory_.take(wanted);
  return wanted;
}

void Executor::park(Task& task, std::chrono::nanoseconds pause) {
  task.holder = Holder::kParked;
  task.held_since = std::chrono::steady_clock::now();
  task.paused_until.reset();
  if (pause > std::chrono::nanoseconds(0)) task.paused_until = task.held_since + pause;
  task.lane->parked.push_back(&task);
}

bool Executor::may_unpark(const Lane& lane) const {
  if (lane.parked.empty()) return false;
  const Task& task = *lane.parked.front();
  return !task.paused_until && (first_in_line_ == nullptr || first_in_line_ == &task) &&
         memory_.has_room_for(wanted_bytes(task));
}

void Executor::stand_in_line(const Lane& lane) {
  if (first_in_line_ != nullptr || lane.parked.empty()) return;
  Task& task = *lane.parked.front();
  if (!task.paused_until && !memory_.has_room_for(wanted_bytes(task))) first_in_line_ = &task;
}

Executor::Work Executor::unpark(Lane& lane) {
  Task& task = *lane.parked.front();
  lane.parked.pop_front();
  first_in_line_ = nullptr;
  Work work = begin(lane, task);
  work.granted_bytes = take_memory(task);
  return work;
}

void Executor::drop_parked(Lane& lane, Aftermath& after) {
  const auto dropped =
      std::stable_partition(lane.parked.begin(), lane.parked.end(),
                            [](const Task* task) { return !task->batch->given_up; });
  for (auto task = dropped; task != lane.parked.end(); ++task) {
    if (first_in_line_ == *task) first_in_line_ = nullptr;
    (*task)->holder = Holder::kNobody;
    after.take((*task)->bytes);
    --(*task)->batch->unfinished;
    lane.free_tasks.push_back(*task);
  }
  lane.parked.erase(dropped, lane.parked.end());
}

std::optional<std::chrono::steady_clock::time_point> Executor::pause_end() const {
  std::optional<std::chrono::steady_clock::time_point> first;
  for (const Lane& lane : lanes_) {
    if (lane.parked.empty()) continue;
    const auto& until = lane.parked.front()->paused_until;
    if (until && (!first || *until < *first)) first = until;
  }
  return first;
}

void Executor::end_pauses() {
  for (Lane& lane : lanes_) {
    if (lane.parked.empty()) continue;
    auto& until = lane.parked.front()->paused_until;
    if (until && *until <= std::chrono::steady_clock::now()) until.reset();
  }
}

std::string Executor::why_parked(std::uint64_t needs_bytes) const {
  return " waits until there is room for the " + std::to_string(needs_bytes) +
         " bytes that it takes to decode; executor.decode_memory is " +
         std::to_string(options_.decode_memory_bytes);
}

void Executor::enter_run(unsigned worker, const std::shared_ptr<Run>& run) {
  std::weak_ptr<Run>& last = last_runs_[worker];
  // Whether both are the same run, without the cost of a lock() for each row.
  if (!last.owner_before(run) && !run.owner_before(last)) return;
  if (const auto left = last.lock()) left->shrink(worker);
  last = run;
}

}  // namespace spdld::engine
