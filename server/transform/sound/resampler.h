// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spdld::transform {

// Changes the rate of samples as torchaudio.functional.resample does with its defaults: a sinc with
// a Hann window over 6 zero crossings and a roll-off of 0.99. Its weights are float64 rounded to
// float32, as torchaudio's. One worker's.
class Resampler {
 public:
  // Rates above 0.
  Resampler(std::int64_t from, std::int64_t to);

  // Floats that the weights of a Resampler would take.
  static std::uint64_t weights(std::int64_t from, std::int64_t to);

  // How many samples become of `length`.
  std::int64_t length(std::int64_t length) const;
  bool changes() const { return from_ != to_; }

  // `out` holds length(in.size()) samples.
  void run(std::span<const float> in, std::span<float> out);

 private:
  // The value at phase `phase` of the block `block`, which may reach over the ends of `in`.
  float edge_value(std::span<const float> in, std::int64_t block, std::int64_t phase);

  // Of the ratio in lowest terms: `from` samples, a block, become `to`, each a phase of its own.
  std::int64_t from_;
  std::int64_t to_;
  std::size_t taps_ = 0;             // of each phase; a multiple of 4
  std::vector<std::int64_t> first_;  // by phase: the first sample, from the block's begin
  std::vector<float> weights_;       // by phase
  std::vector<float> edge_;
};

}  // namespace spdld::transform
