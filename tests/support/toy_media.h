// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "source/media_index/media_prober.h"

namespace spdld::test {

// A media file that a test lays out packet by packet: a head of plain text that tells all of them,
// and their bytes, each of which says of which packet it is.
class ToyMedia {
 public:
  struct Stream {
    MediaStream media;
    CodecParameters codec;
  };

  // Their numbers in the file.
  int add(Stream stream) {
    stream.media.info.index = static_cast<int>(streams_.size());
    streams_.push_back(std::move(stream));
    return static_cast<int>(streams_.size()) - 1;
  }
  int add_video(int width = 320, int height = 240, std::int64_t ticks_per_second = 25) {
    Stream stream;
    stream.media.info.kind = StreamInfo::Kind::kVideo;
    stream.media.info.time_base = {1, ticks_per_second};
    stream.codec.codec = "toy_video";
    stream.codec.width = width;
    stream.codec.height = height;
    return add(std::move(stream));
  }
  int add_sound(std::uint64_t samples, int rate = 8000, const std::string& codec = "aac") {
    Stream stream;
    stream.media.info.kind = StreamInfo::Kind::kAudio;
    stream.media.info.time_base = {1, rate};
    stream.media.info.samples = samples;
    stream.codec.codec = codec;
    stream.codec.sample_rate = rate;
    stream.codec.channels = 1;
    return add(std::move(stream));
  }
  Stream& stream(int number) { return streams_[static_cast<std::size_t>(number)]; }

  // The next packet of the file.
  void put(int stream, MediaPacket packet) { packets_.emplace_back(stream, packet); }

  // Frames a tick apart in groups of `gop`, each of which begins with a key frame; `b`: between the
  // frames that others are made of there are two that are decoded after them. In an open group
  // those before a key frame are decoded behind it.
  void put_frames(int stream, std::int64_t frames, std::int64_t gop, bool b = false,
                  bool open = false, std::uint32_t bytes = 40) {
    std::vector<std::int64_t> order;
    std::vector<std::int64_t> waiting;
    const auto flush = [&] {
      order.insert(order.end(), waiting.begin(), waiting.end());
      waiting.clear();
    };
    for (std::int64_t frame = 0; frame < frames; ++frame) {
      const bool key = frame % gop == 0;
      if (key && !open) flush();
      const bool anchor = !b || key || frame % gop % 3 == 0;
      if (!anchor) {
        waiting.push_back(frame);
        continue;
      }
      order.push_back(frame);
      flush();
    }
    flush();
    for (std::size_t i = 0; i < order.size(); ++i)
      put(stream, {.size_bytes = bytes + static_cast<std::uint32_t>(order[i] % 7),
                   .key = order[i] % gop == 0,
                   .pts = order[i],
                   .dts = static_cast<std::int64_t>(i) - 2,
                   .duration = 1});
  }
  // Of `each` samples, until the stream's are complete.
  void put_sound(int stream, std::int64_t each, std::uint32_t bytes = 30) {
    const auto samples =
        static_cast<std::int64_t>(streams_[static_cast<std::size_t>(stream)].media.info.samples);
    for (std::int64_t at = 0; at < samples; at += each)
      put(stream, {.size_bytes = bytes, .key = true, .pts = at, .dts = at, .duration = each});
  }

  std::string bytes() const {
    std::ostringstream head;
    std::string body;
    for (const Stream& stream : streams_) {
      const StreamInfo& info = stream.media.info;
      head << "stream " << static_cast<int>(info.kind) << ' ' << static_cast<int>(info.access)
           << ' ' << info.time_base.num << ' ' << info.time_base.den << ' ' << info.rotation << ' '
           << info.samples << ' ' << stream.media.is_default << ' '
           << (stream.media.language.empty() ? "-" : stream.media.language) << ' '
           << stream.codec.codec << ' ' << stream.codec.width << ' ' << stream.codec.height << ' '
           << stream.codec.sample_rate << ' ' << stream.codec.channels << ' '
           << stream.codec.block_align << ' ' << info.is_off_clock << ' '
           << info.refreshes_gradually << '\n';
      for (const SoundGap& gap : stream.media.gaps)
        head << "gap " << info.index << ' ' << gap.before << ' ' << gap.samples << '\n';
    }
    for (const auto& [stream, packet] : packets_) {
      head << "packet " << stream << ' ' << packet.pts << ' ' << packet.dts << ' '
           << packet.duration << ' ' << packet.key << ' ' << packet.discard << ' '
           << packet.skip_samples << ' ' << packet.size_bytes << '\n';
      const std::string text = name(stream, packet.pts);
      for (std::uint32_t i = 0; i < packet.size_bytes; ++i) body += text[i % text.size()];
    }
    head << "end\n";
    return "toy\n" + head.str() + body;
  }
  // What a packet's bytes say, over and over.
  static std::string name(int stream, std::int64_t pts) {
    return std::to_string(stream) + ":" + std::to_string(pts) + ";";
  }

