// SPDX-License-Identifier: Apache-2.0
#include "media/format/webp_chunks.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "base/memory/no_memory.h"
#include "media/bytes/byte_order.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::size_t kRiffHeaderBytes = 8;
constexpr std::size_t kChunksAt = 12;
constexpr std::size_t kChunkHeaderBytes = 8;

struct DemuxerDeleter {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

// The TIFF block of the EXIF chunk. What is wrong with the chunks is libwebp's to say.
std::span<const std::byte> exif_of_riff(std::span<const std::byte> riff) {
  std::size_t at = kChunksAt;
  while (riff.size() - at >= kChunkHeaderBytes) {
    const std::size_t length = le32(riff, at + 4);
    const bool exif = text_of(riff.subspan(at, 4)) == "EXIF";
    at += kChunkHeaderBytes;
    if (length > riff.size() - at) break;
    if (exif) {
      constexpr std::string_view kPrefix = "Exif\0\0"sv;  // which some writers leave there
      const auto body = riff.subspan(at, length);
      return text_of(body).starts_with(kPrefix) ? body.subspan(kPrefix.size()) : body;
    }
    at += length;
    if (at < riff.size()) at += length % 2;
  }
  return {};
}

Result<WebPBitstreamFeatures> features_of(std::span<const std::byte> bytes) {
  WebPBitstreamFeatures features;
  switch (WebPGetFeatures(data_of(bytes), bytes.size(), &features)) {
    case VP8_STATUS_OK: return features;
    case VP8_STATUS_NOT_ENOUGH_DATA: return truncated("WebP", "whole header", bytes.size());
    default: return corrupt("WebP", "libwebp cannot read its header");
  }
}

Status read_first_frame(std::span<const std::byte> riff, WebpLayout& layout) {
  const WebPData data{data_of(riff), riff.size()};
  WebPDemuxState state = WEBP_DEMUX_DONE;
  const std::unique_ptr<WebPDemuxer, DemuxerDeleter> demuxer(WebPDemuxPartial(&data, &state));
  if (state == WEBP_DEMUX_PARSE_ERROR)
    return corrupt("WebP", "libwebp cannot read the frames of the animation");
  if (demuxer == nullptr) return no_memory("the frames of a WebP");
  WebPIterator frame;
  if (state != WEBP_DEMUX_DONE || WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0)
    return truncated("WebP", "whole animation", riff.size());
  layout.image = {frame.x_offset, frame.y_offset, frame.width, frame.height};
  // It lies in the file, which outlives the demuxer.
  layout.data = {reinterpret_cast<const std::byte*>(frame.fragment.bytes), frame.fragment.size};
  WebPDemuxReleaseIterator(&frame);
  return {};
}

}  // namespace

Result<WebpLayout> survey_webp(std::span<const std::byte> bytes) {
  if (bytes.size() < kChunksAt) return truncated("WebP", "whole header", bytes.size());
  const std::size_t size = le32(bytes, 4);
  if (size < kChunksAt - kRiffHeaderBytes) return corrupt("WebP", "it says that it has no data");
  if (size > bytes.size() - kRiffHeaderBytes) return truncated("WebP", "end", bytes.size());
  const auto riff = bytes.first(kRiffHeaderBytes + size);
  SPDLD_ASSIGN(WebPBitstreamFeatures features, features_of(riff));
  WebpLayout layout;
  layout.canvas = {features.width, features.height};
  layout.image = {0, 0, features.width, features.height};
  layout.alpha = features.has_alpha != 0;
  layout.data = riff;
  layout.exif = exif_of_riff(riff);
  if (features.has_animation != 0) {
    SPDLD_TRY(read_first_frame(riff, layout));
    SPDLD_ASSIGN(features, features_of(layout.data));
  }
  constexpr int kLossless = 2;
  layout.lossless = features.format == kLossless;
  return layout;
}

}  // namespace spdld::media
