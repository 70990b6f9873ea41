// SPDX-License-Identifier: Apache-2.0
#include "media/audio/audio_task.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/rng.h"
#include "media/audio/audio_reader.h"
#include "media/audio/resampler.h"

namespace spdld::media {
namespace {

std::uint64_t bytes_of(const Sound& sound) { return sound.values.capacity() * sizeof(float); }

class AudioWorker final : public FieldWorker {
 public:
  explicit AudioWorker(const AudioTask& task)
      : task_(task), reader_(task.options), resampler_(ResampleOptions{}) {
    for (const AudioTask::Step& step : task.steps) steps_.push_back(step.op->make_step(step.in));
  }

  Result<std::uint64_t> run(SampleInput& sample, std::span<RowOutput> out,
                            std::uint64_t room_bytes) override {
    auto needs = make(sample, room_bytes);
    if (!needs)
      return tl::unexpected<Status>(needs.error().with_context("its field '" + task_.name + "'"));
    if (*needs > 0) return needs;
    return store(out.front());
  }

  std::uint64_t kept_bytes() const override {
    return bytes_of(sound_) + bytes_of(scratch_) + reader_.kept_bytes();
  }

 private:
  Result<std::uint64_t> make(const SampleInput& sample, std::uint64_t room_bytes) {
    SPDLD_ASSIGN(
        const std::uint64_t read,
        reader_.read(sample.part(task_.request), sample.clip(task_.request), sound_, room_bytes));
    if (read > 0) return read;
    const int rate = task_.sample_rate.value_or(sound_.sample_rate);
    const int channels = task_.channels.value_or(sound_.channels);
    const bool resamples = rate != sound_.sample_rate || channels != sound_.channels;
    if (resamples || !steps_.empty()) {
      const auto length = static_cast<std::uint64_t>(
          Resampler::most_length(sound_.length, sound_.sample_rate, rate));
      // Each step may make a sound of about this size out of another one.
      const std::uint64_t taken =
          bytes_of(sound_) + 2 * sizeof(float) * length * static_cast<std::uint64_t>(channels);
      if (taken > room_bytes) return taken;
    }
    if (resamples) {
      SPDLD_TRY(resampler_.run(sound_, reader_.channels(), rate, channels, scratch_));
      std::swap(sound_, scratch_);
    }
    SPDLD_TRY(check_format());
    for (std::size_t i = 0; i < steps_.size(); ++i)
      SPDLD_TRY(
          steps_[i]->run(sound_, scratch_, KeyedRng(mix64(sample.key, task_.steps[i].draw_key))));
    return 0;
  }

  // Clips have one form when their source has indexed them. A file that was changed may have
  // another one.
  Status check_format() const {
    const AudioFormat& known = task_.decoded;
    const auto differs = [](const char* what, std::int64_t is, std::int64_t others) {
      return Status(Code::kDataLoss, std::string(what) + " is " + std::to_string(is) +
                                         ", and that of the others " + std::to_string(others) +
                                         ": it was changed since it was indexed");
    };
    if (known.sample_rate > 0 && sound_.sample_rate != known.sample_rate)
      return differs("its sample rate", sound_.sample_rate, known.sample_rate);
    if (known.channels > 0 && sound_.channels != known.channels)
      return differs("its number of channels", sound_.channels, known.channels);
    if (known.length >= 0 && sound_.length != known.length)
      return differs("its number of samples", sound_.length, known.length);
    return {};
  }

  Result<std::uint64_t> store(RowOutput& out) {
    const std::array<std::int64_t, 3> spectrum{sound_.channels, sound_.bins, sound_.length};
    const std::array<std::int64_t, 2> samples{sound_.channels, sound_.length};
    SPDLD_ASSIGN(std::byte* const to, sound_.bins > 0 ? out.resize(spectrum) : out.resize(samples));
    const auto count = static_cast<std::size_t>(sound_.channels * sound_.row_values());
    if (count > 0) std::memcpy(to, sound_.values.data(), count * sizeof(float));
    return 0;
  }

  const AudioTask& task_;
  AudioReader reader_;
  Resampler resampler_;
  std::vector<std::unique_ptr<AudioStep>> steps_;
  Sound sound_;
  Sound scratch_;
};

}  // namespace

std::unique_ptr<FieldWorker> AudioTask::make_worker() const {
  return std::make_unique<AudioWorker>(*this);
}

void AudioTask::set_tensor(const AudioFormat& made) {
  const bool is_fixed = made.channels > 0 && made.length >= 0;
  TensorSpec tensor{.name = name,
                    .kind = is_fixed ? FieldKind::kDense : FieldKind::kRagged,
                    .dtype = DType::kFloat32};
  // At 48 kHz a minute takes 11 MiB a channel.
  tensor.ample_row = "16MiB";
  const std::int64_t most_channels = made.channels > 0 ? made.channels : options.max_channels;
  tensor.shape.push_back(made.channels > 0 ? made.channels : -1);
  if (made.is_spectrum()) tensor.shape.push_back(made.bins);
  tensor.shape.push_back(made.length);
  const std::int64_t most_length = made.length >= 0 ? made.length : made.max_length;
  if (!is_fixed && most_length >= 0) {
    tensor.max_row_bytes = static_cast<std::uint64_t>(most_channels * std::max(made.bins, 1)) *
                           static_cast<std::uint64_t>(most_length) * sizeof(float);
    tensor.is_loose = true;
    if (is_bound_by_max_seconds) tensor.bounded_by = "decode_audio.max_seconds";
  }
  tensors_.push_back(std::move(tensor));
}

Status AudioChain::append(const AudioOp& op, const StageKey& key) {
  SPDLD_ASSIGN(AudioFormat made, op.output(format_));
  for (AudioFormat& kind : kinds_) {
    Result<AudioFormat> of_kind = op.output(kind);
    if (!of_kind) {
      kinds_.clear();
      break;
    }
    kind = *std::move(of_kind);
  }
  made.agree_on(kinds_);
  task_->steps.push_back({.op = &op, .draw_key = key.draw_key, .in = format_});
  format_ = made;
  return {};
}

Result<std::unique_ptr<FieldTask>> AudioChain::finish(const std::string& name) {
  task_->name = name;
  task_->set_tensor(format_);
  return std::move(task_);
}

}  // namespace spdld::media
