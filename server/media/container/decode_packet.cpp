// SPDX-License-Identifier: Apache-2.0
#include "media/container/decode_packet.h"

#include <cstring>

#include "base/memory/no_memory.h"
#include "media/container/codecs.h"

namespace spdld::media {

Result<AvPtr<AVFrame>> decode_packet(const AVCodecParameters& codec,
                                     std::span<const std::byte> packet, std::int64_t max_pixels) {
  constexpr std::size_t kLargestPacket = 64 << 20;
  const MediaCodec* known = find_media_codec(avcodec_get_name(codec.codec_id));
  if (known == nullptr || packet.empty() || packet.size() > kLargestPacket) return nullptr;
  auto context = open_decoder(known->decoder, codec, {0, 1}, max_pixels);
  if (!context) {
    if (context.error().code() == kNoMemory) return tl::unexpected(std::move(context).error());
    return nullptr;
  }
  const AvPtr<AVPacket> input(av_packet_alloc());
  AvPtr<AVFrame> frame(av_frame_alloc());
  if (input == nullptr || frame == nullptr ||
      av_new_packet(input.get(), static_cast<int>(packet.size())) < 0)
    return tl::unexpected<Status>(no_memory("the first packet of a stream", packet.size()));
  std::memcpy(input->data, packet.data(), packet.size());
  input->flags = AV_PKT_FLAG_KEY;
  if (avcodec_send_packet(context->get(), input.get()) < 0) return nullptr;
  int received = avcodec_receive_frame(context->get(), frame.get());
  if (received == AVERROR(EAGAIN)) {
    // It waits for pictures that may come before this one; there are none.
    avcodec_send_packet(context->get(), nullptr);
    received = avcodec_receive_frame(context->get(), frame.get());
  }
  if (received < 0) return nullptr;
  return frame;
}

}  // namespace spdld::media
