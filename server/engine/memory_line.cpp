// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_line.h"

#include <algorithm>

namespace spdld::engine {

// A row that is tried alone takes all there is.
std::uint64_t MemoryLine::wanted_bytes(const Task& task) const {
  if (!task.alone) return task.needs_bytes;
  return std::max({memory_.ceiling_bytes(), task.needs_bytes, std::uint64_t{1}});
}

std::uint64_t MemoryLine::take(const Task& task) {
  const std::uint64_t wanted = wanted_bytes(task);
  if (first_ != nullptr || !memory_.has_room_for(wanted)) return 0;
  memory_.take(wanted);
  return wanted;
}

void MemoryLine::park(Task& task, std::chrono::nanoseconds pause) {
  task.holder = Task::Holder::kMemoryLine;
  task.held_since = std::chrono::steady_clock::now();
  task.paused_until.reset();
  if (pause > std::chrono::nanoseconds(0)) task.paused_until = task.held_since + pause;
  task.lane->parked.push_back(&task);
  ++task.lane->begun;
  ++task.batch->parked;
}

bool MemoryLine::may_unpark(const Lane& lane) const {
  if (lane.parked.empty()) return false;
  const Task& task = *lane.parked.front();
  return !task.paused_until && (first_ == nullptr || first_ == &task) &&
         memory_.has_room_for(wanted_bytes(task));
}

void MemoryLine::stand_in_line(const Lane& lane) {
  if (first_ != nullptr || lane.parked.empty()) return;
  Task& task = *lane.parked.front();
  if (!task.paused_until && !memory_.has_room_for(wanted_bytes(task))) first_ = &task;
}

Task& MemoryLine::unpark(Lane& lane, std::uint64_t& granted_bytes) {
  Task& task = *lane.parked.front();
  lane.parked.pop_front();
  --lane.begun;
  --task.batch->parked;
  task.holder = Task::Holder::kNobody;
  first_ = nullptr;
  granted_bytes = take(task);
  return task;
}

std::vector<Task*> MemoryLine::drop_parked(Lane& lane) {
  const auto first = std::stable_partition(lane.parked.begin(), lane.parked.end(),
                                           [](const Task* task) { return !task->batch->given_up; });
  std::vector<Task*> dropped(first, lane.parked.end());
  lane.parked.erase(first, lane.parked.end());
  lane.begun -= static_cast<int>(dropped.size());
  for (const Task* task : dropped) {
    --task->batch->parked;
    if (first_ == task) first_ = nullptr;
  }
  return dropped;
}

std::optional<std::chrono::steady_clock::time_point> MemoryLine::pause_end(
    const std::list<Lane>& lanes) {
  std::optional<std::chrono::steady_clock::time_point> first;
  for (const Lane& lane : lanes) {
    if (lane.parked.empty()) continue;
    const auto& until = lane.parked.front()->paused_until;
    if (until && (!first || *until < *first)) first = until;
  }
  return first;
}

void MemoryLine::end_pauses(std::list<Lane>& lanes) {
  for (Lane& lane : lanes) {
    if (lane.parked.empty()) continue;
    auto& until = lane.parked.front()->paused_until;
    if (until && *until <= std::chrono::steady_clock::now()) until.reset();
  }
}

}  // namespace spdld::engine
