// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "op/audio.h"
#include "tests/unit/transform/made_op.h"

namespace spdld::transform {

using Values = std::map<std::string, ParamValue>;

inline Sound silence(int channels, std::int64_t samples, int sample_rate = 16000) {
  Sound sound;
  sound.sample_rate = sample_rate;
  sound.reshape(channels, 0, samples);
  return sound;
}

// The sound of tests/goldens/make_audio.py.
inline Sound pattern(int channels, std::int64_t samples, int sample_rate = 16000) {
  Sound sound = silence(channels, samples, sample_rate);
  for (int c = 0; c < channels; ++c) {
    for (std::int64_t i = 0; i < samples; ++i) {
      std::int64_t value = (i * (i % 1009) + 37 * c) % 4001 * 4 - 8000;
      value += i % (50 - 13 * c) < 20 ? 6000 : -6000;
      if (i >= samples / 2 && i < samples / 2 + samples / 5) value = 0;
      sound.channel(c)[static_cast<std::size_t>(i)] = static_cast<float>(value) / 32768;
    }
  }
  return sound;
}

inline Sound sine(double hertz, std::int64_t samples, int sample_rate = 16000) {
  Sound sound = silence(1, samples, sample_rate);
  for (std::int64_t i = 0; i < samples; ++i)
    sound.values[static_cast<std::size_t>(i)] = static_cast<float>(
        0.5 * std::sin(2 * std::numbers::pi * hertz * static_cast<double>(i) / sample_rate));
  return sound;
}

inline AudioFormat format_of(const Sound& sound) {
  return {.sample_rate = sound.sample_rate,
          .channels = sound.channels,
          .length = sound.length,
          .bins = sound.bins,
          .max_length = sound.length};
}

// An op and its step for sounds of one format, as a worker has them.
class MadeStep {
 public:
  MadeStep(const std::string& name, Values values, const AudioFormat& in)
      : op_(made<AudioOp>(name, std::move(values))) {
    Result<AudioFormat> out = op_->output(in);
    if (!out) {
      ADD_FAILURE() << out.error().message();
      return;
    }
    out_ = *out;
    step_ = op_->make_step(in);
  }

  const AudioFormat& output() const { return out_; }
  Status run(Sound& sound, std::uint64_t key = 1) {
    return step_->run(sound, scratch_, KeyedRng(key));
  }

 private:
  std::unique_ptr<AudioOp> op_;
  std::unique_ptr<AudioStep> step_;
  AudioFormat out_;
  Sound scratch_;
};

// What the op makes of the sound, which must be what it said.
inline Sound changed(const std::string& name, Values values, Sound sound, std::uint64_t key = 1) {
  MadeStep step(name, std::move(values), format_of(sound));
  const Status done = step.run(sound, key);
  EXPECT_TRUE(done.ok()) << done.message();
  const AudioFormat& out = step.output();
  EXPECT_EQ(sound.channels, out.channels);
  EXPECT_EQ(sound.bins, out.bins);
  EXPECT_EQ(sound.sample_rate, out.sample_rate);
  if (out.length >= 0) {
    EXPECT_EQ(sound.length, out.length);
  }
  EXPECT_LE(sound.length, out.max_length);
  EXPECT_EQ(sound.values.size(), static_cast<std::size_t>(sound.channels * sound.row_values()));
  return sound;
}

// Why an op cannot follow what stands before it.
inline std::string output_refusal(const std::string& name, Values values, const AudioFormat& in) {
  const Result<AudioFormat> out = made<AudioOp>(name, std::move(values))->output(in);
  return out ? "accepted" : out.error().message();
}

// Why it makes nothing of this sound, of which it knows no length ahead.
inline Status data_error(const std::string& name, Values values, Sound sound) {
  AudioFormat in = format_of(sound);
  in.length = in.max_length = -1;
  MadeStep step(name, std::move(values), in);
  return step.run(sound);
}

}  // namespace spdld::transform
