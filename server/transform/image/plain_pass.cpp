// SPDX-License-Identifier: Apache-2.0
#include "transform/image/plain_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "transform/scratch/grow.h"

namespace spdld::transform {
namespace {

// A weighted sum of values; tap(i) is the value for weight i.
template <typename Value, typename Tap>
Value weigh(const AxisFilter& filter, int i, const Tap& tap) {
  const int count = filter.span(i).count;
  if constexpr (std::is_same_v<Value, std::uint8_t>) {
    const std::int32_t* const weights = filter.weights(i);
    std::int32_t sum = 1 << (kWeightBits - 1);
    for (int t = 0; t < count; ++t) sum += weights[t] * tap(t);
    return static_cast<Value>(std::clamp(sum >> kWeightBits, 0, 255));
  } else {
    const double* const weights = filter.exact_weights(i);
    double sum = 0.5;
    for (int t = 0; t < count; ++t) sum += weights[t] * tap(t);
    return static_cast<Value>(std::clamp(std::floor(sum), 0.0, 65535.0));
  }
}

}  // namespace

Rect PlainPass::begin(const Geometry& geometry, int channels, int bytes_per_value,
                      const ImageTarget& target) {
  SPDLD_CHECK(channels >= 1 && channels <= 4 && (bytes_per_value == 1 || bytes_per_value == 2));
  channels_ = channels;
  bytes_per_value_ = bytes_per_value;
  output_ = geometry.output();
  planar_ = target.layout == Layout::kNCHW;
  flip_ = geometry.flip;
  out_ = target.data;
  plane_values_ = target.plane_pixels;
  converter_ = PixelConverter(target.format, channels, bytes_per_value);
  next_source_row_ = 0;
  next_output_row_ = 0;
  const Rect region = plan_.build(geometry, bytes_per_value == 2);
  region_height_ = region.height;
  const PassPlan::Shown& columns = plan_.columns();
  shown_begin_ = flip_ ? output_.width - columns.begin - columns.size : columns.begin;
  row_bytes_ = static_cast<std::size_t>(output_.width) * static_cast<std::size_t>(channels) *
               static_cast<std::size_t>(bytes_per_value);
  grow(blended_, row_bytes_);
  write_black(0, plan_.rows().begin);
  write_black(plan_.rows().begin + plan_.rows().size, output_.height);
  const std::size_t kept = static_cast<std::size_t>(plan_.kept_rows()) * row_bytes_;
  grow(kept_, kept);
  std::fill_n(kept_.begin(), kept, std::uint8_t{0});
  return region;
}

void PlainPass::row(int y, const std::uint8_t* pixels) {
  SPDLD_CHECK(y == next_source_row_ && y < region_height_);
  ++next_source_row_;
  const bool resizes = plan_.resizes_rows();
  const int source = resizes ? plan_.row_filter().source_begin() + y : 0;
  if (resizes &&
      (next_output_row_ == plan_.rows().size || source < plan_.needed_from(next_output_row_)))
    return;
  std::uint8_t* const kept = kept_row(source);
  if (bytes_per_value_ == 1) {
    make_columns<std::uint8_t>(pixels, kept);
  } else {
    make_columns<std::uint16_t>(pixels, kept);
  }
  if (!resizes) {
    write_row(plan_.rows().begin + next_output_row_++, kept);
    return;
  }
  while (next_output_row_ < plan_.rows().size &&
         plan_.complete_at(next_output_row_) == source + 1) {
    if (bytes_per_value_ == 1) {
      blend<std::uint8_t>(next_output_row_);
    } else {
      blend<std::uint16_t>(next_output_row_);
    }
    write_row(plan_.rows().begin + next_output_row_++, blended_.data());
  }
}

void PlainPass::finish() {
  SPDLD_CHECK(next_source_row_ == region_height_ && next_output_row_ == plan_.rows().size);
}

template <typename Value>
void PlainPass::make_columns(const std::uint8_t* pixels, std::uint8_t* row) const {
  const auto value_at = [&](int x, int c) {
    Value value;  // source rows may lie anywhere
    std::memcpy(&value, pixels + static_cast<std::ptrdiff_t>(x * channels_ + c) * sizeof(value),
                sizeof(value));
    return value;
  };
  auto* const made = reinterpret_cast<Value*>(row);
  const int size = plan_.columns().size;
  const AxisFilter& filter = plan_.column_filter();
  for (int x = 0; x < size; ++x) {
    const int from = flip_ ? size - 1 - x : x;
    for (int c = 0; c < channels_; ++c) {
      Value& out = made[place(shown_begin_ + x, c)];
      if (plan_.resizes_columns()) {
        const int first = filter.span(from).first - filter.source_begin();
        out = weigh<Value>(filter, from, [&](int t) { return value_at(first + t, c); });
      } else {
        out = value_at(from, c);
      }
    }
  }
}

template <typename Value>
void PlainPass::blend(int i) {
  const AxisFilter& filter = plan_.row_filter();
  const int first = filter.span(i).first;
  auto* const out = reinterpret_cast<Value*>(blended_.data());
  for (int at = 0; at < output_.width * channels_; ++at) {
    out[at] = weigh<Value>(
        filter, i, [&](int t) { return reinterpret_cast<const Value*>(kept_row(first + t))[at]; });
  }
}

void PlainPass::write_row(int y, const std::uint8_t* row) {
  const auto width = static_cast<std::size_t>(output_.width);
  const auto channels = static_cast<std::size_t>(channels_);
  const std::size_t value = converter_.value_bytes();
  if (!planar_) {
    converter_.convert_interleaved(row, width * channels,
                                   out_ + static_cast<std::size_t>(y) * width * channels * value);
    return;
  }
  const std::size_t plane =
      plane_values_ > 0 ? plane_values_ : static_cast<std::size_t>(output_.height) * width;
  for (std::size_t c = 0; c < channels; ++c) {
    const std::size_t values = c * plane + static_cast<std::size_t>(y) * width;
    converter_.convert_plane(row + c * width * static_cast<std::size_t>(bytes_per_value_), width,
                             static_cast<int>(c), out_ + values * value);
  }
}

void PlainPass::write_black(int begin, int end) {
  if (begin == end) return;
  std::fill(blended_.begin(), blended_.end(), std::uint8_t{0});
  for (int y = begin; y < end; ++y) write_row(y, blended_.data());
}

}  // namespace spdld::transform
