// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/clip_maker.h"

extern "C" {
#include <libavutil/pixdesc.h>
}

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "media/demuxer.h"

namespace spdld::media::test {
namespace {

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

std::shared_ptr<const CodecParameters> parameters_of(const AVCodecParameters& codec) {
  auto made = std::make_shared<CodecParameters>();
  made->codec = avcodec_get_name(codec.codec_id);
  made->tag = codec.codec_tag;
  const auto* const extra = reinterpret_cast<const std::byte*>(codec.extradata);
  if (codec.extradata_size > 0) made->extradata.assign(extra, extra + codec.extradata_size);
  made->profile = codec.profile;
  made->level = codec.level;
  made->bits_per_coded_sample = codec.bits_per_coded_sample;
  made->bits_per_raw_sample = codec.bits_per_raw_sample;
  made->width = codec.width;
  made->height = codec.height;
  made->pixel_format = text_of(av_get_pix_fmt_name(static_cast<AVPixelFormat>(codec.format)));
  made->color_range = text_of(av_color_range_name(codec.color_range));
  made->color_space = text_of(av_color_space_name(codec.color_space));
  made->chroma_location = text_of(av_chroma_location_name(codec.chroma_location));
  made->reorder_frames = codec.video_delay;
  return made;
}

class Collector final : public RowSink {
 public:
  Collector(std::vector<std::uint8_t>& pixels, std::size_t row_bytes)
      : pixels_(pixels), row_bytes_(row_bytes) {}
  void row(int y, const std::uint8_t* row) override {
    std::memcpy(pixels_.data() + static_cast<std::size_t>(y) * row_bytes_, row, row_bytes_);
  }

 private:
  std::vector<std::uint8_t>& pixels_;
  std::size_t row_bytes_;
};

}  // namespace

ClipMaker::ClipMaker(std::span<const std::byte> file) : file_(file) {
  MemoryReader reader(file);
  Result<Demuxer> demuxer = Demuxer::open(reader);
  if (!demuxer) {
    ADD_FAILURE() << demuxer.error().message();
    return;
  }
  int index = 0;
  while (demuxer->stream(index).codecpar->codec_type != AVMEDIA_TYPE_VIDEO) ++index;
  const AVStream& stream = demuxer->stream(index);
  demuxer->choose(index);
  const AvPtr<AVPacket> packet(av_packet_alloc());
  for (;;) {
    const Result<bool> more = demuxer->read(*packet);
    if (!more) ADD_FAILURE() << more.error().message();
    if (!more || !*more) break;
    MediaPacket made{.size_bytes = static_cast<std::uint32_t>(packet->size),
                     .key = (packet->flags & AV_PKT_FLAG_KEY) != 0,
                     .discard = (packet->flags & AV_PKT_FLAG_DISCARD) != 0,
                     .pts = packet->pts,
                     .dts = packet->dts,
                     .duration = packet->duration};
    packets_.push_back(made);
    const auto* const data = reinterpret_cast<const std::byte*>(packet->data);
    data_.emplace_back(data, data + packet->size);
    if (!made.discard) times_.push_back(made.pts);
  }
  std::sort(times_.begin(), times_.end());
  stream_.index = index;
  stream_.time_base = {stream.time_base.num, stream.time_base.den};
  stream_.codec = parameters_of(*stream.codecpar);
}

ClipMaker::Cut ClipMaker::cut(const std::vector<std::int64_t>& frames) const {
  const std::set<std::int64_t> wanted(frames.begin(), frames.end());
  std::vector<std::uint8_t> needed(packets_.size(), 0);
  for (std::size_t i = 0; i < packets_.size(); ++i) {
    if (!wanted.contains(packets_[i].pts)) continue;
    // From the last key frame that is shown no later.
    std::size_t begin = i;
    while (begin > 0 && (!packets_[begin].key || packets_[begin].pts > packets_[i].pts)) --begin;
    for (std::size_t j = begin; j <= i; ++j) needed[j] = 1;
  }
  Cut cut;
  cut.clip.stream = stream_;
  cut.clip.frames = frames;
  bool gap = false;
  for (std::size_t i = 0; i < packets_.size(); ++i) {
    if (needed[i] == 0) {
      gap = !cut.clip.packets.empty();
      continue;
    }
    MediaPacket packet = packets_[i];
    packet.offset = cut.bytes.size();
    packet.gap = gap;
    gap = false;
    cut.clip.packets.push_back(packet);
    cut.bytes.insert(cut.bytes.end(), data_[i].begin(), data_[i].end());
  }
  return cut;
}

ClipMaker::Cut ClipMaker::demuxed(const std::vector<std::int64_t>& frames) const {
  Cut cut;
  cut.clip.stream = stream_;
  cut.clip.stream.access = StreamInfo::Access::kDemux;
  cut.clip.frames = frames;
  cut.bytes.assign(file_.begin(), file_.end());
  return cut;
}

Result<Frames> frames_of(VideoDecoder& decoder, const MediaClip& clip,
                         std::span<const std::byte> bytes, int channels, const Rect& region) {
  SPDLD_ASSIGN(const Size size, decoder.open(clip, bytes));
  const Rect part = region.width > 0 ? region : Rect{0, 0, size.width, size.height};
  Frames frames;
  frames.times = clip.frames;
  frames.pixels.resize(clip.frames.size());
  const std::size_t row_bytes = static_cast<std::size_t>(part.width * channels);
  for (;;) {
    SPDLD_ASSIGN(const bool found, decoder.next());
    if (!found) return frames;
    std::vector<std::uint8_t> pixels(row_bytes * static_cast<std::size_t>(part.height));
    Collector rows(pixels, row_bytes);
    SPDLD_TRY(decoder.read(part, rows));
    for (std::size_t i = 0; i < clip.frames.size(); ++i) {
      if (clip.frames[i] == decoder.pts()) frames.pixels[i] = pixels;
    }
  }
}

}  // namespace spdld::media::test
