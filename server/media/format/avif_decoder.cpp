// SPDX-License-Identifier: Apache-2.0
#include "media/format/avif_decoder.h"

#include <avif/avif.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "base/memory/no_memory.h"
#include "media/bytes/byte_order.h"
#include "media/image/exif.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

// What libavif may decode beyond the size that the file claims: tiles of a grid are larger than
// their share of the image.
constexpr std::uint64_t kTileMargin = 512;

// Whether the boxes of the file end with it.
bool is_whole(std::span<const std::byte> bytes) {
  std::uint64_t at = 0;
  while (at < bytes.size()) {
    const std::uint64_t left = bytes.size() - at;
    if (left < 8) return false;
    std::uint64_t size = be32(bytes, at);
    if (size == 0) return true;  // up to the file's end
    if (size == 1) {
      if (left < 16) return false;
      size = std::uint64_t{be32(bytes, at + 8)} << 32 | be32(bytes, at + 12);
    }
    if (size < 8) return true;  // wrong, which libavif says
    if (size > left) return false;
    at += size;
  }
  return true;
}

Status failure_of(avifResult result, const avifDecoder& decoder, std::size_t file_bytes) {
  std::string why = std::string("libavif says: ") + avifResultToString(result);
  const std::string_view details(decoder.diag.error);
  if (!details.empty()) why.append(": ").append(details);
  if (details.find("dimensions are too large") != details.npos)
    return {Code::kResourceExhausted,
            "AVIF too large, whatever decode_image.max_pixels says: " + why};
  switch (result) {
    case AVIF_RESULT_OUT_OF_MEMORY: return no_memory("the pixels of an AVIF");
    case AVIF_RESULT_TRUNCATED_DATA: return truncated("AVIF", "end", file_bytes);
    case AVIF_RESULT_NOT_IMPLEMENTED:
    case AVIF_RESULT_NO_CODEC_AVAILABLE:
    case AVIF_RESULT_UNSUPPORTED_DEPTH: return unsupported("AVIF", why);
    default: return corrupt("AVIF", why);
  }
}

// irot turns to the left, then imir mirrors: the EXIF number that says the same.
int orientation_of(const avifImage& image) {
  const bool turned = (image.transformFlags & AVIF_TRANSFORM_IROT) != 0;
  const int angle = turned ? image.irot.angle % 4 : 0;
  if ((image.transformFlags & AVIF_TRANSFORM_IMIR) != 0) {
    const bool left_to_right = image.imir.mode != 0;
    switch (angle) {
      case 0: return left_to_right ? 2 : 4;
      case 1: return left_to_right ? 7 : 5;
      case 2: return left_to_right ? 4 : 2;
      default: return left_to_right ? 5 : 7;
    }
  }
  if (turned) {
    constexpr int kByAngle[] = {1, 8, 3, 6};
    return kByAngle[angle];
  }
  return exif_orientation(std::as_bytes(std::span(image.exif.data, image.exif.size)));
}

StoredPixels stored_pixels(const avifDecoder& decoder) {
  using Color = StoredPixels::Color;
  using Alpha = StoredPixels::Alpha;
  const bool gray = decoder.image->yuvFormat == AVIF_PIXEL_FORMAT_YUV400;
  return {.color = gray ? Color::kGray : Color::kRgb,
          .bits = static_cast<int>(decoder.image->depth),
          .alpha = decoder.alphaPresent != 0 ? Alpha::kChannel : Alpha::kNone};
}

}  // namespace

void AvifDecoder::Deleter::operator()(avifDecoder* decoder) const { avifDecoderDestroy(decoder); }

Result<RasterInfo> AvifDecoder::open(std::span<const std::byte> bytes) {
  decoder_.reset();
  if (!is_whole(bytes)) return truncated("AVIF", "end", bytes.size());
  Handle decoder(avifDecoderCreate());
  decoder->maxThreads = 1;
  decoder->ignoreXMP = AVIF_TRUE;
  decoder->imageDimensionLimit = 0;  // the number of pixels is limited
  constexpr std::uint32_t kMostImages = 1 << 16;
  decoder->imageCountLimit = kMostImages;
  avifResult result = avifDecoderSetIOMemory(decoder.get(), data_of(bytes), bytes.size());
  if (result == AVIF_RESULT_OK) result = avifDecoderParse(decoder.get());
  if (result != AVIF_RESULT_OK) return detail::Failure{failure_of(result, *decoder, bytes.size())};
  SPDLD_TRY(check_limits(*decoder));
  const avifImage& image = *decoder->image;
  info_ = {{static_cast<int>(image.width), static_cast<int>(image.height)},
           Orientation::from_exif(orientation_of(image)),
           stored_pixels(*decoder)};
  decoder->imageSizeLimit = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      AVIF_DEFAULT_IMAGE_SIZE_LIMIT, (image.width + kTileMargin) * (image.height + kTileMargin)));
  read_bytes_ = bytes_to_read();
  file_ = bytes;
  decoder_ = std::move(decoder);
  return info_;
}

