// SPDX-License-Identifier: Apache-2.0
#include "media/probe/packet_samples.h"

#include <algorithm>
#include <array>
#include <utility>

#include "media/audio/mpeg_header.h"
#include "media/bytes/byte_order.h"

namespace spdld::media {
namespace {

using Bytes = std::span<const std::byte>;

// RFC 6716, 3.1 and 3.2: the first byte says how long a frame is and how many there are.
std::int64_t opus_samples(Bytes packet) {
  if (packet.empty()) return 0;
  const std::uint32_t config = byte_at(packet, 0) >> 3;
  std::int64_t frame = 0;  // at 48 kHz
  if (config < 12) {
    constexpr std::array<std::int64_t, 4> kSilk = {480, 960, 1920, 2880};
    frame = kSilk[config & 3];
  } else if (config < 16) {
    frame = (config & 1) != 0 ? 960 : 480;
  } else {
    frame = std::int64_t{120} << (config & 3);
  }
  switch (byte_at(packet, 0) & 3) {
    case 0: return frame;
    case 3: return packet.size() < 2 ? 0 : frame * (byte_at(packet, 1) & 63);
    default: return frame * 2;
  }
}

// The frame header of FLAC: the block size's code, and for two of the codes the size itself behind
// the frame's number.
std::int64_t flac_samples(Bytes packet) {
  if (packet.size() < 6 || byte_at(packet, 0) != 0xFF || (byte_at(packet, 1) & 0xFC) != 0xF8)
    return 0;
  const std::uint32_t code = byte_at(packet, 2) >> 4;
  if (code == 0) return 0;
  if (code == 1) return 192;
  if (code < 6) return std::int64_t{576} << (code - 2);
  if (code >= 8) return std::int64_t{256} << (code - 8);
  std::size_t number_bytes = 1;
  for (std::uint32_t bit = 0x80; number_bytes < 8 && (byte_at(packet, 4) & bit) != 0; bit >>= 1)
    if (bit != 0x80) ++number_bytes;
  const std::size_t size_at = 4 + number_bytes;
  if (packet.size() < size_at + 2) return 0;
  if (code == 6) return byte_at(packet, size_at) + 1;
  return (byte_at(packet, size_at) << 8 | byte_at(packet, size_at + 1)) + 1;
}

// Layer III has half as many samples below MPEG-1; Layer II always 1152.
std::int64_t mpeg_audio_samples(Bytes packet) {
  const std::uint32_t header = mpeg_audio_header(packet);
  if (header == 0) return 0;
  const bool mpeg1 = (header >> 19 & 3) == 3;
  switch (header >> 17 & 3) {
    case 1: return mpeg1 ? 1152 : 576;
    case 2: return 1152;
    default: return 384;
  }
}

// An ALAC frame whose size is not the usual one says so behind the element's tag.
std::int64_t alac_samples(Bytes packet, int frame_size) {
  if (packet.size() < 7) return packet.empty() ? 0 : frame_size;
  constexpr unsigned kHasSizeBit = 3 + 4 + 12;
  if ((byte_at(packet, kHasSizeBit / 8) >> (7 - kHasSizeBit % 8) & 1) == 0) return frame_size;
  constexpr unsigned kSizeBit = kHasSizeBit + 1 + 2 + 1;
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < 5 && kSizeBit / 8 + i < packet.size(); ++i)
    bits = bits << 8 | byte_at(packet, kSizeBit / 8 + i);
  if (packet.size() < kSizeBit / 8 + 5) return 0;
  return static_cast<std::int64_t>(bits >> (8 - kSizeBit % 8) & 0xFFFFFFFFU);
}

}  // namespace

PacketSamples::PacketSamples(const AVCodecParameters& codec)
    : codec_(codec.codec_id), frame_size_(codec.frame_size) {
  block_bytes_ = av_get_exact_bits_per_sample(codec_) / 8 * codec.ch_layout.nb_channels;
  if (codec_ == AV_CODEC_ID_VORBIS && codec.extradata_size > 0)
    vorbis_.reset(av_vorbis_parse_init(codec.extradata, codec.extradata_size));
  constexpr int kFrameSizeAt = 12;
  if (codec_ == AV_CODEC_ID_ALAC && codec.extradata_size >= kFrameSizeAt + 4) {
    frame_size_ = 0;
    for (int i = 0; i < 4; ++i) frame_size_ = frame_size_ << 8 | codec.extradata[kFrameSizeAt + i];
  }
}

bool PacketSamples::needs_bytes() const {
  return block_bytes_ == 0 && codec_ != AV_CODEC_ID_AAC && codec_ != AV_CODEC_ID_AC3;
}

std::int64_t PacketSamples::of(std::span<const std::byte> packet) {
  const bool first = std::exchange(first_, false);
  switch (codec_) {
    case AV_CODEC_ID_AAC: return frame_size_ > 0 ? frame_size_ : 1024;
    case AV_CODEC_ID_AC3: return 1536;
    case AV_CODEC_ID_MP2:
    case AV_CODEC_ID_MP3: return mpeg_audio_samples(packet);
    case AV_CODEC_ID_OPUS: return opus_samples(packet);
    case AV_CODEC_ID_FLAC: return flac_samples(packet);
    case AV_CODEC_ID_ALAC: return alac_samples(packet, frame_size_);
    case AV_CODEC_ID_VORBIS: {
      if (vorbis_ == nullptr) return 0;
      const int samples =
          av_vorbis_parse_frame(vorbis_.get(), data_of(packet), static_cast<int>(packet.size()));
      // The first block only begins the overlap.
      return first || samples < 0 ? 0 : samples;
    }
    default: return block_bytes_ > 0 ? static_cast<std::int64_t>(packet.size()) / block_bytes_ : 0;
  }
}

CutSamples::Kept CutSamples::of(const MediaPacket& packet) {
  if (packet.skip_samples > 0 || packet.discard_samples > 0) pending_ = packet.skip_samples;
  Kept kept{.skipped = std::min(pending_, packet.duration)};
  pending_ -= kept.skipped;
  if (packet.discard) return kept;
  kept.samples = packet.duration - kept.skipped;
  if (std::int64_t{packet.discard_samples} <= kept.samples) kept.samples -= packet.discard_samples;
  return kept;
}

}  // namespace spdld::media
