// SPDX-License-Identifier: Apache-2.0
#include "media/format/tiff_decoder.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace spdld::media {
namespace {

int sample_bytes(const TiffLayout& layout) { return layout.bits() == 16 ? 2 : 1; }

// Of a pixel whose samples have been unpacked.
int pixel_bytes(const TiffLayout& layout) {
  return static_cast<int>(layout.samples()) * sample_bytes(layout);
}

DecodedRows decoded_rows(const TiffLayout& layout, const Palette& palette) {
  using Color = TiffLayout::Color;
  const int bytes = sample_bytes(layout);
  DecodedRows rows{
      .samples = {.step = pixel_bytes(layout), .bytes = bytes, .big_endian = layout.big_endian()}};
  if (layout.bits() < 8 || layout.color() == Color::kPalette) {
    rows.kind = DecodedRows::Kind::kNumbers;
    rows.palette = &palette;
    return rows;
  }
  if (layout.color() != Color::kGray) {
    rows.samples.green = bytes;
    rows.samples.blue = 2 * bytes;
  }
  if (layout.color() == Color::kCmyk) {
    rows.kind = DecodedRows::Kind::kCmyk;
    rows.samples.alpha = 3 * bytes;
  } else if (layout.alpha() != TiffLayout::Alpha::kNone) {
    rows.samples.alpha = layout.color() == Color::kGray ? bytes : 3 * bytes;
  }
  return rows;
}

unsigned wide_at(const std::uint8_t* at, bool big_endian) {
  return big_endian ? at[0] * 256U + at[1] : at[1] * 256U + at[0];
}

void put_wide(unsigned value, bool big_endian, std::uint8_t* at) {
  at[big_endian ? 0 : 1] = static_cast<std::uint8_t>(value >> 8);
  at[big_endian ? 1 : 0] = static_cast<std::uint8_t>(value);
}

// Divides a pixel's colours by its alpha. For a mode of 8 bits the high bytes are divided, as in
// Pillow.
void divide(std::uint8_t* pixel, int colors, const TiffLayout& layout, bool to_bytes) {
  if (layout.bits() == 8) {
    const unsigned alpha = pixel[colors];
    for (int c = 0; c < colors; ++c)
      pixel[c] =
          static_cast<std::uint8_t>(alpha == 0 ? 0 : std::min(255U, pixel[c] * 255U / alpha));
    return;
  }
  const bool big = layout.big_endian();
  const unsigned most = to_bytes ? 255 : 65535;
  const auto value_at = [&](int c) { return wide_at(pixel + 2 * c, big) >> (to_bytes ? 8 : 0); };
  const unsigned alpha = value_at(colors);
  for (int c = 0; c < colors; ++c) {
    const unsigned value = alpha == 0 ? 0 : std::min(most, value_at(c) * most / alpha);
    put_wide(to_bytes ? value << 8 : value, big, pixel + 2 * c);
  }
}

// The page's rows of a chunk row that lie in the region, counted from the chunk row's first.
struct RowSpan {
  std::uint32_t begin;
  std::uint32_t end;
};

RowSpan shown_rows(const Rect& region, std::uint32_t down, const TiffLayout& layout) {
  const std::uint64_t top = std::uint64_t{down} * layout.chunk_height();
  const auto first = static_cast<std::uint64_t>(region.y);
  const std::uint64_t end = first + static_cast<std::uint64_t>(region.height);
  return {static_cast<std::uint32_t>(std::max(first, top) - top),
          static_cast<std::uint32_t>(std::min(end, top + layout.chunk_height()) - top)};
}

}  // namespace

