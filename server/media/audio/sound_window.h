// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/status.h"
#include "media/audio/channels.h"
#include "op/audio.h"

namespace spdld::media {

// Collects the samples that a decoder gives piece by piece, of which those in [first, end) are
// kept. While it collects, each channel has room to grow in the sound's memory; finish() closes the
// gaps. Never holds more memory than it is allowed to.
class SoundWindow {
 public:
  static constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

  // Nothing was collected yet. `sound` outlives this; the next sample is number `position`. It may
  // take `room_bytes`.
  void begin(Sound& sound, std::int64_t position, std::int64_t first, std::int64_t end,
             std::uint64_t room_bytes);
  // Says what the samples are; once, before the first append().
  void set_format(const Channels& channels, int sample_rate);
  // Nothing from here on is kept either.
  void end_at(std::int64_t end) { end_ = end; }
  bool has_format() const { return sound_->channels > 0; }
  // None before set_format().
  const Channels& channels() const { return channels_; }
  int sample_rate() const { return sound_->sample_rate; }

  // The next sample is number `position`; nothing was collected yet.
  void go_to(std::int64_t position) { position_ = position; }
  // The next `count` samples: put(channel, from, n, out) writes n of them, from number `from` of
  // these on. False: there is no room for them, and needs_bytes() says what they take.
  template <typename Put>
  bool append(std::int64_t count, Put put) {
    const std::int64_t from = std::clamp<std::int64_t>(first_ - position_, 0, count);
    const std::int64_t to = std::clamp<std::int64_t>(end_ - position_, from, count);
    position_ += count;
    if (to == from) return true;
    if (!reserve(sound_->length + to - from)) return false;
    for (int c = 0; c < sound_->channels; ++c)
      put(c, from, to - from, sound_->values.data() + c * stride_ + sound_->length);
    sound_->length += to - from;
    return true;
  }

  std::int64_t position() const { return position_; }
  // Whether all samples before the window's end have come.
  bool is_full() const { return position_ >= end_; }
  std::uint64_t needs_bytes() const { return needs_bytes_; }
  // The sound is whole: its channels lie one behind the other.
  void finish();

 private:
  bool reserve(std::int64_t length);

  Sound* sound_ = nullptr;
  Channels channels_;
  std::int64_t stride_ = 0;  // from one channel to the next
  std::int64_t position_ = 0;
  std::int64_t first_ = 0;
  std::int64_t end_ = 0;
  std::uint64_t room_bytes_ = 0;
  std::uint64_t needs_bytes_ = 0;
};

}  // namespace spdld::media
