// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "media/audio/audio_options.h"
#include "op/audio.h"
#include "op/field_chain.h"
#include "op/field_table.h"
#include "op/field_task.h"

namespace spdld::media {

// Makes the row of a field that is sound: decodes the part, or the clip of it, brings it to one
// rate and number of channels where these are given, and does what the ops after it do, all in
// float32 on one core. Or takes the samples that a call gave back, and does that.
class AudioTask final : public FieldTask {
 public:
  struct Step {
    const AudioOp* op = nullptr;
    std::uint64_t draw_key = 0;  // StageKey's
    AudioFormat in;              // what the ops before make
  };

  std::string name;
  std::size_t request = 0;
  std::optional<std::size_t> given;  // SampleInput::array; none: the part is decoded
  AudioOptions options;
  std::optional<int> sample_rate;  // none: as the files have it
  std::optional<int> channels;
  AudioFormat decoded;                   // what is known of the sound before the first step
  bool is_bound_by_max_seconds = false;  // nothing else tells how long it is at most
  std::vector<Step> steps;
  std::uint64_t largest_known_pair = 0;  // known_bytes()

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  std::uint64_t known_bytes() const override { return largest_known_pair; }
  std::optional<std::size_t> array() const override { return given; }
  std::unique_ptr<FieldWorker> make_worker() const override;
  // The one tensor, of what the last step makes: called once, when all else is set.
  void set_tensor(const AudioFormat& made);

 private:
  std::vector<TensorSpec> tensors_;
};

// The chain that decode_audio begins, or the first op on samples that a call gave back, and that
// ops on sound append to.
class AudioChain final : public FieldChain {
 public:
  // `kinds`: what the decoded sounds are, each of which is as one of these; empty: that is not
  // known.
  explicit AudioChain(std::unique_ptr<AudioTask> task, std::vector<AudioFormat> kinds = {})
      : task_(std::move(task)), format_(task_->decoded), kinds_(std::move(kinds)) {}

  std::string_view noun() const override { return "sound"; }
  bool has_sound() const override { return true; }
  using FieldChain::append;
  Status append(const AudioOp& op, const StageKey& key) override;
  Result<std::unique_ptr<FieldTask>> finish(const std::string& name) override;

 private:
  std::unique_ptr<AudioTask> task_;
  AudioFormat format_;              // of the sound so far
  std::vector<AudioFormat> kinds_;  // likewise of each kind
};

// Of an array that a call gives back, which is float32 of [samples] or [channels, samples].
std::unique_ptr<AudioChain> chain_of_samples(const Field& array);

}  // namespace spdld::media
