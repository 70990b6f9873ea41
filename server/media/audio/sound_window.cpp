// SPDX-License-Identifier: Apache-2.0
#include "media/audio/sound_window.h"

#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace spdld::media {
namespace {

constexpr std::int64_t kLeastRoom = 65536;

std::uint64_t bytes_of(int channels, std::int64_t length) {
  return static_cast<std::uint64_t>(channels) * static_cast<std::uint64_t>(length) * sizeof(float);
}

}  // namespace

void SoundWindow::begin(Sound& sound, std::int64_t position, std::int64_t first, std::int64_t end,
                        std::uint64_t room_bytes) {
  sound_ = &sound;
  channels_ = {};
  sound.channels = 0;
  sound.sample_rate = 0;
  sound.length = 0;
  sound.bins = 0;
  stride_ = 0;
  position_ = position;
  first_ = first;
  end_ = end;
  room_bytes_ = room_bytes;
  needs_bytes_ = 0;
}

void SoundWindow::set_format(const Channels& channels, int sample_rate) {
  SPDLD_CHECK(sound_->channels == 0 && channels.count > 0);
  channels_ = channels;
  sound_->channels = channels.count;
  sound_->sample_rate = sample_rate;
  // The memory of earlier sounds is there already.
  stride_ = static_cast<std::int64_t>(sound_->values.size()) / channels.count;
}

bool SoundWindow::reserve(std::int64_t length) {
  if (length <= stride_) return true;
  std::int64_t stride = std::max({length, stride_ + stride_ / 2, kLeastRoom});
  // A window whose end is known needs no more than that.
  if (end_ != kNoEnd) stride = std::max(length, std::min(stride, end_ - first_));
  // While it grows, there are both.
  const std::uint64_t taken =
      bytes_of(sound_->channels, stride) + sound_->values.capacity() * sizeof(float);
  if (taken > room_bytes_) {
    needs_bytes_ = taken;
    return false;
  }
  sound_->values.reserve(static_cast<std::size_t>(sound_->channels * stride));
  sound_->values.resize(static_cast<std::size_t>(sound_->channels * stride));
  float* const values = sound_->values.data();
  for (int c = sound_->channels - 1; c > 0; --c)
    std::memmove(values + c * stride, values + c * stride_,
                 static_cast<std::size_t>(sound_->length) * sizeof(float));
  stride_ = stride;
  return true;
}

void SoundWindow::finish() {
  float* const values = sound_->values.data();
  // Without samples there may be no memory yet.
  for (int c = 1; c < sound_->channels && sound_->length > 0; ++c)
    std::memmove(values + c * sound_->length, values + c * stride_,
                 static_cast<std::size_t>(sound_->length) * sizeof(float));
  sound_->reshape(sound_->channels, 0, sound_->length);
}

}  // namespace spdld::media
