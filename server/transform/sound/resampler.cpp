// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/resampler.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/check.h"
#include "transform/sound/wave_kernels.h"

namespace spdld::transform {
namespace {

constexpr double kCrossings = 6;
constexpr double kRolloff = 0.99;
constexpr std::int64_t kBlocksAtOnce = 256;  // while the samples are in the cache

// How far a phase reaches to either side, in samples.
double reach(std::int64_t from, std::int64_t to) {
  return kCrossings * static_cast<double>(from) /
         (static_cast<double>(std::min(from, to)) * kRolloff);
}

std::size_t tap_count(std::int64_t from, std::int64_t to) {
  const auto most = static_cast<std::size_t>(std::floor(2 * reach(from, to))) + 1;
  return (most + 3) / 4 * 4;
}

double weight_at(double t, double scale) {
  const double window = std::cos(t * std::numbers::pi / kCrossings / 2);
  const double angle = t * std::numbers::pi;
  const double sinc = t == 0 ? 1 : std::sin(angle) / angle;
  return sinc * window * window * scale;
}

}  // namespace

std::uint64_t Resampler::weights(std::int64_t from, std::int64_t to) {
  const std::int64_t shared = std::gcd(from, to);
  if (from == to) return 0;
  return static_cast<std::uint64_t>(to / shared) * tap_count(from / shared, to / shared);
}

Resampler::Resampler(std::int64_t from, std::int64_t to)
    : from_(from / std::gcd(from, to)), to_(to / std::gcd(from, to)) {
  SPDLD_CHECK(from > 0 && to > 0);
  if (!changes()) return;
  taps_ = tap_count(from_, to_);
  edge_.resize(taps_);
  weights_.resize(static_cast<std::size_t>(to_) * taps_);
  const double base = static_cast<double>(std::min(from_, to_)) * kRolloff;
  for (std::int64_t phase = 0; phase < to_; ++phase) {
    const double at = static_cast<double>(phase) / static_cast<double>(to_);
    const auto first =
        static_cast<std::int64_t>(std::ceil(at * static_cast<double>(from_) - reach(from_, to_)));
    first_.push_back(first);
    float* const weights = weights_.data() + static_cast<std::size_t>(phase) * taps_;
    for (std::size_t tap = 0; tap < taps_; ++tap) {
      const double sample = static_cast<double>(first + static_cast<std::int64_t>(tap));
      const double t = (sample / static_cast<double>(from_) - at) * base;
      if (std::abs(t) >= kCrossings) continue;  // the window is 0 there
      weights[tap] = static_cast<float>(weight_at(t, base / static_cast<double>(from_)));
    }
  }
}

std::int64_t Resampler::length(std::int64_t length) const {
  return (length * to_ + from_ - 1) / from_;
}

float Resampler::edge_value(std::span<const float> in, std::int64_t block, std::int64_t phase) {
  const std::int64_t first = block * from_ + first_[static_cast<std::size_t>(phase)];
  for (std::size_t tap = 0; tap < taps_; ++tap) {
    const std::int64_t at = first + static_cast<std::int64_t>(tap);
    const bool inside = at >= 0 && at < static_cast<std::int64_t>(in.size());
    edge_[tap] = inside ? in[static_cast<std::size_t>(at)] : 0.0F;
  }
  float value = 0;
  filter_samples(edge_.data(), 0, weights_.data() + static_cast<std::size_t>(phase) * taps_, taps_,
                 &value, 0, 1);
  return value;
}

void Resampler::run(std::span<const float> in, std::span<float> out) {
  if (!changes()) {
    std::copy(in.begin(), in.end(), out.begin());
    return;
  }
  const auto in_size = static_cast<std::int64_t>(in.size());
  const auto out_size = static_cast<std::int64_t>(out.size());
  const auto reach_taps = static_cast<std::int64_t>(taps_);
  const std::int64_t blocks = (out_size + to_ - 1) / to_;
  for (std::int64_t begin = 0; begin < blocks; begin += kBlocksAtOnce) {
    for (std::int64_t phase = 0; phase < to_; ++phase) {
      const std::int64_t first = first_[static_cast<std::size_t>(phase)];
      // Blocks of which this phase is asked for, and those of them whose samples are all there.
      const std::int64_t end = std::min(begin + kBlocksAtOnce, (out_size - phase + to_ - 1) / to_);
      const std::int64_t inner =
          std::clamp(first >= 0 ? 0 : (-first + from_ - 1) / from_, begin, std::max(begin, end));
      const std::int64_t last_begin = in_size - first - reach_taps;
      const std::int64_t inner_end =
          last_begin < 0 ? inner : std::clamp(last_begin / from_ + 1, inner, std::max(inner, end));
      for (std::int64_t block = begin; block < std::min(inner, end); ++block)
        out[static_cast<std::size_t>(block * to_ + phase)] = edge_value(in, block, phase);
      if (inner < inner_end)
        filter_samples(in.data() + inner * from_ + first, static_cast<std::size_t>(from_),
                       weights_.data() + static_cast<std::size_t>(phase) * taps_, taps_,
                       out.data() + inner * to_ + phase, static_cast<std::size_t>(to_),
                       static_cast<std::size_t>(inner_end - inner));
      for (std::int64_t block = std::max(inner, inner_end); block < end; ++block)
        out[static_cast<std::size_t>(block * to_ + phase)] = edge_value(in, block, phase);
    }
  }
}

}  // namespace spdld::transform