 private:
  std::vector<Stream> streams_;
  std::vector<std::pair<int, MediaPacket>> packets_;
};

// Reads what ToyMedia writes.
class ToyProber final : public source::MediaProber {
 public:
  Result<MediaFile> probe(source::FileBytes& file, std::stop_token stop) const override {
    ++probed;
    if (stop.stop_requested()) return error(Code::kCancelled, "stopped");
    if (before) before(file.path());
    std::string text(file.size(), '\0');
    SPDLD_ASSIGN(const std::size_t count, file.read(0, text));
    text.resize(count);
    if (!text.starts_with("toy\n"))
      return error(Code::kInvalidArgument, file.path() + ": it is no toy");
    std::istringstream in(text.substr(4));
    MediaFile media;
    media.format = "toy";
    std::vector<std::pair<std::size_t, MediaPacket>> packets;
    for (std::string word; in >> word && word != "end";) {
      if (word == "stream") {
        MediaStream& stream = media.streams.emplace_back();
        CodecParameters codec;
        int kind = 0;
        int access = 0;
        in >> kind >> access >> stream.info.time_base.num >> stream.info.time_base.den >>
            stream.info.rotation >> stream.info.samples >> stream.is_default >> stream.language >>
            codec.codec >> codec.width >> codec.height >> codec.sample_rate >> codec.channels >>
            codec.block_align >> stream.info.is_off_clock >> stream.info.refreshes_gradually;
        stream.info.kind = static_cast<StreamInfo::Kind>(kind);
        stream.info.access = static_cast<StreamInfo::Access>(access);
        stream.info.index = static_cast<int>(media.streams.size()) - 1;
        if (stream.language == "-") stream.language.clear();
        stream.info.codec = std::make_shared<const CodecParameters>(codec);
      } else if (word == "gap") {
        std::size_t stream = 0;
        SoundGap gap;
        in >> stream >> gap.before >> gap.samples;
        media.streams.at(stream).gaps.push_back(gap);
      } else if (word == "packet") {
        std::size_t stream = 0;
        MediaPacket packet;
        in >> stream >> packet.pts >> packet.dts >> packet.duration >> packet.key >>
            packet.discard >> packet.skip_samples >> packet.size_bytes;
        packets.emplace_back(stream, packet);
      }
    }
    if (!in) return error(Code::kDataLoss, file.path() + " is cut off");
    std::uint64_t offset = 4 + static_cast<std::uint64_t>(in.tellg()) + 1;
    for (auto& [number, packet] : packets) {
      MediaStream& stream = media.streams.at(number);
      packet.offset = offset;
      offset += packet.size_bytes;
      if (stream.info.access == StreamInfo::Access::kPcm) {
        if (stream.info.pcm_offset == 0) stream.info.pcm_offset = packet.offset;
        continue;
      }
      if (stream.info.kind == StreamInfo::Kind::kVideo && !packet.discard)
        stream.frame_pts.push_back(packet.pts);
      if (stream.info.access == StreamInfo::Access::kPackets) stream.packets.push_back(packet);
    }
    if (offset > file.size()) return error(Code::kDataLoss, file.path() + " is cut off");
    for (MediaStream& stream : media.streams)
      std::sort(stream.frame_pts.begin(), stream.frame_pts.end());
    return media;
  }

  std::string version() const override { return number; }

  mutable std::atomic<int> probed = 0;
  std::string number = "toy 1";
  std::function<void(const std::string& path)> before = {};
};

}  // namespace spdld::test
