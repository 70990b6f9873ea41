// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/params.h"
#include "transform/sound/spectrum_plan.h"

// What the tables of several ops on spectra share.
namespace spdld::transform {

// torchaudio.transforms.Spectrogram's parameters.
std::vector<ParamInfo> spectrogram_params();
// An error is of the op `op`: what its table cannot say.
Result<SpectrogramParams> spectrogram_of(const Params& params, const std::string& op);

// Those that torchaudio.transforms.MelSpectrogram has, too.
std::vector<ParamInfo> mel_params();

// torchaudio.transforms.MelScale's, for which there may be no sample rate yet.
struct MelOptions {
  int n_mels = 128;
  double f_min = 0;
  std::optional<double> f_max;  // not given: half the sample rate
  bool slaney_norm = false;
  MelScale scale = MelScale::kHtk;
};
MelOptions mel_options_of(const Params& params);
Result<MelParams> mel_params_at(const MelOptions& options, int sample_rate, const std::string& op);

}  // namespace spdld::transform