Result<RasterInfo> TiffDecoder::open(std::span<const std::byte> bytes) {
  SPDLD_ASSIGN(layout_, TiffLayout::survey(bytes, limits_));
  SPDLD_TRY(chunks_.prepare());
  SPDLD_ASSIGN(at_once_, chunks_.at_once(*layout_));
  const std::uint64_t row =
      std::uint64_t{layout_->width()} * static_cast<std::uint64_t>(pixel_bytes(*layout_));
  const bool bands = layout_->tiled() || layout_->planes() > 1;
  const std::uint64_t held = bands ? std::min(layout_->chunk_height(), layout_->height()) : 1;
  read_bytes_ = TiffChunks::decode_bytes(*layout_, at_once_) + row * held * 5 / 4;
  return RasterInfo{{static_cast<int>(layout_->width()), static_cast<int>(layout_->height())},
                    Orientation::from_exif(layout_->orientation()),
                    layout_->stored()};
}

Status TiffDecoder::read(const Rect& region, RowSink& rows) {
  palette_ = layout_->palette();
  RowGiver giver({mode_, decoded_rows(*layout_, palette_)}, region.width, row_, rows);
  if (layout_->tiled() || layout_->planes() > 1) return read_tiles(region, giver);
  return read_strips(region, giver);
}

Status TiffDecoder::read_strips(const Rect& region, RowGiver& giver) {
  const std::uint32_t height = layout_->chunk_height();
  const auto first_down = static_cast<std::uint32_t>(region.y) / height;
  const auto last_down = static_cast<std::uint32_t>(region.y + region.height - 1) / height;
  const int step = pixel_bytes(*layout_);
  const bool as_is = layout_->bits() >= 8 && !layout_->white_is_zero() &&
                     layout_->alpha() != TiffLayout::Alpha::kPremultiplied;
  const std::size_t samples_bytes =
      static_cast<std::size_t>(region.width) * static_cast<std::size_t>(step);
  auto* samples = reinterpret_cast<std::uint8_t*>(samples_.resize(samples_bytes));
  int y = 0;
  for (std::uint32_t down = first_down; down <= last_down;) {
    const std::uint32_t count = std::min(at_once_, last_down - down + 1);
    const std::uint32_t rows = (count - 1) * height + layout_->chunk_rows(down + count - 1);
    SPDLD_TRY(chunks_.decode(*layout_, down, count, rows));
    const std::uint32_t begin = shown_rows(region, down, *layout_).begin;
    const std::uint32_t end =
        (count - 1) * height + shown_rows(region, down + count - 1, *layout_).end;
    for (std::uint32_t i = begin; i < end; ++i, ++y) {
      const std::uint8_t* row = chunks_.row(i);
      if (as_is) {
        giver.row(y, row + static_cast<std::ptrdiff_t>(region.x) * step);
        continue;
      }
      if (layout_->bits() < 8) {
        unpack_numbers(row, region.x, region.width, static_cast<int>(layout_->bits()), samples);
      } else {
        std::memcpy(samples, row + static_cast<std::ptrdiff_t>(region.x) * step, samples_bytes);
      }
      correct(samples, region.width);
      giver.row(y, samples);
    }
    down += count;
  }
  return {};
}

Status TiffDecoder::read_tiles(const Rect& region, RowGiver& giver) {
  const std::uint32_t height = layout_->chunk_height();
  const auto first_down = static_cast<std::uint32_t>(region.y) / height;
  const auto last_down = static_cast<std::uint32_t>(region.y + region.height - 1) / height;
  const auto row_bytes =
      static_cast<std::size_t>(region.width) * static_cast<std::size_t>(pixel_bytes(*layout_));
  int y = 0;
  for (std::uint32_t down = first_down; down <= last_down; ++down) {
    const RowSpan shown = shown_rows(region, down, *layout_);
    const auto rows = static_cast<int>(shown.end - shown.begin);
    samples_.resize(row_bytes * static_cast<std::size_t>(rows));
    SPDLD_TRY(collect_band(region, down, static_cast<int>(shown.begin), rows));
    auto* samples = reinterpret_cast<std::uint8_t*>(samples_.data());
    for (int i = 0; i < rows; ++i, ++y, samples += row_bytes) {
      correct(samples, region.width);
      giver.row(y, samples);
    }
  }
  return {};
}

