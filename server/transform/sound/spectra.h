// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "op/audio.h"
#include "transform/scratch/aligned_vector.h"
#include "transform/sound/spectrum_plan.h"

namespace spdld::transform {

// How many frames a sound of `length` samples has. An error says why it has none, for messages of
// the op `op`.
Result<std::int64_t> frame_count(const SpectrogramParams& params, std::int64_t length,
                                 const std::string& op);

// What output() says of a spectrum with `bins` rows; `skipped` frames at the end are left out.
Result<AudioFormat> spectrum_format(const SpectrogramParams& params, const AudioFormat& in,
                                    int bins, std::int64_t skipped, const std::string& op);

// Makes spectra of samples, frames of which never leave the cache on their way to the result. One
// worker's; its memory is all taken when it is made.
class Spectra {
 public:
  // Memory that one takes, of `bands` bands; 0: without bands.
  static std::uint64_t bytes(const SpectrogramParams& params, int bands);

  // `op` is named in messages. The last `skipped` frames of every sound are left out.
  Spectra(const SpectrogramParams& params, SpectrumPlan plan, std::string op,
          std::int64_t skipped = 0);

  // The sound becomes its spectrum, by way of `scratch`. Returns its largest value.
  Result<float> run(Sound& sound, Sound& scratch);

 private:
  struct alignas(64) Lanes {
    float values[kMaxFrames];
  };

  // `count` samples from `begin` on, which may lie before the first and behind the last.
  const float* samples_at(std::span<const float> samples, std::int64_t begin, std::int64_t count);

  SpectrogramParams params_;
  SpectrumPlan plan_;
  std::string op_;
  std::int64_t skipped_;
  AlignedVector<Lanes> scratch_;
  std::vector<float> edge_;
};

}  // namespace spdld::transform
