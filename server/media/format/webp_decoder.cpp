// SPDX-License-Identifier: Apache-2.0
#include "media/format/webp_decoder.h"

#include <webp/decode.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/memory/no_memory.h"
#include "media/bytes/byte_order.h"
#include "media/image/exif.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

Rect intersect(const Rect& a, const Rect& b) {
  const int x = std::max(a.x, b.x);
  const int y = std::max(a.y, b.y);
  const int right = std::min(a.x + a.width, b.x + b.width);
  const int bottom = std::min(a.y + a.height, b.y + b.height);
  if (right <= x || bottom <= y) return {};
  return {x, y, right - x, bottom - y};
}

// What libwebp must decode for `part` of a lossy image to come out as in a full decode. A chroma
// sample is for two pixels by two, and a crop begins with one; the upsampling takes its neighbours,
// and at a crop's edge repeats it, so that the outermost pixels of a crop differ.
Rect with_neighbours(const Rect& part, Size image) {
  const int x = std::max(0, part.x / 2 * 2 - 2);
  const int y = std::max(0, part.y / 2 * 2 - 2);
  return {x, y, std::min(image.width, part.x + part.width + 2) - x,
          std::min(image.height, part.y + part.height + 2) - y};
}

Status failure_of(VP8StatusCode code, std::size_t file_bytes, std::uint64_t read_bytes) {
  switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY: return no_memory("the pixels of a WebP", read_bytes);
    case VP8_STATUS_UNSUPPORTED_FEATURE: return unsupported("WebP", "libwebp does not read it");
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED: return truncated("WebP", "last pixels", file_bytes);
    default: return corrupt("WebP", "libwebp cannot decode its pixels");
  }
}

}  // namespace

Result<RasterInfo> WebpDecoder::open(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(layout_, survey_webp(bytes));
  SPDLD_TRY(limits_.check_pixels(layout_.canvas.width, layout_.canvas.height));
  const auto width = static_cast<std::uint64_t>(layout_.image.width);
  const std::uint64_t pixels = width * static_cast<std::uint64_t>(layout_.image.height);
  // Rows on their way through loop filter and upsampling (dec/frame_dec.c), or all pixels
  // (dec/vp8l_dec.c), as which the alpha of a lossy image is decoded, too.
  read_bytes_ = width * 256 + (layout_.lossless ? pixels * 4 : 0);
  if (layout_.alpha && !layout_.lossless) read_bytes_ += pixels * 5;
  read_bytes_ += pixels * static_cast<std::uint64_t>(channels()) * 5 / 4;
  StoredPixels stored;
  if (layout_.alpha) stored.alpha = StoredPixels::Alpha::kChannel;
  return RasterInfo{layout_.canvas, Orientation::from_exif(exif_orientation(layout_.exif)), stored};
}

Status WebpDecoder::read(const Rect& region, RowSink& rows) {
  const Rect& image = layout_.image;
  const Rect shown = intersect(region, image);
  const Rect part{shown.x - image.x, shown.y - image.y, shown.width, shown.height};
  const Rect decoded = layout_.lossless ? part : with_neighbours(part, image.size());
  if (shown.width > 0) SPDLD_TRY(decode(decoded));

  const auto step = static_cast<std::size_t>(channels());
  const std::size_t stride = static_cast<std::size_t>(decoded.width) * step;
  const std::size_t shown_bytes = static_cast<std::size_t>(shown.width) * step;
  const std::size_t cut_bytes = static_cast<std::size_t>(part.x - decoded.x) * step;
  const std::size_t canvas_bytes = static_cast<std::size_t>(region.width) * step;
  DecodedRows format{.samples = {.step = channels(), .green = 1, .blue = 2}};
  if (channels() == 4) format.samples.alpha = 3;
  RowGiver giver({mode_, format}, region.width, row_, rows);
  const bool covered = shown == region;
  auto* canvas = covered ? nullptr : reinterpret_cast<std::uint8_t*>(canvas_.resize(canvas_bytes));
  for (int y = 0; y < region.height; ++y) {
    const int shown_y = region.y + y - shown.y;
    const bool has_pixels = shown.width > 0 && shown_y >= 0 && shown_y < shown.height;
    const auto* pixels = reinterpret_cast<const std::uint8_t*>(pixels_.data());
    if (has_pixels)
      pixels += static_cast<std::size_t>(part.y - decoded.y + shown_y) * stride + cut_bytes;
    if (!covered) {
      std::memset(canvas, 0, canvas_bytes);
      if (has_pixels)
        std::memcpy(canvas + static_cast<std::size_t>(shown.x - region.x) * step, pixels,
                    shown_bytes);
      pixels = canvas;
    }
    giver.row(y, pixels);
  }
  return {};
}

Status WebpDecoder::decode(const Rect& part) {
  WebPDecoderConfig config;
  SPDLD_CHECK(WebPInitDecoderConfig(&config) != 0);
  const bool whole = part.size() == layout_.image.size();
  config.options.use_cropping = whole ? 0 : 1;
  config.options.crop_left = part.x;
  config.options.crop_top = part.y;
  config.options.crop_width = part.width;
  config.options.crop_height = part.height;
  const auto stride = static_cast<std::size_t>(part.width) * static_cast<std::size_t>(channels());
  const std::size_t bytes = stride * static_cast<std::size_t>(part.height);
  config.output.colorspace = channels() == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = reinterpret_cast<std::uint8_t*>(pixels_.resize(bytes));
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = bytes;
  const VP8StatusCode code = WebPDecode(data_of(layout_.data), layout_.data.size(), &config);
  if (code == VP8_STATUS_OK) return {};
  return failure_of(code, layout_.data.size(), read_bytes_);
}

}  // namespace spdld::media
