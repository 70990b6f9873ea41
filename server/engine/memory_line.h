// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "engine/lane.h"
#include "engine/plan/decode_memory.h"

namespace spdld::engine {

// Which rows may be decoded when, by the memory that it takes. A row that needs more than is free
// is parked: no worker waits for it. Of each run the row parked first is in the line for what comes
// back; the run that has had the least CPU time has the line's front, and nobody takes memory
// before that row has got what it needs: no large image is passed by smaller ones for ever.
//
// Owned by a WorkQueue, under the executor's lock.
class MemoryLine {
 public:
  explicit MemoryLine(std::uint64_t ceiling_bytes) : memory_(ceiling_bytes) {}

  // Takes what the row needs and returns it; 0: the row must wait.
  std::uint64_t take(const Task& task);
  void give_back(std::uint64_t bytes) { memory_.give_back(bytes); }
  std::uint64_t most_taken_bytes() const { return memory_.most_taken_bytes(); }

  // The row waits, for that long at least.
  void park(Task& task, std::chrono::nanoseconds pause);
  // These are about the row that the lane has parked first. Whether it can go on:
  bool may_unpark(const Lane& lane) const;
  // It takes the line's front, if there is no room for it and no other row has the front.
  void stand_in_line(const Lane& lane);
  // It goes on, with the memory that it needs; may_unpark() must hold.
  Task& unpark(Lane& lane, std::uint64_t& granted_bytes);
  // Takes out the parked rows of batches that are given up.
  std::vector<Task*> drop_parked(Lane& lane);

  // When the first pause ends among the rows that each lane has parked first.
  static std::optional<std::chrono::steady_clock::time_point> pause_end(
      const std::list<Lane>& lanes);
  // Rows whose pause is over may be unparked.
  static void end_pauses(std::list<Lane>& lanes);

 private:
  std::uint64_t wanted_bytes(const Task& task) const;

  DecodeMemory memory_;
  Task* first_ = nullptr;  // in the line
};

}  // namespace spdld::engine
