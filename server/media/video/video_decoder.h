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
#include "media/container/demuxer.h"
#include "media/container/ffmpeg.h"
#include "media/image/upright_rows.h"
#include "media/video/disposable.h"
#include "media/video/frame_marks.h"
#include "media/video/packet_plan.h"
#include "media/video/yuv_rows.h"
#include "op/video.h"

namespace spdld::media {

// The most that a clip of a video may cost. Checked before memory is taken.
struct VideoLimits {
  std::int64_t max_pixels = 8192LL * 8192;  // of a picture
  std::int64_t max_frames = 65536;          // decoded for one clip
};

// One worker's decoder of clips. Its codec context is kept from clip to clip as long as streams are
// encoded alike, and so are its frames and scratch; in steady state nothing of ours is allocated.
// States: closed, then open from a successful open() on; next() decodes on.
class ClipDecoder final : public VideoDecoder {
 public:
  // Frames are given the same pixels whatever `mark` is (frame_marks.h).
  ClipDecoder(int channels, VideoLimits limits, std::uint64_t mark = kFrameMark)
      : channels_(channels), limits_(limits), mark_(mark) {}
  ClipDecoder(const ClipDecoder&) = delete;
  ClipDecoder& operator=(const ClipDecoder&) = delete;

  Result<Size> open(const MediaClip& clip, std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override;
  Result<bool> next() override;
  std::int64_t pts() const override { return pts_; }
  std::int64_t duration() const override { return duration_; }
  Status read(const Rect& region, RowSink& rows) override;

 private:
  // The pixels of a frame as it is stored.
  class StoredRows;

  Status plan_packets();
  Status list_demuxed();
  Status open_codec();
  // Gives the decoder a packet, or tells it that there are no more. False: there was nothing left
  // to give.
  Result<bool> feed();
  Status load_packet(std::size_t i);
  Status send(const AVPacket* packet);
  // Returns what FFmpeg's call does; what it reports as an error is added to `report_`.
  template <typename Call>
  int call(const Call& ffmpeg);
  // Whether it reported what must be damage.
  tl::unexpected<Status> give_up(Status status);
  // Whether the frame that has come out is one that is wanted; an error if it is damaged.
  Result<bool> take();
  Status check_frame() const;
  Status fail(int error) const;
  Status fail(const std::string& why) const;
  void restart_codec();
  void close_codec();

  const int channels_;
  const VideoLimits limits_;
  const std::uint64_t mark_;

  // The clip at hand.
  const MediaClip* clip_ = nullptr;
  std::span<const std::byte> bytes_;
  std::span<const MediaPacket> packets_;
  UprightRows::Picture stored_;
  std::vector<std::int64_t> wanted_;  // ascending
  std::vector<std::uint8_t> given_;   // of each of them
  std::size_t left_ = 0;              // that were not given
  Disposable disposable_;
  bool leaves_traces_ = true;  // in the context: its packets bring parameters or recovery points
  PacketPlan plan_;
  std::size_t next_packet_ = 0;
  bool is_trying_ = false;            // the packet given last may need pictures that are not there
  bool is_beginning_ = false;         // there is none before the packet given last
  bool is_gradual_ = false;           // StreamInfo::refreshes_gradually, or as its packets tell
  std::string report_;                // FFmpeg's first
  std::int64_t begin_pts_ = kNoTime;  // of the packet with which it began last
  // Pictures before this time may be damaged: the decoder began behind pictures that they refer to.
  std::int64_t whole_from_ = kNoTime;
  std::int64_t fed_pts_ = kNoTime;  // of the packet given last, for messages
  std::int64_t pts_ = kNoTime;
  std::int64_t duration_ = 0;
  VideoPicture picture_;

  // For a clip whose packets must be taken out of the whole file.
  std::unique_ptr<MemoryReader> reader_;
  std::optional<Demuxer> demuxer_;
  std::size_t demuxed_ = 0;
  std::vector<MediaPacket> listed_;

  std::shared_ptr<const CodecParameters> codec_;  // that the context was opened for
  AvPtr<AVCodecContext> context_;
  bool has_traces_ = true;    // of the clip that it decoded last
  bool is_fresh_ = true;      // the context has seen no packet since it was opened or flushed
  bool numbers_all_ = false;  // the stream's pictures have numbers, of which none is left out
  AvPtr<AVFrame> frame_;
  AvPtr<AVPacket> packet_;
  AvPtr<AVBufferRef> input_;  // what packets refer to; grows, and is kept
  YuvRows rows_;
  UprightRows upright_;
};

}  // namespace spdld::media
