// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "media/container/codecs.h"
#include "media/container/ffmpeg.h"
#include "media/probe/key_pictures.h"
#include "media/probe/packet_finder.h"
#include "media/probe/packet_samples.h"
#include "op/media.h"

namespace spdld::media {

// Collects what the packets of one stream tell, in the order in which the demuxer gives them. Used
// by one thread.
class StreamProbe {
 public:
  // Whether packets of this stream are decoded at all; attached pictures and thumbnails are not.
  static const MediaCodec* codec_of(const AVStream& stream);

  // `reader`: of the file; must outlive this.
  StreamProbe(const AVStream& stream, const MediaCodec& codec, ByteReader& reader,
              std::int64_t max_pixels);

  // `finder` says where the packet's bytes stand; null: at packet.pos, and the bytes are not there
  // to be looked at. An error is the reader's.
  Status add(const AVPacket& packet, PacketFinder* finder);
  // Whether add() looks at the bytes of every packet.
  bool needs_bytes() const;
  double seconds() const;  // between the first and the last time
  // Uncompressed samples that are one piece of the file; no packet is added then.
  void set_pcm(std::uint64_t offset, std::uint64_t samples);

  // How many samples the container says that the packets decode to, also those that are skipped.
  struct ToldSamples {
    std::int64_t least = 0;
    std::int64_t most = std::numeric_limits<std::int64_t>::max();
  };
  void set_told_samples(const ToldSamples& samples) { told_samples_ = samples; }

  // Before finish(), once all packets were added without their bytes: looks at which key pictures a
  // decoder can begin, which add() does otherwise. An error is the reader's.
  Status look_at_keys();

  // Ends the stream, and adds to `faults` what is wrong with it. False: it has no times to go by,
  // and is left out.
  bool finish(MediaStream& made, std::set<std::string>& faults);

 private:
  bool shown_needs_bytes() const;
  bool is_shown(const AVPacket& packet) const;
  Status count_samples(const AVPacket& packet, bool with_bytes, MediaPacket& made);
  // The packet's bytes, `with_bytes` or from the file, which are put into `memory` then.
  Result<std::span<const std::byte>> seen_bytes(const AVPacket& packet, bool with_bytes,
                                                std::vector<std::byte>& memory);
  Status look_at_sound(const AVPacket& packet, bool with_bytes);
  Status look_at_picture(const AVPacket& packet, bool with_bytes);
  Result<std::vector<std::byte>> head_of(const MediaPacket& packet);
  void leave_out_undecodable(std::set<std::string>& faults);
  void pass_time(const MediaPacket& packet);
  void fill_times();
  bool finish_video(std::set<std::string>& faults);
  bool finish_audio(std::set<std::string>& faults);
  void find_gap(std::int64_t pts, std::int64_t counted, std::int64_t& silence);
  int reorder_frames() const;

  const MediaCodec& codec_;
  const AVRational time_base_;           // the container's
  const AVCodecParameters& parameters_;  // of the stream, which the demuxer owns
  ByteReader& reader_;
  const std::int64_t max_pixels_;
  MediaStream made_;
  PacketSamples sound_;
  KeyPictures keys_;
  bool in_place_ = true;          // each packet's bytes stand in the file
  std::uint64_t block_ = 0;       // the place that the demuxer told of the last packet
  std::uint64_t after_last_ = 0;  // where the last packet's bytes end
  ToldSamples told_samples_;
  std::int64_t coded_samples_ = 0;
  std::uint32_t opus_skip_ = 0;  // samples that are cut off the first packets
  CutSamples cut_;
  std::int64_t first_time_ = kNoTime;
  std::int64_t last_time_ = kNoTime;
  int looks_ = 0;  // how often a packet may still be decoded to know what it becomes
  bool pcm_ = false;
  bool inexact_turn_ = false;
  bool cut_off_ = false;
  bool without_duration_ = false;
};

}  // namespace spdld::media
