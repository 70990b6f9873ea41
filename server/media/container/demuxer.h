// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/status.h"
#include "media/bytes/byte_reader.h"
#include "media/container/ffmpeg.h"
#include "media/container/media_io.h"
#include "media/container/mov_boxes.h"

namespace spdld::media {

// The most that a media file may cost, as far as its headers tell. Checked before memory is taken.
struct MediaLimits {
  int max_streams = 128;
  std::uint64_t max_packets = 8'000'000;      // of all streams
  std::int64_t max_pixels = 8192LL * 8192;    // of one picture
  std::int64_t max_seconds = 24LL * 60 * 60;  // between the first and the last time
};

// Takes a file of video or sound apart, through FFmpeg fenced in: it reads the ByteReader that it
// is given and opens nothing else; no protocol, no decoder, and of the demuxers only those of an
// allow-list can be reached, chosen by the file's content alone. Used by one thread at a time, with
// no FfmpegReports alive. The reader must outlive it.
class Demuxer {
 public:
  // Reads the headers. kInvalidArgument: no format that is read, a playlist, or a file whose media
  // stand in another one; kDataLoss: damaged; kResourceExhausted: over a limit; kCancelled once
  // `stop` is asked for; the reader's errors as they are.
  static Result<Demuxer> open(ByteReader& reader, const MediaLimits& limits = {},
                              std::stop_token stop = {});

  // FFmpeg's name of the format: "mov,mp4,m4a,3gp,3g2,mj2".
  std::string_view format() const { return context_->iformat->name; }
  bool is_format(std::string_view name) const;  // one of those in format()
  const AVFormatContext& context() const { return *context_; }
  int streams() const { return static_cast<int>(context_->nb_streams); }
  const AVStream& stream(int index) const { return *context_->streams[index]; }

  // From here on the media data of an mp4 file are not read. Packets are given as the container
  // has them, with zeros in place of their bytes.
  void skip_media();
  // Whether reading the file failed, which ends the demuxer.
  bool is_broken() const { return !io_->status().ok(); }

  // From here on read() gives the packets of this stream alone, also where the file has streams
  // that show up later.
  void choose(int index);
  // Reads the next packet into `packet`, whose old content is given up; false: there are no more.
  // A damaged packet is given as it is; FFmpeg marks it with AV_PKT_FLAG_CORRUPT.
  Result<bool> read(AVPacket& packet);

 private:
  Demuxer() = default;
  Status open_context(const AVInputFormat& format, const MediaLimits& limits);
  bool is_complete() const;
  Status check_streams(const MediaLimits& limits) const;

  std::unique_ptr<MediaIo> io_;  // before what reads from it
  AvPtr<AVFormatContext> context_;
  MovBoxes boxes_;             // none of other formats
  std::optional<int> chosen_;  // the stream that choose() was told
};

}  // namespace spdld::media
