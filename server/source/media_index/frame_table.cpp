// SPDX-License-Identifier: Apache-2.0
#include "source/media_index/frame_table.h"

#include <algorithm>
#include <cmath>

#include "source/bytes/run_coding.h"

namespace spdld::source {
namespace {

// Unsigned, since what is damaged may go beyond the numbers that there are.
void pass(std::int64_t& time, std::uint64_t step, std::uint64_t steps) {
  time = static_cast<std::int64_t>(static_cast<std::uint64_t>(time) + step * steps);
}

}  // namespace

std::string frame_table_text(std::span<const std::int64_t> times) {
  std::string text;
  put_varint(text, times.size());
  if (times.empty()) return text;
  put_varint(text, zigzag(times.front()));
  RunWriter steps;
  for (std::size_t i = 1; i < times.size(); ++i)
    steps.add(static_cast<std::uint64_t>(times[i] - times[i - 1]));
  return text + steps.finish();
}

FrameTable::FrameTable(std::string_view text) : text_(text) {
  std::uint64_t size = 0;
  std::uint64_t first = 0;
  if (!take_varint(text, size) || !take_varint(text, first)) return;
  size_ = size;
  first_ = unzigzag(first);
  steps_ = text;
}

void FrameTable::take(std::uint64_t first, std::uint64_t stride, std::uint64_t count,
                      std::vector<std::int64_t>& times) const {
  RunReader steps(steps_);
  std::uint64_t at = 0;  // the frame that `time` is of
  std::int64_t time = first_;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (first >= size_) return;
    while (at < first) {
      std::uint64_t step = 0;
      std::uint64_t run = 0;
      if (!steps.run(first - at, step, run)) return;
      pass(time, step, run);
      at += run;
    }
    times.push_back(time);
    first += stride;
  }
}

std::int64_t FrameTable::time(std::uint64_t frame) const {
  RunReader steps(steps_);
  std::uint64_t step = 0;
  std::uint64_t run = 0;
  std::int64_t time = first_;
  while (frame > 0 && steps.run(frame, step, run)) {
    pass(time, step, run);
    frame -= run;
  }
  return time;
}

FrameTable::Neighbours FrameTable::around(std::int64_t time) const {
  RunReader steps(steps_);
  Neighbours found{.time = first_, .next = first_};
  std::uint64_t step = 0;
  std::uint64_t run = 0;
  while (found.frame + 1 < size_ && steps.run(size_ - 1 - found.frame, step, run)) {
    const std::uint64_t room =
        static_cast<std::uint64_t>(time) - static_cast<std::uint64_t>(found.time);
    const std::uint64_t fit = found.time > time ? 0 : step == 0 ? run : std::min(run, room / step);
    found.frame += fit;
    pass(found.time, step, fit);
    found.next = found.time;
    if (fit == run) continue;
    pass(found.next, step, 1);
    break;
  }
  return found;
}

bool FrameTable::is_even() const {
  if (size_ < 2) return true;
  const auto length = static_cast<double>(time(size_ - 1)) - static_cast<double>(first_);
  const double even = length / static_cast<double>(size_ - 1);
  RunReader steps(steps_);
  std::uint64_t step = 0;
  std::uint64_t run = 0;
  std::int64_t passed = 0;
  for (std::uint64_t frame = 0; frame + 1 < size_ && steps.run(size_ - 1 - frame, step, run);) {
    pass(passed, step, run);
    frame += run;
    // Within a run the distance grows from one end to the other.
    if (std::abs(static_cast<double>(passed) - even * static_cast<double>(frame)) > even / 4)
      return false;
  }
  return true;
}

}  // namespace spdld::source