Status TiffDecoder::collect_band(const Rect& region, std::uint32_t down, int first_row, int rows) {
  const std::uint32_t width = layout_->chunk_width();
  const auto first = static_cast<std::uint32_t>(region.x) / width;
  const auto last = static_cast<std::uint32_t>(region.x + region.width - 1) / width;
  const std::uint32_t chunk_rows = layout_->chunk_rows(down);
  for (unsigned plane = 0; plane < layout_->planes(); ++plane) {
    const std::uint64_t row_begin =
        (std::uint64_t{plane} * layout_->chunks_down() + down) * layout_->chunks_across();
    for (std::uint32_t across = first; across <= last;) {
      // Chunks that are decoded at once are of one height.
      const std::uint32_t count =
          chunk_rows == layout_->chunk_height() ? std::min(at_once_, last - across + 1) : 1;
      SPDLD_TRY(chunks_.decode(*layout_, row_begin + across, count, count * chunk_rows));
      for (std::uint32_t i = 0; i < count; ++i)
        collect_chunk(region, across + i, plane, i * chunk_rows, first_row, rows);
      across += count;
    }
  }
  return {};
}

void TiffDecoder::collect_chunk(const Rect& region, std::uint32_t across, unsigned plane,
                                std::uint32_t chunk_row, int first_row, int rows) {
  const std::int64_t left = std::int64_t{across} * layout_->chunk_width();
  const auto begin = static_cast<int>(std::max<std::int64_t>(region.x, left));
  const auto end = static_cast<int>(
      std::min<std::int64_t>(region.x + region.width, left + layout_->chunk_width()));
  const auto from = static_cast<int>(begin - left);
  const int width = end - begin;
  const int step = pixel_bytes(*layout_);
  const int bytes = sample_bytes(*layout_);
  auto* out = reinterpret_cast<std::uint8_t*>(samples_.data()) +
              static_cast<std::ptrdiff_t>(begin - region.x) * step;
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(region.width) * step;
  for (int y = 0; y < rows; ++y, out += stride) {
    const std::uint8_t* row = chunks_.row(chunk_row + static_cast<std::uint32_t>(first_row + y));
    if (layout_->bits() < 8) {
      unpack_numbers(row, from, width, static_cast<int>(layout_->bits()), out);
    } else if (layout_->planes() == 1) {
      std::memcpy(out, row + static_cast<std::ptrdiff_t>(from) * step,
                  static_cast<std::size_t>(width) * static_cast<std::size_t>(step));
    } else {
      const std::uint8_t* sample = row + static_cast<std::ptrdiff_t>(from) * bytes;
      std::uint8_t* to = out + static_cast<std::ptrdiff_t>(plane) * bytes;
      for (int x = 0; x < width; ++x, sample += bytes, to += step)
        std::memcpy(to, sample, static_cast<std::size_t>(bytes));
    }
  }
}

void TiffDecoder::correct(std::uint8_t* samples, int width) const {
  const int step = pixel_bytes(*layout_);
  if (layout_->white_is_zero()) {
    const int bytes = sample_bytes(*layout_);
    const auto mask = static_cast<std::uint8_t>((1U << std::min(layout_->bits(), 8U)) - 1);
    for (int x = 0; x < width; ++x) {
      for (int i = 0; i < bytes; ++i) {
        std::uint8_t& sample = samples[static_cast<std::ptrdiff_t>(x) * step + i];
        sample = static_cast<std::uint8_t>(sample ^ mask);
      }
    }
  }
  if (layout_->alpha() == TiffLayout::Alpha::kPremultiplied) {
    const int colors = layout_->color() == TiffLayout::Color::kGray ? 1 : 3;
    for (int x = 0; x < width; ++x)
      divide(samples + static_cast<std::ptrdiff_t>(x) * step, colors, *layout_,
             mode_.bytes_per_value == 1);
  }
}

}  // namespace spdld::media
