// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transform/sound/fourier_plan.h"

namespace spdld::transform {

enum class Padding { kReflect, kConstant, kReplicate };
enum class MelScale { kHtk, kSlaney };

// torchaudio.transforms.Spectrogram's parameters.
struct SpectrogramParams {
  int n_fft = 400;
  int win_length = 400;
  int hop_length = 200;
  int pad = 0;
  bool magnitude = false;  // power 1; else power 2
  bool normalized = false;
  bool center = true;
  Padding pad_mode = Padding::kReflect;
};

// torchaudio.transforms.MelScale's.
struct MelParams {
  int sample_rate = 16000;
  double f_min = 0;
  double f_max = 8000;
  int n_mels = 128;
  bool slaney_norm = false;
  MelScale scale = MelScale::kHtk;
};

// Values that become factor * ln(max(value + add, floor)). floor > 0.
struct LogScale {
  float factor = 1;
  float add = 0;
  float floor = 1e-10F;
};

// The bins that a band is the weighted sum of.
struct Band {
  int first = 0;
  int count = 0;
  std::size_t weights = 0;  // the first in SpectrumPlan::weights
};

// All that is computed ahead of the first frame. Immutable.
struct SpectrumPlan {
  FourierPlan fourier;
  std::vector<float> window;  // n_fft values
  bool magnitude = false;
  std::vector<Band> bands;  // none: the bins themselves are the result
  std::vector<float> weights;
  bool log = false;
  LogScale log_scale;

  int rows() const { return bands.empty() ? fourier.bins() : static_cast<int>(bands.size()); }
};

SpectrumPlan spectrum_plan(const SpectrogramParams& params);
// torchaudio.functional.melscale_fbanks, of which only what is not 0 is kept.
void add_bands(SpectrumPlan& plan, const MelParams& params);

// torchaudio.functional.create_dct: n_mfcc rows of n_mels.
std::vector<float> cosine_transform(int n_mfcc, int n_mels, bool ortho);

}  // namespace spdld::transform