Status AvifDecoder::check_limits(const avifDecoder& decoder) const {
  const avifImage& image = *decoder.image;
  SPDLD_TRY(limits_.check_pixels(image.width, image.height));
  avifExtent extent{};
  const avifResult result = avifDecoderNthImageMaxExtent(&decoder, 0, &extent);
  if (result != AVIF_RESULT_OK) return failure_of(result, decoder, decoder.io->sizeHint);
  if (extent.size > 0 && extent.offset + extent.size > decoder.io->sizeHint)
    return truncated("AVIF", "last pixels", decoder.io->sizeHint);
  return {};
}

// dav1d holds a frame, and another one where it adds grain; libavif puts a grid together from
// frames. Half of a byte a pixel or two is dav1d's bookkeeping.
std::uint64_t AvifDecoder::bytes_to_read() const {
  const auto width = static_cast<std::uint64_t>(info_.size.width);
  const auto height = static_cast<std::uint64_t>(info_.size.height);
  const std::uint64_t pixels = (width + kTileMargin) * (height + kTileMargin);
  const std::uint64_t bytes = info_.pixels.bits > 8 ? 2 : 1;
  const std::uint64_t samples = info_.pixels.color == StoredPixels::Color::kGray ? 1 : 3;
  const std::uint64_t alpha = rgb_channels() == 4 ? 1 : 0;
  const std::uint64_t rgb = width * static_cast<std::uint64_t>(rgb_channels()) * (wide() ? 2 : 1);
  return pixels * ((samples + alpha) * bytes * 2 + 2) + rgb * height * 5 / 4;
}

Status AvifDecoder::read(const Rect& region, RowSink& rows) {
  // Chroma may be for two rows, and at an edge its upsampling has no neighbour: rows above and
  // below keep the region's as they are in the whole image.
  const int begin = std::max(0, region.y / 2 * 2 - 2);
  const int end = std::min(info_.size.height, region.y + region.height + 2);
  Status status = decode();
  if (status.ok()) status = convert(begin, end);
  decoder_.reset();
  SPDLD_TRY(status);

  const int bytes = wide() ? 2 : 1;
  DecodedRows decoded{.samples = {.step = rgb_channels() * bytes,
                                  .green = bytes,
                                  .blue = 2 * bytes,
                                  .bytes = bytes,
                                  .big_endian = std::endian::native == std::endian::big}};
  if (rgb_channels() == 4) decoded.samples.alpha = 3 * bytes;
  if (info_.pixels.color == StoredPixels::Color::kGray)
    decoded.samples.green = decoded.samples.blue = 0;
  const std::ptrdiff_t stride =
      static_cast<std::ptrdiff_t>(info_.size.width) * decoded.samples.step;
  const Rect part{region.x, region.y - begin, region.width, region.height};
  give_rows({mode_, decoded}, reinterpret_cast<const std::uint8_t*>(pixels_.data()), stride, part,
            row_, rows);
  return {};
}

Status AvifDecoder::decode() {
  {
    // libavif ends the process where it is given no memory: the first to ask is somebody who does
    // not.
    ByteBuffer room;
    [[maybe_unused]] std::byte* volatile taken = room.resize(read_bytes_);
  }
  const avifResult result = avifDecoderNextImage(decoder_.get());
  if (result != AVIF_RESULT_OK) return failure_of(result, *decoder_, file_.size());
  const avifImage& image = *decoder_->image;
  const StoredPixels& pixels = info_.pixels;
  const bool gray = image.yuvFormat == AVIF_PIXEL_FORMAT_YUV400;
  if (image.width != static_cast<std::uint32_t>(info_.size.width) ||
      image.height != static_cast<std::uint32_t>(info_.size.height) ||
      image.depth != static_cast<std::uint32_t>(pixels.bits) ||
      gray != (pixels.color == StoredPixels::Color::kGray) ||
      (image.alphaPlane != nullptr) != (pixels.alpha != StoredPixels::Alpha::kNone))
    return corrupt("AVIF", "its pixels are not those of its header");
  return {};
}

Status AvifDecoder::convert(int begin, int end) {
  const std::unique_ptr<avifImage, void (*)(avifImage*)> part(avifImageCreateEmpty(),
                                                              avifImageDestroy);
  const avifCropRect rect{.x = 0,
                          .y = static_cast<std::uint32_t>(begin),
                          .width = static_cast<std::uint32_t>(info_.size.width),
                          .height = static_cast<std::uint32_t>(end - begin)};
  avifResult result = avifImageSetViewRect(part.get(), decoder_->image, &rect);
  if (result == AVIF_RESULT_OK) {
    avifRGBImage rgb;
    avifRGBImageSetDefaults(&rgb, part.get());
    rgb.depth = wide() ? 16 : 8;
    rgb.format = rgb_channels() == 4 ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
    rgb.rowBytes = rgb.width * static_cast<std::uint32_t>(rgb_channels()) * (wide() ? 2 : 1);
    rgb.pixels =
        reinterpret_cast<std::uint8_t*>(pixels_.resize(std::size_t{rgb.rowBytes} * rgb.height));
    result = avifImageYUVToRGB(part.get(), &rgb);
  }
  if (result == AVIF_RESULT_OK) return {};
  return failure_of(result, *decoder_, file_.size());
}

}  // namespace spdld::media
