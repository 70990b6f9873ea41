// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "op/media.h"

namespace spdld::source {

// What a source of clips or windows adds to an item's bytes: which clip each request's bytes are
// of, and in how many pieces they were read.
//
// A piece is a run of bytes of the media file that packets of one clip lie in. A request whose
// packets lie far apart is read as several pieces, in ascending order of their place in the file:
// the source below is asked for each of them as for a request of its own, so that they stand in
// ItemBytes::bytes, which owns them, one behind the other, and together are the clip's bytes.
//
// Part of a FetchedItem, and as that one of one thread at a time. Its memory is reused.
class ItemClips {
 public:
  void clear() {
    count_ = 0;
    firsts_.clear();
  }

  // The clip of request `i`, to be filled.
  MediaClip& set(std::size_t i) {
    if (clips_.size() <= i) clips_.resize(i + 1);
    for (; count_ <= i; ++count_) clips_[count_].clear();
    clips_[i].clear();
    return clips_[i];
  }
  // Null: the bytes of request `i` are the part as it is.
  const MediaClip* find(std::size_t i) const {
    return i < count_ && clips_[i].stream.codec != nullptr ? &clips_[i] : nullptr;
  }

  // The next request is read as `count` pieces, at least 1. Called for every request in their
  // order, or for none: then each is read as one.
  void add_pieces(std::size_t count) {
    if (firsts_.empty()) firsts_.push_back(0);
    firsts_.push_back(firsts_.back() + count);
  }
  // How many requests `pieces` answer.
  std::size_t requests(std::size_t pieces) const {
    return firsts_.empty() ? pieces : firsts_.size() - 1;
  }
  // The first and the last piece of request `i`.
  std::size_t first_piece(std::size_t i) const { return firsts_.empty() ? i : firsts_[i]; }
  std::size_t last_piece(std::size_t i) const { return firsts_.empty() ? i : firsts_[i + 1] - 1; }

 private:
  std::vector<MediaClip> clips_;
  std::size_t count_ = 0;            // of `clips_` that mean something
  std::vector<std::size_t> firsts_;  // piece of each request, and their number; empty: each has one
};

}  // namespace spdld::source
