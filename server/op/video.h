// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/media.h"
#include "op/op.h"

namespace spdld {

// How the frames of a clip lie in a row of a batch: T is the time. Repeated clips of one item stand
// before that.
enum class VideoLayout { kTchw, kCthw, kThwc };

// Turns clips of video files into pixels. One per worker, made by DecodeVideoOp: owns codec
// contexts and scratch, and is reused from clip to clip. Not thread-safe. After an error it is
// ready for the next open().
class VideoDecoder : public RegionReader {
 public:
  // Checks the limits; the size is that of the upright frames. Both arguments must live until the
  // next open(). Errors are the data's: kDataLoss (damaged), kResourceExhausted (over a limit),
  // kInvalidArgument (nothing that is read); or kNoMemory (base/memory/no_memory.h), also from
  // next() and read(). It takes little memory itself.
  virtual Result<Size> open(const MediaClip& clip, std::span<const std::byte> bytes) = 0;

  // The memory that next() and read() take at most for the clip that open() saw.
  virtual std::uint64_t read_bytes() const = 0;

  // Decodes on to another of MediaClip::frames, each time once, whatever their order there; false:
  // all were given. A frame that cannot be decoded as it was encoded is an error, never left out
  // and never made up.
  virtual Result<bool> next() = 0;
  // The frame that next() found has this time and is shown for so long, in the stream's time base;
  // 0: that is not told.
  virtual std::int64_t pts() const = 0;
  virtual std::int64_t duration() const = 0;

  // Gives `region` of that frame, any number of times. Pixels are the same, byte for byte, as those
  // of the whole frame.
  Status read(const Rect& region, RowSink& rows) override = 0;
};

class DecodeVideoOp : public Op {
 public:
  explicit DecodeVideoOp(std::string field) : Op({std::move(field)}) {}
  Status plan(FieldTable& table, const StageKey& key, std::string& doubt) const override;
  virtual std::unique_ptr<VideoDecoder> make_decoder() const = 0;
  virtual int channels() const = 0;
  virtual VideoLayout layout() const = 0;
  // A picture of more is refused, and a clip for which more frames must be decoded.
  virtual std::int64_t max_pixels() const = 0;
  virtual std::int64_t max_frames() const = 0;
  // Fields that get when each frame is shown and for how long, in seconds; empty: none.
  virtual const std::string& pts_field() const = 0;
  virtual const std::string& duration_field() const = 0;
};

}  // namespace spdld
