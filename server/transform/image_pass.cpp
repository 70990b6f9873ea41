// SPDX-License-Identifier: Apache-2.0
#include "transform/image_pass.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace spdld::transform {
namespace {

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

template <typename T>
void grow(std::vector<T>& buffer, std::size_t size) {
  if (buffer.size() < size) buffer.resize(size);
}

// The request for the part [from, from + size) of an axis scaled to `out` pixels.
AxisFilter::Request request_for(const Geometry& geometry, int in, int out, int from, int size) {
  return {.in = in,
          .out = out,
          .begin = std::max(from, 0),
          .end = std::min(from + size, out),
          .interpolation = geometry.interpolation,
          .antialias = geometry.antialias};
}

}  // namespace

std::uint64_t ImagePass::most_bytes(const Geometry& geometry, int channels) {
  constexpr int kWidestSupport = 2;  // bicubic's, on either side, in output rows when scaled down
  const int per_row = geometry.scaled.height >= geometry.crop.height
                          ? 1
                          : geometry.crop.height / geometry.scaled.height + 1;
  const auto kept = static_cast<std::uint64_t>(
      geometry.resizes() ? std::min(geometry.crop.height, (2 * kWidestSupport + 1) * per_row + 2)
                         : 1);
  const std::size_t row = static_cast<std::size_t>(geometry.window.width + 2 * kRowSlack) *
                          static_cast<std::size_t>(channels);
  return (kept + 1) * row;  // one more for what is blended of them
}

Rect ImagePass::begin(const Geometry& geometry, int channels, const ImageTarget& target) {
  const Rect& crop = geometry.crop;
  const Rect& window = geometry.window;
  SPDLD_CHECK(channels == 1 || channels == 3);
  SPDLD_CHECK(crop.width > 0 && crop.height > 0 && window.width > 0 && window.height > 0);
  channels_ = channels;
  output_ = geometry.output();
  layout_ = target.layout;
  flip_ = geometry.flip;
  out_ = target.data;
  converter_ = PixelConverter(target.format, channels);
  next_source_row_ = 0;
  next_output_row_ = 0;

  const AxisFilter::Request columns =
      request_for(geometry, crop.width, geometry.scaled.width, window.x, window.width);
  const AxisFilter::Request rows =
      request_for(geometry, crop.height, geometry.scaled.height, window.y, window.height);
  shown_columns_ = {columns.begin - window.x, columns.end - columns.begin};
  shown_rows_ = {rows.begin - window.y, rows.end - rows.begin};
  const bool empty = shown_columns_.size <= 0 || shown_rows_.size <= 0;
  if (empty) shown_columns_ = shown_rows_ = {};
  if (flip_) shown_columns_.begin = output_.width - shown_columns_.begin - shown_columns_.size;
  shape_rows();
  write_black(0, shown_rows_.begin);
  write_black(shown_rows_.begin + shown_rows_.size, output_.height);
  region_height_ = 0;
  if (empty) return {};

  resizes_columns_ = columns.in != columns.out;
  Rect region{crop.x + columns.begin, crop.y + rows.begin, shown_columns_.size, shown_rows_.size};
  if (resizes_columns_) {
    column_filter_.build(columns);
    column_resizer_.plan(column_filter_, channels, flip_);
    region.x = crop.x + column_filter_.source_begin();
    region.width = column_filter_.source_end() - column_filter_.source_begin();
  }
  resizes_rows_ = rows.in != rows.out;
  if (resizes_rows_) {
    plan_rows(rows);
    region.y = crop.y + row_filter_.source_begin();
    region.height = row_filter_.source_end() - row_filter_.source_begin();
  } else {
    kept_rows_ = 1;
  }
  region_height_ = region.height;
  const std::size_t kept = static_cast<std::size_t>(kept_rows_) * row_stride_;
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

void ImagePass::plan_rows(const AxisFilter::Request& request) {
  if (row_filter_.build(request)) {
    const auto size = static_cast<std::size_t>(row_filter_.size());
    complete_at_.resize(size);
    needed_from_.resize(size);
    int complete = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const AxisFilter::Span& span = row_filter_.span(static_cast<int>(i));
      complete = std::max(complete, span.first + span.count);
      complete_at_[i] = complete;
    }
    int needed = request.in;
    kept_rows_ = 1;
    for (std::size_t i = size; i-- > 0;) {
      needed = std::min(needed, row_filter_.span(static_cast<int>(i)).first);
      needed_from_[i] = needed;
    }
  }
  kept_rows_ = 1;
  for (std::size_t i = 0; i < complete_at_.size(); ++i) {
    kept_rows_ = std::max(kept_rows_, complete_at_[i] - needed_from_[i]);
  }
  const auto pairs = static_cast<std::size_t>((row_filter_.max_count() + 1) / 2);
  grow(row_weights_, pairs);
  grow(row_pointers_, 2 * pairs);
}

void ImagePass::row(int y, const std::uint8_t* pixels) {
  SPDLD_CHECK(y == next_source_row_ && y < region_height_);
  ++next_source_row_;
  if (!resizes_rows_) {
    make_columns(pixels, kept_row(0));
    write_row(shown_rows_.begin + next_output_row_++, kept_row(0));
    return;
  }
  const int source = row_filter_.source_begin() + y;
  if (next_output_row_ == shown_rows_.size ||
      source < needed_from_[static_cast<std::size_t>(next_output_row_)]) {
    return;
  }
  make_columns(pixels, kept_row(source));
  while (next_output_row_ < shown_rows_.size &&
         complete_at_[static_cast<std::size_t>(next_output_row_)] == source + 1) {
    write_blended(next_output_row_++);
  }
}

void ImagePass::finish() {
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
  if (!resizes_columns_) {
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
  const AxisFilter::Span& span = row_filter_.span(i);
  const std::int32_t* const weights = row_filter_.weights(i);
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
  const auto height = static_cast<std::size_t>(output_.height);
  const std::size_t row = segment * height + static_cast<std::size_t>(y);
  return out_ + row * segment_values_ * converter_.value_bytes();
}

}  // namespace spdld::transform
