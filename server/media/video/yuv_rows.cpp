// SPDX-License-Identifier: Apache-2.0
#include "media/video/yuv_rows.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "media/image/pixels.h"

namespace spdld::media {
namespace {

// By ITU-T H.273, in 1/65536: what chroma from -1/2 to 1/2 of the limited range adds to red, to
// blue, and takes from green. The integers are FFmpeg's.
struct Coefficients {
  std::int32_t v_to_red;
  std::int32_t u_to_blue;
  std::int32_t u_to_green;
  std::int32_t v_to_green;
};

Coefficients coefficients_of(VideoPicture::Matrix matrix) {
  switch (matrix) {
    case VideoPicture::Matrix::kBt601: return {104597, 132201, 25675, 53279};
    case VideoPicture::Matrix::kBt709: return {117489, 138438, 13975, 34925};
    case VideoPicture::Matrix::kFcc: return {104448, 132798, 24759, 53109};
    case VideoPicture::Matrix::kSmpte240m: return {117579, 136230, 16907, 35559};
    case VideoPicture::Matrix::kBt2020: return {110013, 140363, 12277, 42626};
  }
  SPDLD_CHECK(false);
}

// One part in `parts` of `value`, rounded.
std::int64_t divide(std::int64_t value, std::int64_t parts) { return (value + parts / 2) / parts; }

ColorMatrix matrix_of(const VideoPicture& picture) {
  const Coefficients c = coefficients_of(picture.matrix);
  const std::int64_t one = std::int64_t{1} << ColorMatrix::kShift;
  const std::int64_t scale = std::int64_t{1} << (picture.bits - 8);  // steps to one of 8 bits
  const bool full = picture.full_range || picture.kind == VideoPicture::Kind::kGray;
  // Coefficient / 65536 * one / 64, and for the full range, which has 255 steps where the limited
  // one has 224, the less.
  const auto chroma = [&](std::int64_t coefficient) {
    const std::int64_t value = coefficient * (one >> 16);
    return static_cast<std::int32_t>(full ? divide(value * 224, std::int64_t{255} * 64)
                                          : divide(value, 64));
  };
  ColorMatrix matrix;
  matrix.luma =
      static_cast<std::int32_t>(full ? divide(one, scale) : divide(one * 255, scale * 219));
  const std::int64_t black = full ? 0 : divide(one * 16 * 255, 219);
  matrix.offset = static_cast<std::int32_t>(one / 2 - black);
  matrix.v_to_red = chroma(c.v_to_red);
  matrix.u_to_blue = chroma(c.u_to_blue);
  matrix.u_to_green = -chroma(c.u_to_green);
  matrix.v_to_green = -chroma(c.v_to_green);
  return matrix;
}

std::uint8_t gray_byte(const std::uint8_t* row, int x, int bits) {
  if (bits == 8) return row[x];
  std::uint16_t value = 0;
  std::memcpy(&value, row + 2 * static_cast<std::ptrdiff_t>(x), sizeof(value));
  return static_cast<std::uint8_t>(std::min((value + (1 << (bits - 9))) >> (bits - 8), 255));
}

int sample_bytes(const VideoPicture& picture) { return picture.bits > 8 ? 2 : 1; }

}  // namespace

void YuvRows::give(const VideoPicture& picture, const Rect& region, int channels, RowSink& rows) {
  SPDLD_CHECK(channels == 1 || channels == 3);
  SPDLD_CHECK(region.x >= 0 && region.y >= 0 && region.width > 0 && region.height > 0 &&
              region.x + region.width <= picture.size.width &&
              region.y + region.height <= picture.size.height);
  shape(picture, region, channels);
  auto* const out = reinterpret_cast<std::uint8_t*>(pixels_.data());
  const auto width = static_cast<std::size_t>(region.width);
  const bool has_chroma = picture.kind == VideoPicture::Kind::kYuv && channels == 3;
  ChromaTap made{-1, -1, -1};  // of the rows of chroma that are at hand
  for (int y = 0; y < region.height; ++y) {
    const int from = region.y + y;
    if (picture.kind == VideoPicture::Kind::kGbr) {
      make_gbr(picture, region, from, channels);
      rows.row(y, out);
      continue;
    }
    const SampleRow luma{
        picture.planes[0].row(from) + static_cast<std::ptrdiff_t>(region.x) * sample_bytes(picture),
        picture.bits};
    if (has_chroma) {
      const ChromaTap& tap = rows_.tap(from);
      if (!(tap == made)) {
        make_chroma(picture, region, 1, tap);
        make_chroma(picture, region, 2, tap);
        made = tap;
      }
      yuv_to_rgb(luma, chroma_rows_[0], chroma_rows_[1], width, matrix_, out);
    } else {
      luma_to_bytes(luma, width, matrix_, out);
      for (std::size_t x = width; channels == 3 && x-- > 0;)
        out[3 * x] = out[3 * x + 1] = out[3 * x + 2] = out[x];
    }
    rows.row(y, out);
  }
}

void YuvRows::shape(const VideoPicture& picture, const Rect& region, int channels) {
  matrix_ = matrix_of(picture);
  const auto width = static_cast<std::size_t>(region.width);
  pixels_.resize(width * 3);
  if (picture.kind != VideoPicture::Kind::kYuv || channels == 1) return;
  const auto samples = [](int pixels, int shift) { return (pixels + (1 << shift) - 1) >> shift; };
  columns_.build(samples(picture.size.width, picture.shift_x), picture.size.width, picture.shift_x,
                 picture.chroma_x, false);
  rows_.build(samples(picture.size.height, picture.shift_y), picture.size.height, picture.shift_y,
              picture.chroma_y, true);
  const int last = region.x + region.width - 1;
  if (columns_.is_regular()) {
    first_sample_ = region.x >> 1;
    sample_count_ = (last >> 1) - first_sample_ + 1;
  } else {
    first_sample_ = columns_.tap(region.x).first;
    sample_count_ = columns_.tap(last).second - first_sample_ + 1;
  }
  samples_.resize(static_cast<std::size_t>(sample_count_ + 2) * sizeof(Chroma));
  // Where columns are regular, both pixels of the first and the last sample are made.
  for (ByteBuffer& row : chroma_) row.resize((width + 2) * sizeof(Chroma));
}

void YuvRows::make_chroma(const VideoPicture& picture, const Rect& region, int plane,
                          const ChromaTap& tap) {
  const VideoPicture::Plane& from = picture.planes[static_cast<std::size_t>(plane)];
  const int bytes = sample_bytes(picture);
  auto* const samples = reinterpret_cast<Chroma*>(samples_.data()) + 1;
  // As many of the samples on either side as there are.
  const int before = first_sample_ > 0 ? 1 : 0;
  const int end = first_sample_ + sample_count_;
  const int after = end < columns_.samples() ? 1 : 0;
  const std::ptrdiff_t skipped = static_cast<std::ptrdiff_t>(first_sample_ - before) * bytes;
  const SampleRow first{from.row(tap.first) + skipped, picture.bits};
  const SampleRow second{from.row(tap.second) + skipped, picture.bits};
  mean_chroma(first, second, static_cast<std::size_t>(before + sample_count_ + after),
              samples - before);
  if (before == 0) samples[-1] = samples[0];
  if (after == 0) samples[sample_count_] = samples[sample_count_ - 1];

  const auto at = static_cast<std::size_t>(plane - 1);
  if (columns_.is_full()) {
    // Both planes' samples are needed at once.
    std::memcpy(chroma_[at].data(), samples,
                static_cast<std::size_t>(region.width) * sizeof(Chroma));
    chroma_rows_[at] = reinterpret_cast<const Chroma*>(chroma_[at].data());
    return;
  }
  auto* const out = reinterpret_cast<Chroma*>(chroma_[at].data());
  chroma_rows_[at] = out;
  if (columns_.is_regular()) {
    const auto count = static_cast<std::size_t>(sample_count_);
    if (columns_.position() == ChromaAxis::kFirst) {
      double_left(samples, count, out);
    } else {
      double_centered(samples, count, out);
    }
    chroma_rows_[at] += region.x & 1;
    return;
  }
  for (int x = 0; x < region.width; ++x) {
    const ChromaTap& column = columns_.tap(region.x + x);
    const std::int32_t sum =
        samples[column.first - first_sample_] * (ChromaTap::kOne - column.weight) +
        samples[column.second - first_sample_] * column.weight;
    out[x] = static_cast<Chroma>((sum + ChromaTap::kOne / 2) >> ChromaTap::kBits);
  }
}

void YuvRows::make_gbr(const VideoPicture& picture, const Rect& region, int y, int channels) {
  const std::uint8_t* const green = picture.planes[0].row(y);
  const std::uint8_t* const blue = picture.planes[1].row(y);
  const std::uint8_t* const red = picture.planes[2].row(y);
  auto* out = reinterpret_cast<std::uint8_t*>(pixels_.data());
  for (int x = region.x; x < region.x + region.width; ++x) {
    const std::uint8_t r = gray_byte(red, x, picture.bits);
    const std::uint8_t g = gray_byte(green, x, picture.bits);
    const std::uint8_t b = gray_byte(blue, x, picture.bits);
    if (channels == 1) {
      *out++ = luma(r, g, b);
      continue;
    }
    *out++ = r;
    *out++ = g;
    *out++ = b;
  }
}

}  // namespace spdld::media
