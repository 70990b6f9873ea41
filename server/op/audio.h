// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "op/op.h"

namespace spdld {

// The form of sound between two stages, as far as it is known before there is any.
struct AudioFormat {
  int sample_rate = 0;       // Hz; 0: it differs from item to item
  int channels = 0;          // 0: likewise
  std::int64_t length = -1;  // samples a channel, or frames of a spectrum; -1: likewise
  // Rows of a spectrum, such as mel bands; 0: these are samples.
  int bins = 0;
  // No item has more than this; -1: unknown.
  std::int64_t max_length = -1;

  bool is_spectrum() const { return bins > 0; }
  // What one such sound takes of memory, as far as that is known: each does, where all have one
  // length; none takes more, where the most is known. 0: neither is.
  std::uint64_t known_bytes() const { return length < 0 ? 0 : bytes_at(length); }
  std::uint64_t most_bytes() const { return max_length < 0 ? 0 : bytes_at(max_length); }
  // Learns how long sounds are of which each has one of these formats. Empty: nothing.
  void agree_on(std::span<const AudioFormat> kinds);
  friend bool operator==(const AudioFormat&, const AudioFormat&) = default;

 private:
  // With one channel where their number is not known. Of what is too long for any memory, some
  // number that no memory has.
  std::uint64_t bytes_at(std::int64_t frames) const;
};

// The sound of one sample between two steps: samples as [channels, length], or a spectrum as
// [channels, bins, length], float32, row by row without gaps. Its memory is reused.
struct Sound {
  std::vector<float> values;
  int sample_rate = 0;
  int channels = 0;
  std::int64_t length = 0;
  int bins = 0;

  std::int64_t row_values() const { return length * (bins > 0 ? bins : 1); }
  std::span<float> channel(int c) {
    return std::span(values).subspan(static_cast<std::size_t>(c * row_values()),
                                     static_cast<std::size_t>(row_values()));
  }
  std::span<const float> channel(int c) const {
    return std::span(values).subspan(static_cast<std::size_t>(c * row_values()),
                                     static_cast<std::size_t>(row_values()));
  }
  // Makes room for a sound of this shape, and no more. The values that were there stay in front.
  void reshape(int new_channels, int new_bins, std::int64_t new_length) {
    channels = new_channels;
    bins = new_bins;
    length = new_length;
    const auto count = static_cast<std::size_t>(channels * row_values());
    values.reserve(count);
    values.resize(count);
  }
  // The same, but the values are whatever they are: memory that is too small is given back before
  // more is taken.
  void renew(int new_channels, int new_bins, std::int64_t new_length) {
    const auto count = static_cast<std::size_t>(new_channels * new_length * std::max(new_bins, 1));
    if (count > values.capacity()) values = std::vector<float>();
    reshape(new_channels, new_bins, new_length);
  }
};

// Runs an AudioOp for one worker: owns tables and scratch, and allocates nothing once it has seen
// the largest sound. Not thread-safe.
class AudioStep {
 public:
  virtual ~AudioStep() = default;

  // Changes `sound` in place, or makes the result in `scratch` and swaps both. An error is the
  // data's (kDataLoss, kInvalidArgument, kResourceExhausted) or kNoMemory; `sound` is lost then.
  // Draws come from `rng` alone.
  virtual Status run(Sound& sound, Sound& scratch, KeyedRng rng) = 0;
};

// An op on sound that was decoded.
class AudioOp : public Op {
 public:
  using Op::Op;
  Status plan(FieldTable& table, const StageKey& key, std::string& doubt) const override;

  // Tells the format that it makes of this one. An error says why the op cannot follow what stands
  // before it, and what to add.
  virtual Result<AudioFormat> output(const AudioFormat& in) const = 0;
  // Memory that a step takes beside the sound and what it makes of it, at most, for sounds of this
  // format: tables, which it keeps, and what is in between, as far as the length is known.
  virtual std::uint64_t step_bytes(const AudioFormat&) const { return 0; }
  // `in`: as output() was given it.
  virtual std::unique_ptr<AudioStep> make_step(const AudioFormat& in) const = 0;
};

}  // namespace spdld
