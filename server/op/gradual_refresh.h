// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "op/media.h"

namespace spdld {

// After so many pictures that others refer to, all of a picture was renewed where each renews a
// column or a row of blocks, and reordered ones count, too.
inline std::size_t pictures_until_whole(const CodecParameters& codec) {
  constexpr int kBlock = 16;
  constexpr int kReordered = 16;
  return static_cast<std::size_t>(std::max({codec.width, codec.height, 0}) / kBlock + kReordered);
}

// Finds the packet at which a decoder begins that is to have whole pictures from a time on, in a
// stream that refreshes gradually: the last key packet behind which so many pictures are shown no
// later than that. Pictures that are shown later than all before them are those that others refer
// to for certain. A value.
class GradualRefresh {
 public:
  GradualRefresh(std::size_t pictures_until_whole, std::int64_t from)
      : until_whole_(pictures_until_whole), from_(from) {}

  // The next packet in decoding order, and its number.
  void add(const MediaPacket& packet, std::uint64_t number) {
    if (packet.pts == kNoTime) return;
    const bool is_latest = !any_ || packet.pts > latest_;
    if (is_latest) {
      any_ = true;
      latest_ = packet.pts;
      ++pictures_;
      while (count_ > 0 && packet.pts <= from_ && keys_[0].picture + until_whole_ <= pictures_) {
        found_ = true;
        begin_ = keys_[0].number;
        whole_ = number;
        std::copy(keys_.begin() + 1, keys_.begin() + static_cast<std::ptrdiff_t>(count_),
                  keys_.begin());
        --count_;
      }
    }
    if (packet.key && count_ < keys_.size())
      keys_[count_++] = {.number = number, .picture = pictures_};
  }

  bool found() const { return found_; }
  std::uint64_t begin() const { return begin_; }
  // The number of the first packet whose picture is whole, if a decoder begins there.
  std::uint64_t whole() const { return whole_; }

 private:
  struct Key {
    std::uint64_t number = 0;
    std::size_t picture = 0;
  };

  const std::size_t until_whole_;
  const std::int64_t from_;
  std::int64_t latest_ = 0;
  bool any_ = false;
  std::size_t pictures_ = 0;
  // Those behind which too few pictures have come so far. Where there are more, the last ones of
  // them are no begin.
  std::array<Key, 64> keys_{};
  std::size_t count_ = 0;
  bool found_ = false;
  std::uint64_t begin_ = 0;
  std::uint64_t whole_ = 0;
};

}  // namespace spdld
