// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "source/bytes/varint.h"

// A column of numbers below 2^63 of which neighbours are often equal: each as a varint of twice its
// value; or, where several are equal, of one more than that, and how many they are.
namespace spdld::source {

class RunWriter {
 public:
  void add(std::uint64_t value) {
    if (count_ > 0 && value != value_) flush();
    value_ = value;
    ++count_;
  }
  // All that was added; it is empty from then on.
  std::string finish() {
    flush();
    return std::move(text_);
  }

 private:
  static constexpr std::uint64_t kLeastRun = 3;

  void flush() {
    if (count_ >= kLeastRun) {
      put_varint(text_, value_ << 1 | 1);
      put_varint(text_, count_);
    } else {
      for (; count_ > 0; --count_) put_varint(text_, value_ << 1);
    }
    count_ = 0;
  }

  std::string text_;
  std::uint64_t value_ = 0;
  std::uint64_t count_ = 0;
};

// Reads what may be damaged: false, and nothing more comes, where the text ends.
class RunReader {
 public:
  RunReader() = default;
  explicit RunReader(std::string_view text) : text_(text) {}

  // The next value, and how many of it follow each other, at most `most`, which is not 0.
  bool run(std::uint64_t most, std::uint64_t& value, std::uint64_t& count) {
    if (left_ == 0 && !take()) return false;
    count = std::min(most, left_);
    left_ -= count;
    value = value_;
    return true;
  }
  bool next(std::uint64_t& value) {
    if (left_ == 0 && !take()) return false;
    --left_;
    value = value_;
    return true;
  }

 private:
  bool take() {
    std::uint64_t token = 0;
    if (!take_varint(text_, token)) return false;
    value_ = token >> 1;
    left_ = 1;
    return (token & 1) == 0 || (take_varint(text_, left_) && left_ > 0);
  }

  std::string_view text_;
  std::uint64_t value_ = 0;
  std::uint64_t left_ = 0;
};

}  // namespace spdld::source
