// SPDX-License-Identifier: Apache-2.0
#include "transform/sound/spectrum_plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace spdld::transform {
namespace {

// Slaney's scale: 3 bands for each 200 Hz below 1 kHz, 27 for each factor of 6.4 above.
constexpr double kSlaneyStep = 200.0 / 3;
constexpr double kSlaneyCorner = 1000.0;
const double kSlaneyLog = std::log(6.4) / 27;

double mel_of(double hertz, MelScale scale) {
  if (scale == MelScale::kHtk) return 2595 * std::log10(1 + hertz / 700);
  if (hertz < kSlaneyCorner) return hertz / kSlaneyStep;
  return kSlaneyCorner / kSlaneyStep + std::log(hertz / kSlaneyCorner) / kSlaneyLog;
}

double hertz_of(double mel, MelScale scale) {
  if (scale == MelScale::kHtk) return 700 * (std::pow(10.0, mel / 2595) - 1);
  const double corner = kSlaneyCorner / kSlaneyStep;
  if (mel < corner) return mel * kSlaneyStep;
  return kSlaneyCorner * std::exp(kSlaneyLog * (mel - corner));
}

}  // namespace

SpectrumPlan spectrum_plan(const SpectrogramParams& params) {
  SpectrumPlan plan;
  plan.fourier = fourier_plan(params.n_fft);
  plan.magnitude = params.magnitude;
  plan.window.resize(static_cast<std::size_t>(params.n_fft));
  // torch.hann_window(win_length), in the middle of the frame.
  const int begin = (params.n_fft - params.win_length) / 2;
  std::vector<double> window(static_cast<std::size_t>(params.win_length));
  double squares = 0;
  for (int i = 0; i < params.win_length; ++i) {
    const double value = params.win_length == 1
                             ? 1
                             : 0.5 - 0.5 * std::cos(2 * std::numbers::pi * i / params.win_length);
    window[static_cast<std::size_t>(i)] = value;
    squares += value * value;
  }
  // The kernel's bins are twice those of the transform.
  const double scale = 0.5 / (params.normalized ? std::sqrt(squares) : 1);
  for (int i = 0; i < params.win_length; ++i)
    plan.window[static_cast<std::size_t>(begin + i)] =
        static_cast<float>(window[static_cast<std::size_t>(i)] * scale);
  return plan;
}

void add_bands(SpectrumPlan& plan, const MelParams& params) {
  const auto edge = [&](int i) {
    const double low = mel_of(params.f_min, params.scale);
    const double high = mel_of(params.f_max, params.scale);
    return hertz_of(low + (high - low) * i / (params.n_mels + 1), params.scale);
  };
  const int bins = plan.fourier.bins();
  const int top = params.sample_rate / 2;  // as torchaudio has it, of odd rates, too
  for (int m = 0; m < params.n_mels; ++m) {
    const double left = edge(m);
    const double middle = edge(m + 1);
    const double right = edge(m + 2);
    const double norm = params.slaney_norm ? 2 / (right - left) : 1;
    Band band{.first = 0, .count = 0, .weights = plan.weights.size()};
    for (int bin = 0; bin < bins; ++bin) {
      const double hertz = static_cast<double>(top) * bin / (bins - 1);
      const double up = (hertz - left) / (middle - left);
      const double down = (right - hertz) / (right - middle);
      const double weight = std::min(up, down);
      if (!(weight > 0)) continue;
      if (band.count == 0) band.first = bin;
      ++band.count;
      plan.weights.push_back(static_cast<float>(weight * norm));
    }
    plan.bands.push_back(band);
  }
}

std::vector<float> cosine_transform(int n_mfcc, int n_mels, bool ortho) {
  std::vector<float> rows;
  rows.reserve(static_cast<std::size_t>(n_mfcc) * static_cast<std::size_t>(n_mels));
  for (int k = 0; k < n_mfcc; ++k) {
    const double scale =
        !ortho ? 2 : std::sqrt(2.0 / n_mels) * (k == 0 ? std::numbers::sqrt2 / 2 : 1);
    for (int n = 0; n < n_mels; ++n)
      rows.push_back(
          static_cast<float>(scale * std::cos(std::numbers::pi / n_mels * (n + 0.5) * k)));
  }
  return rows;
}

}  // namespace spdld::transform
