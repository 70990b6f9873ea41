// SPDX-License-Identifier: Apache-2.0
#include "media/video/chroma_axis.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/check.h"

namespace spdld::media {
namespace {

constexpr int kTaps = 3;
constexpr int kRowBits = 12;  // of the weights of rows
constexpr std::int64_t kUnit = std::int64_t{1} << 30;
constexpr std::int64_t kNothing = kUnit / 500;  // of less, swscale drops a tap

// The samples from `begin` on that a pixel is made of.
struct Filter {
  std::int32_t begin = 0;
  std::array<std::int64_t, kTaps> weights{};
};

// Which pixel the filters of swscale's initFilter() begin at, and how they weigh, before they are
// brought inside the axis. Returns how many taps they have.
int make_filters(int samples, int pixels, int position, std::vector<Filter>& filters) {
  const int size = std::clamp(samples - 2, 1, kTaps);
  const std::int64_t step = ((std::int64_t{samples} << 16) + (pixels >> 1)) / pixels;
  // In halves of 1/65536 of a sample.
  std::int64_t at = ((128 * step) >> 7) - ((std::int64_t{position} << 16) >> 7);
  for (int i = 0; i < pixels; ++i, at += 2 * step) {
    Filter& filter = filters[static_cast<std::size_t>(i)];
    filter.begin = static_cast<std::int32_t>((at - (size - 2) * (std::int64_t{1} << 16)) /
                                             (std::int64_t{1} << 17));
    for (int j = 0; j < size; ++j) {
      const std::int64_t sample = std::int64_t{filter.begin} + j;
      const std::int64_t distance = std::abs(sample * (std::int64_t{1} << 17) - at) << 13;
      filter.weights[static_cast<std::size_t>(j)] = std::max<std::int64_t>(kUnit - distance, 0);
    }
  }
  // Taps of no weight are left out, on the left as long as the filters' begins ascend.
  int needed = 1;
  for (int i = pixels - 1; i >= 0; --i) {
    Filter& filter = filters[static_cast<std::size_t>(i)];
    std::int64_t lost = 0;
    for (int j = 0; j < size; ++j) {
      lost += filter.weights[0];
      if (lost > kNothing) break;
      if (i < pixels - 1 && filter.begin >= filters[static_cast<std::size_t>(i) + 1].begin) break;
      std::rotate(filter.weights.begin(), filter.weights.begin() + 1, filter.weights.end());
      filter.weights.back() = 0;
      ++filter.begin;
    }
    lost = 0;
    int kept = size;
    while (kept > 1) {
      lost += filter.weights[static_cast<std::size_t>(kept) - 1];
      if (lost > kNothing) break;
      --kept;
    }
    needed = std::max(needed, kept);
  }
  return needed;
}

// A tap beyond the axis weighs on its first or last sample instead. Weights are rounded to
// `bits` bits, of which the first sample's come first, as swscale rounds them.
ChromaTap inside(const Filter& filter, int size, int samples, int bits) {
  std::array<std::int64_t, 2> weights{filter.weights[0], size > 1 ? filter.weights[1] : 0};
  std::int32_t begin = filter.begin;
  if (begin < 0) {
    weights = {weights[0] + weights[1], 0};
    begin = 0;
  }
  if (begin + size > samples) {
    begin = samples - size;
    weights = size > 1 ? std::array<std::int64_t, 2>{0, weights[0] + weights[1]} : weights;
  }
  const std::int64_t sum = std::max<std::int64_t>(weights[0] + weights[1], 1);
  const std::int64_t one = std::int64_t{1} << bits;
  const std::int64_t first_weight = (weights[0] * one + sum / 2) / sum;
  return {.first = begin,
          .second = begin + (size > 1 ? 1 : 0),
          .weight = size > 1 ? static_cast<std::int32_t>((one - first_weight)
                                                         << (ChromaTap::kBits - bits))
                             : 0};
}

}  // namespace

void ChromaAxis::build(int samples, int pixels, int shift, int position, bool is_rows) {
  SPDLD_CHECK(samples > 0 && pixels > 0 && shift >= 0);
  if (shift != 1) position = shift == 0 ? kFirst : kBetween;
  if (samples == samples_ && pixels == pixels_ && shift == shift_ && position == position_ &&
      is_rows == is_rows_)
    return;
  samples_ = samples;
  pixels_ = pixels;
  shift_ = shift;
  position_ = position;
  is_rows_ = is_rows;
  is_full_ = shift == 0;
  is_regular_ = shift == 1 && samples > kTaps && pixels == 2 * samples && position != kSecond;
  taps_.resize(static_cast<std::size_t>(pixels));
  if (is_full_) {
    for (int i = 0; i < pixels; ++i) taps_[static_cast<std::size_t>(i)] = {i, i, 0};
    return;
  }
  // In 1/128 of a sample, from the begin of the axis: what swscale's get_local_pos() gives.
  const int local = shift == 1 ? (position + 128) >> 1 : 128;
  std::vector<Filter> filters(taps_.size());
  const int size = make_filters(samples, pixels, local, filters);
  SPDLD_CHECK(size <= 2);
  for (std::size_t i = 0; i < taps_.size(); ++i) {
    ChromaTap tap = inside(filters[i], size, samples, is_rows ? kRowBits : ChromaTap::kBits);
    if (is_rows && size == 2) {
      const bool is_mean = tap.weight >= ChromaTap::kOne / 2;
      tap.weight = is_mean ? ChromaTap::kOne / 2 : 0;
      if (!is_mean) tap.second = tap.first;
    }
    taps_[i] = tap;
  }
}

}  // namespace spdld::media
