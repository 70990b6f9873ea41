// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "media/audio/audio_decoder.h"
#include "media/audio/audio_options.h"
#include "media/audio/channels.h"
#include "media/audio/clip_span.h"
#include "media/audio/pcm.h"
#include "media/audio/sound_window.h"
#include "op/audio.h"
#include "op/media.h"

namespace spdld::media {

// Makes float32 samples of a file of sound, or of a clip of one. Uncompressed sound is read where
// it lies; other files go through the fenced demuxer and the one decoder of their codec. Owned by a
// worker, and used by its thread alone.
class AudioReader {
 public:
  explicit AudioReader(const AudioOptions& options) : options_(options) {}  // options outlive it

  // The samples into `sound`; `clip` is null if `bytes` are a whole file. 0: they are there.
  // Otherwise the memory that they take, which is more than `room_bytes`. Errors are the data's, or
  // kNoMemory.
  Result<std::uint64_t> read(std::span<const std::byte> bytes, const MediaClip* clip, Sound& sound,
                             std::uint64_t room_bytes);

  // At most this is kept for the next sound, beside the sound itself.
  std::uint64_t kept_bytes() const;

  // The channels of the sound that was read last.
  const Channels& channels() const { return channels_; }

 private:
  using Bytes = std::span<const std::byte>;

  // Interleaved samples, of which a sound is made.
  struct Pcm {
    PcmFormat format;
    int sample_rate = 0;
    int channels = 0;
    Bytes data;
  };

  Result<std::uint64_t> read_file(Bytes bytes, Sound& sound, std::uint64_t room_bytes);
  Result<std::uint64_t> read_clip(Bytes bytes, const MediaClip& clip, Sound& sound,
                                  std::uint64_t room_bytes);
  Result<std::uint64_t> read_samples(const Pcm& pcm, Sound& sound, std::uint64_t room_bytes);
  Result<std::uint64_t> read_pcm_clip(Bytes bytes, const MediaClip& clip, const ClipSpan& span,
                                      Sound& sound, std::uint64_t room_bytes);
  // Decodes a clip's packets into the window; a stream of a file, which may be too long if the
  // `whole` of it is wanted. False: there is no room.
  Result<bool> decode_packets(Bytes bytes, const MediaClip& clip, const ClipSpan& span);
  Result<bool> decode_stream(Bytes bytes, const StreamChoice& choice, bool whole);
  Status make_packet(Bytes bytes, const MediaPacket& packet);
  detail::Failure too_long() const;
  Status check_length(const Sound& sound) const;
  Status check_channels(int channels) const;

  const AudioOptions& options_;
  AudioDecoder decoder_;
  SoundWindow window_;
  AvPtr<AVPacket> packet_;
  AvPtr<AVBufferRef> packet_bytes_;  // grows, and is kept
  AvPtr<AVCodecParameters> parameters_;
  std::vector<float> scratch_;
  Channels channels_;
};

}  // namespace spdld::media
