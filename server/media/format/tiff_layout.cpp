// SPDX-License-Identifier: Apache-2.0
#include "media/format/tiff_layout.h"

#include <algorithm>
#include <string>

#include "base/text/counted.h"
#include "media/image/image_errors.h"

namespace spdld::media {
namespace {

constexpr std::uint32_t kMostTiffSide = 0x7FFFFFFF;

std::string compression_name(std::uint64_t number) {
  std::string text = "compression " + std::to_string(number);
  switch (number) {
    case 6:
    case 7: return text + " (JPEG)";
    case 33003:
    case 33005:
    case 34712: return text + " (JPEG 2000)";
    case 34925: return text + " (LZMA)";
    case 50000: return text + " (Zstandard)";
    case 50001: return text + " (WebP)";
    default: return text;
  }
}

std::string photometric_name(std::uint64_t number) {
  switch (number) {
    case 4: return "a transparency mask";
    case 6: return "YCbCr";
    case 8:
    case 9:
    case 10: return "CIE L*a*b*";
    case 32803: return "raw sensor data";
    default: return "photometric interpretation " + std::to_string(number);
  }
}

std::string size_text(std::uint64_t width, std::uint64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

}  // namespace

Result<TiffLayout> TiffLayout::survey(std::span<const std::byte> bytes, const ImageLimits& limits) {
  SPDLD_ASSIGN(const TiffDirectory directory, TiffDirectory::read(bytes));
  TiffLayout layout(directory);
  SPDLD_TRY(layout.read_size());
  SPDLD_TRY(limits.check_pixels(layout.width_, layout.height_));
  SPDLD_TRY(layout.read_compression());
  SPDLD_TRY(layout.read_color());
  SPDLD_TRY(layout.read_chunks());
  return layout;
}

Status TiffLayout::read_size() {
  const std::uint64_t width = directory_.value_or(TiffTag::kImageWidth, 0);
  const std::uint64_t height = directory_.value_or(TiffTag::kImageLength, 0);
  if (width == 0 || height == 0 || width > kMostTiffSide || height > kMostTiffSide)
    return corrupt("TIFF", "impossible size " + size_text(width, height));
  width_ = static_cast<std::uint32_t>(width);
  height_ = static_cast<std::uint32_t>(height);
  orientation_ = static_cast<int>(directory_.value_or(TiffTag::kOrientation, 1) & 0xFF);
  return {};
}

Status TiffLayout::read_compression() {
  const std::uint64_t number = directory_.value_or(TiffTag::kCompression, 1);
  compression_ = static_cast<Compression>(number);
  switch (number) {
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 8:
    case 32946:
    case 32773: break;
    default:
      return unsupported(
          "TIFF", compression_name(number) + "; write it anew, for example by 'tiffcp -c lzw'");
  }
  bits_reversed_ = directory_.value_or(TiffTag::kFillOrder, 1) == 2;
  t4_options_ = static_cast<std::uint32_t>(directory_.value_or(TiffTag::kT4Options, 0));
  return {};
}

Status TiffLayout::read_color() {
  const std::uint64_t photometric = directory_.value_or(TiffTag::kPhotometric, 0);
  unsigned colors = 1;
  switch (photometric) {
    case 0:
    case 1:
      color_ = Color::kGray;
      white_is_zero_ = photometric == 0;
      break;
    case 2:
      color_ = Color::kRgb;
      colors = 3;
      break;
    case 3: color_ = Color::kPalette; break;
    case 5:
      color_ = Color::kCmyk;
      colors = 4;
      break;
    default:
      return unsupported("TIFF", photometric_name(photometric) + "; convert it to RGB or gray");
  }
  return read_samples(colors);
}

Status TiffLayout::read_samples(unsigned colors) {
  const std::uint64_t samples = directory_.value_or(TiffTag::kSamplesPerPixel, 1);
  constexpr std::uint64_t kMostSamples = 64;
  if (samples < colors || samples > kMostSamples)
    return corrupt("TIFF", counted(samples, "sample") + " a pixel");
  samples_ = static_cast<unsigned>(samples);

  const std::uint64_t bits = directory_.value_or(TiffTag::kBitsPerSample, 1);
  for (std::uint64_t i = 1; i < std::min(directory_.count(TiffTag::kBitsPerSample), samples); ++i) {
    if (directory_.value(TiffTag::kBitsPerSample, i) != bits)
      return unsupported("TIFF", "samples of different numbers of bits");
  }
  for (std::uint64_t i = 0; i < directory_.count(TiffTag::kSampleFormat); ++i) {
    // 4: nothing is said
    const std::uint64_t format = directory_.value(TiffTag::kSampleFormat, i);
    if (format == 3)
      return unsupported("TIFF",
                         "samples of floating point; write them as .npy, which decode_npy reads");
    if (format != 1 && format != 4)
      return unsupported("TIFF", "samples that are no unsigned integers");
  }
  const bool packed = bits == 1 || bits == 2 || bits == 4;
  if (!(bits == 8 || (bits == 16 && color_ != Color::kPalette) || (packed && samples == 1)) ||
      (color_ == Color::kPalette && samples > 1)) {
    return unsupported("TIFF", counted(samples, "sample") + " a pixel of " + counted(bits, "bit"));
  }
  bits_ = static_cast<unsigned>(bits);
  if (color_ == Color::kPalette && directory_.count(TiffTag::kColorMap) < std::uint64_t{3} << bits)
    return corrupt("TIFF", "its palette is missing");

  if (color_ == Color::kGray && samples > 1) {
    // Bands of which none is the picture. Two are gray with alpha only where the file says so.
    const std::uint64_t extra = directory_.value_or(TiffTag::kExtraSamples, 0);
    if (samples > 2 || extra == 0)
      return unsupported("TIFF", std::to_string(samples) +
                                     " bands, none of which is said to be a colour or alpha; write "
                                     "those that are wanted as gray or RGB, for example by "
                                     "'gdal_translate -b 1', or all of them as .npy, which "
                                     "decode_npy reads");
  }
  if (samples > colors && color_ != Color::kCmyk) {
    switch (directory_.value_or(TiffTag::kExtraSamples, 2)) {
      case 0: break;
      case 1: alpha_ = Alpha::kPremultiplied; break;
      default: alpha_ = Alpha::kStraight;
    }
  }

  const bool can_differ = compression_ == Compression::kLzw ||
                          compression_ == Compression::kDeflate ||
                          compression_ == Compression::kOldDeflate;
  const std::uint64_t predictor = directory_.value_or(TiffTag::kPredictor, 1);
  differences_ = can_differ && predictor == 2;
  if (can_differ && (predictor < 1 || predictor > 2 || (differences_ && bits < 8)))
    return unsupported(
        "TIFF", "predictor " + std::to_string(predictor) + " of " + std::to_string(bits) + " bits");
  const bool fax = compression_ == Compression::kCcittRle ||
                   compression_ == Compression::kCcittT4 || compression_ == Compression::kCcittT6;
  if (fax && bits != 1)
    return corrupt("TIFF", "a fax compression of " + std::to_string(bits) + " bits");
  return {};
}

Status TiffLayout::read_chunks() {
  const std::uint64_t planar = directory_.value_or(TiffTag::kPlanarConfiguration, 1);
  if (planar != 1 && planar != 2)
    return corrupt("TIFF", "planar configuration " + std::to_string(planar));
  planes_ = planar == 2 ? samples_ : 1;
  tiled_ = directory_.has(TiffTag::kTileOffsets);
  if (tiled_) {
    const std::uint64_t width = directory_.value_or(TiffTag::kTileWidth, 0);
    const std::uint64_t height = directory_.value_or(TiffTag::kTileLength, 0);
    constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 32;
    // Tiles may be larger than their image, though not by much.
    constexpr std::uint64_t kCommonBytes = std::uint64_t{1} << 26;
    const auto bytes = [&](std::uint64_t wide, std::uint64_t high) {
      return wide * high * samples_ * ((bits_ + 7) / 8);
    };
    const std::uint64_t most = std::max(kCommonBytes, 4 * bytes(width_, height_));
    if (width == 0 || height == 0 || width > kMostTiffSide || height > kMostTiffSide ||
        width * height > kMostPixels || bytes(width, height) > most)
      return corrupt("TIFF", "impossible size of a tile, " + size_text(width, height));
    chunk_width_ = static_cast<std::uint32_t>(width);
    chunk_height_ = static_cast<std::uint32_t>(height);
  } else {
    chunk_width_ = width_;
    const std::uint64_t rows = directory_.value_or(TiffTag::kRowsPerStrip, height_);
    chunk_height_ =
        rows == 0 ? height_ : static_cast<std::uint32_t>(std::min<std::uint64_t>(rows, height_));
  }
  if (directory_.count(offsets()) < chunks())
    return truncated("TIFF", tiled_ ? "list of all tiles" : "list of all strips",
                     directory_.reader().bytes().size());
  if (compression_ != Compression::kNone && directory_.count(byte_counts()) < chunks())
    return corrupt("TIFF", "nothing says how long its compressed data is");
  for (std::uint64_t i = 0; i < chunks(); ++i) {
    SPDLD_TRY(check_chunk(i));
    largest_chunk_bytes_ = std::max<std::uint64_t>(largest_chunk_bytes_, chunk(i).size());
  }
  return {};
}

Status TiffLayout::check_chunk(std::uint64_t index) const {
  const auto down = static_cast<std::uint32_t>(index / chunks_across() % chunks_down());
  const std::uint64_t needed = chunk_row_bytes() * chunk_rows(down);
  const bool plain = compression_ == Compression::kNone;
  const std::uint64_t bytes = plain ? needed : directory_.value(byte_counts(), index);
  const TiffReader& reader = directory_.reader();
  if (!reader.holds(directory_.value(offsets(), index), bytes))
    return truncated("TIFF", "last pixels", reader.bytes().size());
  if (!can_hold(bytes, chunk_rows(down)))
    return corrupt("TIFF", std::to_string(bytes) + " bytes of data cannot hold the " +
                               size_text(chunk_width_, chunk_rows(down)) +
                               " pixels that its header claims");
  return {};
}

bool TiffLayout::can_hold(std::uint64_t data_bytes, std::uint32_t rows) const {
  const std::uint64_t needed = chunk_row_bytes() * rows;
  switch (compression_) {
    case Compression::kNone: return data_bytes >= needed;
    case Compression::kPackBits: return data_bytes >= needed / 64;  // 128 bytes for two
    case Compression::kLzw: return data_bytes >= needed / 4096;     // a code's most
    case Compression::kDeflate:
    case Compression::kOldDeflate: return data_bytes >= needed / 1032;
    default: return data_bytes >= rows / 8;  // a row like the one before is one bit
  }
}

std::uint32_t TiffLayout::chunk_rows(std::uint32_t down) const {
  if (tiled_) return chunk_height_;
  return std::min(chunk_height_, height_ - down * chunk_height_);
}

std::span<const std::byte> TiffLayout::chunk(std::uint64_t index) const {
  const auto down = static_cast<std::uint32_t>(index / chunks_across() % chunks_down());
  const std::uint64_t bytes = compression_ == Compression::kNone
                                  ? chunk_row_bytes() * chunk_rows(down)
                                  : directory_.value(byte_counts(), index);
  return directory_.reader().bytes().subspan(directory_.value(offsets(), index), bytes);
}

StoredPixels TiffLayout::stored() const {
  return {
      .color = static_cast<StoredPixels::Color>(color_),
      .bits = static_cast<int>(bits_),
      .alpha = alpha_ == Alpha::kNone ? StoredPixels::Alpha::kNone : StoredPixels::Alpha::kChannel};
}

// The file has 16 bits of all reds, then of all greens, then of all blues.
Palette TiffLayout::palette() const {
  Palette palette = gray_palette(static_cast<int>(std::min(bits_, 8U)));
  if (color_ != Color::kPalette) return palette;
  const std::uint64_t count = std::uint64_t{1} << bits_;
  const auto high_byte = [&](std::uint64_t i) {
    return static_cast<std::uint8_t>(directory_.value(TiffTag::kColorMap, i) >> 8);
  };
  for (std::uint64_t i = 0; i < count; ++i)
    palette[i] = {high_byte(i), high_byte(count + i), high_byte(2 * count + i)};
  return palette;
}

}  // namespace spdld::media
