// SPDX-License-Identifier: Apache-2.0
#include "transform/image/image_pass.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "transform/scratch/grow.h"

namespace spdld::transform {
namespace {

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

namespace {

// What the tables of one axis take, of which the window shows `shown` outputs.
std::uint64_t table_bytes(const Geometry& geometry, int in, int out, int shown) {
  if (in == out) return 0;
  // Weights, in double precision where pixels have 16 bits, and what row kernels make of them.
  constexpr std::uint64_t kTapBytes = 28;
  constexpr std::uint64_t kOutputBytes = 32;  // where its pixels begin
  const int support = geometry.interpolation == Interpolation::kBicubic ? 2 : 1;
  const std::uint64_t taps =
      8 + 2 * static_cast<std::uint64_t>(support) *
              (static_cast<std::uint64_t>(in) / static_cast<std::uint64_t>(out) + 1);
  return static_cast<std::uint64_t>(std::min(out, shown)) * (kOutputBytes + taps * kTapBytes);
}

}  // namespace

std::uint64_t ImagePass::most_bytes(const Geometry& geometry, int pixel_bytes) {
  constexpr int kWidestSupport = 2;  // bicubic's, on either side, in output rows when scaled down
  const int per_row = geometry.scaled.height >= geometry.crop.height
                          ? 1
                          : geometry.crop.height / geometry.scaled.height + 1;
  const auto kept = static_cast<std::uint64_t>(
      geometry.resizes() ? std::min(geometry.crop.height, (2 * kWidestSupport + 1) * per_row + 2)
                         : 1);
  const std::size_t row = static_cast<std::size_t>(geometry.window.width + 2 * kRowSlack) *
                          static_cast<std::size_t>(pixel_bytes);
  return (kept + 1) * row +  // one more for what is blended of them
         table_bytes(geometry, geometry.crop.width, geometry.scaled.width, geometry.window.width) +
         table_bytes(geometry, geometry.crop.height, geometry.scaled.height,
                     geometry.window.height);
}

Rect ImagePass::begin(const Geometry& geometry, int channels, const ImageTarget& target,
                      int bytes_per_value) {
  SPDLD_CHECK(geometry.crop.width > 0 && geometry.crop.height > 0 && geometry.window.width > 0 &&
              geometry.window.height > 0);
  is_plain_ = bytes_per_value != 1 || (channels != 1 && channels != 3);
  if (is_plain_) return plain_.begin(geometry, channels, bytes_per_value, target);
  channels_ = channels;
  output_ = geometry.output();
  layout_ = target.layout;
  flip_ = geometry.flip;
  out_ = target.data;
  plane_values_ = target.plane_pixels;
  converter_ = PixelConverter(target.format, channels);
  next_source_row_ = 0;
  next_output_row_ = 0;

  const Rect region = plan_.build(geometry, false);
  region_height_ = region.height;
  shown_columns_ = plan_.columns();
  shown_rows_ = plan_.rows();
  if (flip_) shown_columns_.begin = output_.width - shown_columns_.begin - shown_columns_.size;
  shape_rows();
  write_black(0, shown_rows_.begin);
  write_black(shown_rows_.begin + shown_rows_.size, output_.height);
  if (region_height_ == 0) return {};

  if (plan_.resizes_columns()) column_resizer_.plan(plan_.column_filter(), channels, flip_);
  if (plan_.resizes_rows()) {
    const auto pairs = static_cast<std::size_t>((plan_.row_filter().max_count() + 1) / 2);
    grow(row_weights_, pairs);
    grow(row_pointers_, 2 * pairs);
  }
  const std::size_t kept = static_cast<std::size_t>(plan_.kept_rows()) * row_stride_;
  grow(kept_, kept);
  if (shown_columns_.size < output_.width) std::fill_n(kept_.begin(), kept, std::uint8_t{0});
  return region;
}

void ImagePass::shape_rows() {
  const auto width = static_cast<std::size_t>(output_.width);
  const auto channels = static_cast<std::size_t>(channels_);
  segments_ = layout_ == Layout::kNCHW ? channels : 1;
  segment_values_ = width * channels / segments_;
  segment_stride_ = round_up(segment_values_, kRowSlack) + kRowSlack;
  row_stride_ = segments_ * segment_stride_;
  grow(blended_, row_stride_);
}

void ImagePass::row(int y, const std::uint8_t* pixels) {
  if (is_plain_) return plain_.row(y, pixels);
  SPDLD_CHECK(y == next_source_row_ && y < region_height_);
  ++next_source_row_;
  if (!plan_.resizes_rows()) {
    make_columns(pixels, kept_row(0));
    write_row(shown_rows_.begin + next_output_row_++, kept_row(0));
    return;
  }
  const int source = plan_.row_filter().source_begin() + y;
  if (next_output_row_ == shown_rows_.size || source < plan_.needed_from(next_output_row_)) return;
  make_columns(pixels, kept_row(source));
  while (next_output_row_ < shown_rows_.size && plan_.complete_at(next_output_row_) == source + 1) {
    write_blended(next_output_row_++);
  }
}

void ImagePass::finish() {
  if (is_plain_) return plain_.finish();
  SPDLD_CHECK(next_source_row_ == region_height_ && next_output_row_ == shown_rows_.size);
}

// Crops, resizes, flips and lays out one source row.
void ImagePass::make_columns(const std::uint8_t* pixels, std::uint8_t* row) {
  const auto channels = static_cast<std::size_t>(channels_);
  const auto begin = static_cast<std::size_t>(shown_columns_.begin);
  const auto size = static_cast<std::size_t>(shown_columns_.size);
  const bool planar = segments_ > 1;
  const RowTarget target{.data = row + (segments_ > 1 || channels_ == 1 ? begin : begin * channels),
                         .plane_stride = planar ? segment_stride_ : 0};
  if (!plan_.resizes_columns()) {
    arrange_row(pixels, size, channels_, flip_, target);
    return;
  }
  column_resizer_.resize(pixels, target);
  // Groups wrote past the last column.
  const std::size_t after = static_cast<std::size_t>(output_.width) - begin - size;
  if (after == 0) return;
  for (std::size_t s = 0; s < segments_; ++s) {
    const std::size_t per_column = channels / segments_;
    std::memset(row + s * segment_stride_ + (begin + size) * per_column, 0, after * per_column);
  }
}

void ImagePass::write_blended(int i) {
  const AxisFilter& filter = plan_.row_filter();
  const AxisFilter::Span& span = filter.span(i);
  const std::int32_t* const weights = filter.weights(i);
  const int pairs = (span.count + 1) / 2;
  for (int tap = 0; tap < 2 * pairs; ++tap) {
    // An odd count's last partner weighs nothing.
    row_pointers_[static_cast<std::size_t>(tap)] =
        kept_row(span.first + std::min(tap, span.count - 1));
  }
  for (int pair = 0; pair < pairs; ++pair) {
    row_weights_[static_cast<std::size_t>(pair)] =
        WeightPair::of(weights[2 * pair], weights[2 * pair + 1]);
  }
  const int y = shown_rows_.begin + i;
  const bool in_place = converter_.value_bytes() == 1;
  for (std::size_t s = 0; s < segments_; ++s) {
    auto* const out = in_place ? reinterpret_cast<std::uint8_t*>(row_out(y, s))
                               : blended_.data() + s * segment_stride_;
    const auto blend = has_avx512_ ? avx512::blend_rows : blend_rows;
    blend(row_pointers_.data(), row_weights_.data(), pairs, segment_values_, out);
    for (int tap = 0; tap < 2 * pairs; ++tap) {
      row_pointers_[static_cast<std::size_t>(tap)] += segment_stride_;
    }
  }
  if (!in_place) write_row(y, blended_.data());
}

void ImagePass::write_row(int y, const std::uint8_t* row) {
  if (segments_ == 1) {
    converter_.convert_interleaved(row, segment_values_, row_out(y, 0));
    return;
  }
  for (std::size_t s = 0; s < segments_; ++s) {
    converter_.convert_plane(row + s * segment_stride_, segment_values_, static_cast<int>(s),
                             row_out(y, s));
  }
}

void ImagePass::write_black(int begin, int end) {
  if (begin == end) return;
  std::fill(blended_.begin(), blended_.end(), std::uint8_t{0});
  for (int y = begin; y < end; ++y) write_row(y, blended_.data());
}

std::byte* ImagePass::row_out(int y, std::size_t segment) const {
  const std::size_t plane = plane_values_ > 0
                                ? plane_values_
                                : static_cast<std::size_t>(output_.height) * segment_values_;
  const std::size_t values = segment * plane + static_cast<std::size_t>(y) * segment_values_;
  return out_ + values * converter_.value_bytes();
}

}  // namespace spdld::transform
