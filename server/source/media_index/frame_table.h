// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "op/media.h"

namespace spdld::source {

// The times of a stream's pictures, ascending, in few bytes: where they are evenly spaced, in some
// ten, however many they are.
std::string frame_table_text(std::span<const std::int64_t> times);

// Such a text, which outlives this. What is damaged yields fewer times than size() says.
class FrameTable {
 public:
  FrameTable() = default;
  explicit FrameTable(std::string_view text);

  std::string_view text() const { return text_; }
  std::uint64_t size() const { return size_; }
  // Puts the times of up to `count` frames, each `stride` behind the one before it, from `first`
  // on, behind those in `times`. `stride` is at least 1.
  void take(std::uint64_t first, std::uint64_t stride, std::uint64_t count,
            std::vector<std::int64_t>& times) const;
  // The time of the frame of that number < size().
  std::int64_t time(std::uint64_t frame) const;
  // The frames on both sides of a time. Before the first frame these are the first two; from the
  // last one on, `next` is `time`.
  struct Neighbours {
    std::uint64_t frame = 0;  // the last one whose time is not behind the one that was asked for
    std::int64_t time = 0;    // its own
    std::int64_t next = 0;    // of the frame behind it
  };
  Neighbours around(std::int64_t time) const;
  // Whether each frame stands within a quarter of a frame of where it would if all were spaced
  // alike.
  bool is_even() const;

 private:
  std::string_view text_;
  std::uint64_t size_ = 0;
  std::int64_t first_ = 0;
  std::string_view steps_;  // from each frame to the next: run_coding.h
};

}  // namespace spdld::source
