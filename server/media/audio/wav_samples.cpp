// SPDX-License-Identifier: Apache-2.0
#include "media/audio/wav_samples.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/memory/no_memory.h"
#include "media/container/codecs.h"

namespace spdld::media {
namespace {

// The size that the header of the chunk that begins at `offset` tells; 0: it tells none.
Result<std::uint64_t> told_bytes(ByteReader& reader, std::uint64_t offset) {
  constexpr std::uint64_t kElsewhere = 0xFFFFFFFF;  // or nowhere
  std::array<std::byte, 8> head{};
  if (offset < head.size()) return 0;
  SPDLD_ASSIGN(const std::size_t count, reader.read(offset - head.size(), head));
  if (count < head.size() || std::memcmp(head.data(), "data", 4) != 0) return 0;
  std::uint64_t size = 0;
  for (std::size_t k = 8; k-- > 4;) size = size << 8 | std::to_integer<std::uint64_t>(head[k]);
  return size == kElsewhere ? 0 : size;
}

// Whether another chunk of samples follows the first, as FFmpeg would go on with it.
Result<bool> has_more_data(ByteReader& reader, std::uint64_t offset) {
  constexpr int kMostChunks = 1000;
  for (int i = 0; i < kMostChunks; ++i) {
    std::array<std::byte, 8> head{};
    SPDLD_ASSIGN(const std::size_t count, reader.read(offset, head));
    if (count < head.size()) return false;
    if (std::memcmp(head.data(), "data", 4) == 0) return true;
    std::uint64_t size = 0;
    for (std::size_t k = 8; k-- > 4;) size = size << 8 | std::to_integer<std::uint64_t>(head[k]);
    offset += 8 + size + size % 2;
  }
  return true;
}

}  // namespace

Result<std::optional<WavSamples>> wav_samples(Demuxer& demuxer, ByteReader& reader) {
  if (!demuxer.is_format("wav") || demuxer.streams() != 1) return std::nullopt;
  const AVStream& stream = demuxer.stream(0);
  const AVCodecParameters& codec = *stream.codecpar;
  const int bits = av_get_exact_bits_per_sample(codec.codec_id);
  if (!is_pcm(avcodec_get_name(codec.codec_id)) || bits <= 0 || codec.block_align <= 0 ||
      codec.block_align != bits / 8 * codec.ch_layout.nb_channels)
    return std::nullopt;
  const AvPtr<AVPacket> packet(av_packet_alloc());
  if (packet == nullptr) return tl::unexpected<Status>(no_memory("a packet"));
  SPDLD_ASSIGN(const bool any, demuxer.read(*packet));
  if (!any) return WavSamples{};
  if (packet->pos < 0) return error(Code::kDataLoss, "corrupt wav file: no samples are found");
  WavSamples found;
  found.offset = static_cast<std::uint64_t>(packet->pos);
  const auto block = static_cast<std::uint64_t>(codec.block_align);
  const std::uint64_t there = (reader.size() - std::min(reader.size(), found.offset)) / block;
  SPDLD_ASSIGN(const std::uint64_t bytes, told_bytes(reader, found.offset));
  // Without a size in the header the samples go on to the file's end.
  const bool is_told = bytes > 0 || stream.duration > 0;
  const std::uint64_t told = bytes > 0             ? bytes / block
                             : stream.duration > 0 ? static_cast<std::uint64_t>(stream.duration)
                                                   : there;
  found.samples = std::min(there, told);
  found.cut_off = told > there;
  if (!found.cut_off && is_told) {
    const std::uint64_t end = found.offset + found.samples * block;
    SPDLD_ASSIGN(const bool more, has_more_data(reader, end + end % 2));
    if (more) {
      return error(Code::kInvalidArgument,
                   "the wav file's samples lie in several chunks, which is not read; rewrite it: "
                   "ffmpeg -i FILE NEW.wav");
    }
  }
  return found;
}

}  // namespace spdld::media
