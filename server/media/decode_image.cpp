// SPDX-License-Identifier: Apache-2.0
#include "media/decode_image.h"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "media/format/avif_decoder.h"
#include "media/format/bmp_decoder.h"
#include "media/format/gif_decoder.h"
#include "media/format/png_decoder.h"
#include "media/format/tiff_decoder.h"
#include "media/format/webp_decoder.h"
#include "media/image/image_format.h"
#include "media/image/orientation.h"
#include "media/image/raster_decoder.h"
#include "media/image/upright_rows.h"
#include "media/jpeg/coefficient_decoder.h"
#include "media/jpeg/jpeg_decoder.h"

namespace spdld::media {
namespace {

// One worker's decoder: picks the format's and turns what it gives upright. States: closed, then
// open from a successful open() until the next read().
class ImageReader final : public ImageDecoder {
 public:
  ImageReader(const ImageMode& mode, bool exif, ImageLimits limits, JpegOptions jpeg)
      : mode_(mode), exif_(exif), limits_(limits), jpeg_(std::move(jpeg)) {}

  void count_in(JpegCounter& counter) override {
    SPDLD_CHECK(decoders_[static_cast<std::size_t>(ImageFormat::kJpeg)] == nullptr &&
                recoded_ == nullptr);
    jpeg_.counter = &counter;
  }

  Result<Size> open(std::span<const std::byte> bytes) override {
    current_ = nullptr;
    SPDLD_ASSIGN(const ImageFormat format, sniff_image(bytes));
    return open(decoder_of(format), bytes);
  }

  Result<Size> open_recoded(std::span<const std::byte> bytes) override {
    current_ = nullptr;
    if (recoded_ == nullptr) recoded_ = std::make_unique<CoefficientDecoder>(mode_, limits_, jpeg_);
    return open(*recoded_, bytes);
  }

  std::uint64_t read_bytes() const override {
    SPDLD_CHECK(current_ != nullptr);
    return current_->read_bytes() + UprightRows::most_bytes(picture());
  }

  Status read(const Rect& region, RowSink& rows) override {
    SPDLD_CHECK(current_ != nullptr);
    RasterDecoder& decoder = *std::exchange(current_, nullptr);
    const Size size = info_.orientation.upright_size(info_.size);
    SPDLD_CHECK(region.x >= 0 && region.y >= 0 && region.width > 0 && region.height > 0 &&
                region.width <= size.width - region.x && region.height <= size.height - region.y);
    return upright_.read(decoder, picture(), region, rows);
  }

  std::uint64_t recode_bytes() const override {
    SPDLD_CHECK(current_ != nullptr);
    return current_->recode_bytes();
  }

  std::span<const std::byte> recode() override {
    SPDLD_CHECK(current_ != nullptr);
    return std::exchange(current_, nullptr)->recode();
  }

 private:
  Result<Size> open(RasterDecoder& decoder, std::span<const std::byte> bytes) {
    SPDLD_ASSIGN(info_, decoder.open(bytes));
    SPDLD_TRY(mode_.accept(info_.pixels));
    if (!exif_) info_.orientation = Orientation();
    current_ = &decoder;
    return info_.orientation.upright_size(info_.size);
  }

  RasterDecoder& decoder_of(ImageFormat format) {
    std::unique_ptr<RasterDecoder>& decoder = decoders_[static_cast<std::size_t>(format)];
    if (decoder == nullptr) decoder = make_raster_decoder(format);
    return *decoder;
  }

  std::unique_ptr<RasterDecoder> make_raster_decoder(ImageFormat format) const {
    switch (format) {
      case ImageFormat::kJpeg: return std::make_unique<JpegDecoder>(mode_, limits_, jpeg_);
      case ImageFormat::kPng: return std::make_unique<PngDecoder>(mode_, limits_);
      case ImageFormat::kWebp: return std::make_unique<WebpDecoder>(mode_, limits_);
      case ImageFormat::kGif: return std::make_unique<GifDecoder>(mode_, limits_);
      case ImageFormat::kBmp: return std::make_unique<BmpDecoder>(mode_, limits_);
      case ImageFormat::kTiff: return std::make_unique<TiffDecoder>(mode_, limits_);
      case ImageFormat::kAvif: return std::make_unique<AvifDecoder>(mode_, limits_);
    }
    SPDLD_CHECK(false);
  }

  UprightRows::Picture picture() const {
    return {.size = info_.size,
            .orientation = info_.orientation,
            .channels = mode_.channels,
            .bytes_per_value = mode_.bytes_per_value};
  }

  const ImageMode mode_;
  const bool exif_;
  const ImageLimits limits_;
  JpegOptions jpeg_;
  std::array<std::unique_ptr<RasterDecoder>, kImageFormats> decoders_;  // by format, once needed
  std::unique_ptr<CoefficientDecoder> recoded_;                         // likewise
  RasterInfo info_;
  RasterDecoder* current_ = nullptr;  // whose image is open
  UprightRows upright_;
};

}  // namespace

DecodeImage::DecodeImage(const ImageMode& mode, bool exif, ImageLimits limits, JpegOptions jpeg,
                         std::string field)
    : DecodeImageOp(std::move(field)),
      mode_(mode),
      exif_(exif),
      limits_(limits),
      jpeg_(std::move(jpeg)) {}

std::unique_ptr<ImageDecoder> DecodeImage::make_decoder() const {
  return std::make_unique<ImageReader>(mode_, exif_, limits_, jpeg_);
}

}  // namespace spdld::media
