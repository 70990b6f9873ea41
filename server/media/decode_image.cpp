// SPDX-License-Identifier: Apache-2.0
#include "media/decode_image.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/byte_buffer.h"
#include "base/check.h"
#include "media/avif_decoder.h"
#include "media/bmp_decoder.h"
#include "media/gif_decoder.h"
#include "media/image_format.h"
#include "media/jpeg_decoder.h"
#include "media/orientation.h"
#include "media/png_decoder.h"
#include "media/raster_decoder.h"
#include "media/tiff_decoder.h"
#include "media/webp_decoder.h"

namespace spdld::media {
namespace {

// Keeps the rows of a region, for those who need it whole.
class RowCollector final : public RowSink {
 public:
  RowCollector(std::uint8_t* pixels, std::size_t row_bytes)
      : pixels_(pixels), row_bytes_(row_bytes) {}

  void row(int y, const std::uint8_t* pixels) override {
    std::memcpy(pixels_ + static_cast<std::size_t>(y) * row_bytes_, pixels, row_bytes_);
  }

 private:
  std::uint8_t* pixels_;
  std::size_t row_bytes_;
};

// One worker's decoder: picks the format's and turns what it gives upright. An upright image goes
// straight from the format's decoder to the sink; a turned one is first decoded to scratch, which
// grows to the largest such region and stays. States: closed, then open from a successful open()
// until the next read().
class ImageReader final : public ImageDecoder {
 public:
  ImageReader(const ImageMode& mode, bool exif, ImageLimits limits)
      : mode_(mode), exif_(exif), limits_(limits) {}

  Result<Size> open(std::span<const std::byte> bytes) override {
    current_ = nullptr;
    SPDLD_ASSIGN(const ImageFormat format, sniff_image(bytes));
    RasterDecoder& decoder = decoder_of(format);
    SPDLD_ASSIGN(info_, decoder.open(bytes));
    SPDLD_TRY(mode_.accept(info_.pixels));
    if (!exif_) info_.orientation = Orientation();
    current_ = &decoder;
    return info_.orientation.upright_size(info_.size);
  }

  std::uint64_t read_bytes() const override {
    SPDLD_CHECK(current_ != nullptr);
    const std::uint64_t bytes = current_->read_bytes();
    if (info_.orientation.upright()) return bytes;
    const std::uint64_t pixels = static_cast<std::uint64_t>(info_.size.width) *
                                 static_cast<std::uint64_t>(info_.size.height);
    return bytes +
           pixels * static_cast<std::uint64_t>(mode_.pixel_bytes()) * 5 / 4;  // as ByteBuffer grows
  }

  Status read(const Rect& region, RowSink& rows) override {
    SPDLD_CHECK(current_ != nullptr);
    RasterDecoder& decoder = *std::exchange(current_, nullptr);
    const Size size = info_.orientation.upright_size(info_.size);
    SPDLD_CHECK(region.x >= 0 && region.y >= 0 && region.width > 0 && region.height > 0 &&
                region.width <= size.width - region.x && region.height <= size.height - region.y);
    if (info_.orientation.upright()) return decoder.read(region, rows);
    return read_turned(decoder, region, rows);
  }

 private:
  RasterDecoder& decoder_of(ImageFormat format) {
    std::unique_ptr<RasterDecoder>& decoder = decoders_[static_cast<std::size_t>(format)];
    if (decoder == nullptr) decoder = make_raster_decoder(format);
    return *decoder;
  }

  std::unique_ptr<RasterDecoder> make_raster_decoder(ImageFormat format) const {
    switch (format) {
      case ImageFormat::kJpeg: return std::make_unique<JpegDecoder>(mode_, limits_);
      case ImageFormat::kPng: return std::make_unique<PngDecoder>(mode_, limits_);
      case ImageFormat::kWebp: return std::make_unique<WebpDecoder>(mode_, limits_);
      case ImageFormat::kGif: return std::make_unique<GifDecoder>(mode_, limits_);
      case ImageFormat::kBmp: return std::make_unique<BmpDecoder>(mode_, limits_);
      case ImageFormat::kTiff: return std::make_unique<TiffDecoder>(mode_, limits_);
      case ImageFormat::kAvif: return std::make_unique<AvifDecoder>(mode_, limits_);
    }
    SPDLD_CHECK(false);
  }

  Status read_turned(RasterDecoder& decoder, const Rect& region, RowSink& rows) {
    const Orientation& orientation = info_.orientation;
    const Rect stored = orientation.stored_region(region, info_.size);
    const auto pixel_bytes = static_cast<std::size_t>(mode_.pixel_bytes());
    const std::size_t row_bytes = static_cast<std::size_t>(stored.width) * pixel_bytes;
    const std::size_t region_bytes = row_bytes * static_cast<std::size_t>(stored.height);
    const std::size_t upright_bytes = static_cast<std::size_t>(region.width) * pixel_bytes;
    auto* pixels = reinterpret_cast<std::uint8_t*>(scratch_.resize(region_bytes + upright_bytes));
    RowCollector collector(pixels, row_bytes);
    SPDLD_TRY(decoder.read(stored, collector));

    const ImageView view{.data = pixels,
                         .width = stored.width,
                         .height = stored.height,
                         .channels = mode_.channels,
                         .stride_bytes = static_cast<std::ptrdiff_t>(row_bytes),
                         .bytes_per_value = mode_.bytes_per_value};
    std::uint8_t* upright = pixels + region_bytes;
    for (int y = 0; y < region.height; ++y) {
      orientation.upright_row(view, y, upright);
      rows.row(y, upright);
    }
    return {};
  }

  const ImageMode mode_;
  const bool exif_;
  const ImageLimits limits_;
  std::array<std::unique_ptr<RasterDecoder>, kImageFormats> decoders_;  // by format, once needed
  RasterInfo info_;
  RasterDecoder* current_ = nullptr;  // whose image is open
  ByteBuffer scratch_;
};

}  // namespace

DecodeImage::DecodeImage(const ImageMode& mode, bool exif, ImageLimits limits, std::string field)
    : DecodeImageOp(std::move(field)), mode_(mode), exif_(exif), limits_(limits) {}

std::unique_ptr<ImageDecoder> DecodeImage::make_decoder() const {
  return std::make_unique<ImageReader>(mode_, exif_, limits_);
}

}  // namespace spdld::media
