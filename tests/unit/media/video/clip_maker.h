// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "op/media.h"
#include "op/video.h"

namespace spdld::media::test {

// A file's first stream of video as the prober finds it, from which clips are cut as a source cuts
// them.
class ClipMaker {
 public:
  // `file`: whole, and alive as long as clips of it are.
  explicit ClipMaker(std::span<const std::byte> file);

  // Times of its frames, ascending.
  const std::vector<std::int64_t>& times() const { return times_; }
  StreamInfo& stream() { return stream_; }
  std::vector<MediaPacket>& packets() { return packets_; }

  // The clip of these frames, with the packets of the groups of pictures that it needs, and the
  // bytes of these packets.
  struct Cut {
    MediaClip clip;
    std::vector<std::byte> bytes;
  };
  Cut cut(const std::vector<std::int64_t>& frames) const;
  Cut whole() const { return cut(times_); }
  // The same as the demuxer is to take it out of the whole file.
  Cut demuxed(const std::vector<std::int64_t>& frames) const;

 private:
  std::span<const std::byte> file_;
  StreamInfo stream_;
  std::vector<MediaPacket> packets_;
  std::vector<std::int64_t> times_;
};

// Frames one behind the other, as the decoder gives them.
struct Frames {
  std::vector<std::int64_t> times;
  std::vector<std::vector<std::uint8_t>> pixels;
};

// All the frames of a clip, in the order of MediaClip::frames; of each, `region`, or all.
Result<Frames> frames_of(VideoDecoder& decoder, const MediaClip& clip,
                         std::span<const std::byte> bytes, int channels = 3,
                         const Rect& region = {});

// How the pixels of a frame differ from those that another program made of it.
struct Difference {
  int most = 0;            // levels
  std::size_t values = 0;  // that differ at all
};
// `expected` has at least as many values.
Difference difference(std::span<const std::uint8_t> pixels, std::span<const std::byte> expected);

// Whether the frames, one behind the other, are `expected` within one level.
void expect_near(const Frames& frames, std::span<const std::byte> expected);

}  // namespace spdld::media::test
