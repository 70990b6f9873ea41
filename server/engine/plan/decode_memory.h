// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace spdld::engine {

// What rows take of memory while they are made, daemon-wide. One that takes no more than the
// allowance is not counted, so that small images pay nothing: there are at most as many of these as
// workers. The others together take no more than the ceiling, but that one which takes more than
// the ceiling goes when no other counted one is there. So the ceiling says when a row is made and
// never whether; RunPool::row_memory_bytes says that.
//
// A plain value: its owner, the executor, guards it.
class DecodeMemory {
 public:
  static constexpr std::uint64_t kAllowanceBytes = std::uint64_t{16} << 20;

  explicit DecodeMemory(std::uint64_t ceiling_bytes) : ceiling_bytes_(ceiling_bytes) {}

  bool has_room_for(std::uint64_t bytes) const {
    return taken_bytes_ == 0 ||
           (taken_bytes_ <= ceiling_bytes_ && bytes <= ceiling_bytes_ - taken_bytes_);
  }
  void take(std::uint64_t bytes) {
    taken_bytes_ += bytes;
    most_taken_bytes_ = std::max(most_taken_bytes_, taken_bytes_);
  }
  void give_back(std::uint64_t bytes) { taken_bytes_ -= bytes; }

  std::uint64_t ceiling_bytes() const { return ceiling_bytes_; }
  std::uint64_t taken_bytes() const { return taken_bytes_; }
  std::uint64_t most_taken_bytes() const { return most_taken_bytes_; }

 private:
  const std::uint64_t ceiling_bytes_;
  std::uint64_t taken_bytes_ = 0;
  std::uint64_t most_taken_bytes_ = 0;
};

}  // namespace spdld::engine
