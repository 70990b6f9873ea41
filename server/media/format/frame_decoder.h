// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "media/container/ffmpeg.h"
#include "media/image/row_converter.h"

namespace spdld::media {

// Decodes single images through one of FFmpeg's codecs, fed with the packet itself: no demuxer, no
// protocol. Owned by one format's decoder, used by its thread alone, ready for the next packet
// after any failure. The codec is opened when it is first needed.
class FrameDecoder {
 public:
  // `format` is what messages call it: "PNG".
  FrameDecoder(const char* codec, const char* format) : codec_(codec), format_(format) {}

  // Opens the codec, once.
  Status prepare();

  // Frames come filled with this byte from now on, so that what the codec leaves out is known. Only
  // after prepare().
  void fill_frames(std::uint8_t byte);

  // Whether FFmpeg decodes frames of this size at all; kResourceExhausted says that it does not,
  // whatever the limits.
  Status check_size(std::int64_t width, std::int64_t height) const;

  // What a frame of this size takes, with the columns and rows that FFmpeg adds to an image.
  static std::uint64_t frame_bytes(std::uint64_t width, std::uint64_t height,
                                   std::uint64_t pixel_bytes);

  // A packet of `bytes` bytes, which the caller fills before decode(). It is kept, and grows to the
  // largest.
  Result<std::uint8_t*> begin_packet(std::uint64_t bytes);

  // Decodes the packet. `frame_bytes` is what the frame takes, for the message when there is no
  // memory. Whatever FFmpeg reports as an error is kDataLoss.
  Status decode(std::uint64_t frame_bytes);

  // What decode() gave, until release() or the next decode().
  const AVFrame& frame() const { return *frame_; }
  void release() { av_frame_unref(frame_.get()); }

 private:
  const char* codec_;
  const char* format_;
  AvPtr<AVCodecContext> context_;
  AvPtr<AVFrame> frame_;
  AvPtr<AVPacket> packet_;
  AvPtr<AVBufferRef> input_;  // what the packet refers to; grows, and is kept
  std::size_t packet_bytes_ = 0;
  std::uint8_t fill_ = 0;
};

// Where the samples of FFmpeg's packed 8-bit and 16-bit formats lie; no step: it is none of them.
SampleLayout sample_layout(int av_format);

}  // namespace spdld::media
