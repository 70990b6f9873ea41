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

// Sounds that take no more are left where they are: their memory is used again for the next row.
constexpr std::uint64_t kSmallBytes = std::uint64_t{8} << 20;

std::uint64_t bytes_of(const Sound& sound) { return sound.values.capacity() * sizeof(float); }

// [channels, length], or of a spectrum [channels, bins, length].
class Shape {
 public:
  Shape(const AudioFormat& format, std::int64_t length) {
    extents_[rank_++] = format.channels;
    if (format.is_spectrum()) extents_[rank_++] = format.bins;
    extents_[rank_++] = length;
  }
  std::span<const std::int64_t> extents() const { return {extents_.data(), rank_}; }

 private:
  std::array<std::int64_t, 3> extents_{};
  std::size_t rank_ = 0;
};

class AudioWorker final : public FieldWorker {
 public:
  explicit AudioWorker(const AudioTask& task)
      : task_(task), reader_(task.options), resampler_(ResampleOptions{}) {}

  Result<std::uint64_t> run(SampleInput& sample, std::span<RowOutput> out,
                            std::uint64_t room_bytes) override {
    auto needs = make(sample, out.front(), room_bytes);
    if (!needs) {
      const std::string field = "its field '" + task_.name + "'";
      Status why = std::move(needs).error();
      // A row over its bound is refused by that name already.
      return tl::unexpected<Status>(why.message().starts_with(field) ? std::move(why)
                                                                     : why.with_context(field));
    }
    if (*needs > 0) return needs;
    return store(out.front());
  }

  std::uint64_t kept_bytes() const override {
    return bytes_of(sound_) + bytes_of(scratch_) + reader_.kept_bytes() + resampler_.kept_bytes() +
           table_bytes_;
  }

 private:
  Result<std::uint64_t> make(const SampleInput& sample, const RowOutput& out,
                             std::uint64_t room_bytes) {
    SPDLD_ASSIGN(const std::uint64_t read, sample.decode([&] {
      return task_.given ? take(*sample.array(*task_.given), room_bytes)
                         : reader_.read(sample.part(task_.request), sample.clip(task_.request),
                                        sound_, room_bytes);
    }));
    if (read > 0) return read;
    const int rate = task_.sample_rate.value_or(sound_.sample_rate);
    const int channels = task_.channels.value_or(sound_.channels);
    SPDLD_TRY(check_kind(rate, channels));
    SPDLD_ASSIGN(const std::uint64_t taken, plan(rate, channels, out));
    if (taken > room_bytes) return taken;
    frees_ = taken > kSmallBytes;
    std::size_t made = 0;
    if (rate != sound_.sample_rate || channels != sound_.channels) {
      make_room(made++);
      SPDLD_TRY(resampler_.run(sound_, reader_.channels(), rate, channels, scratch_));
      std::swap(sound_, scratch_);
    }
    SPDLD_TRY(check_length());
    if (steps_.empty()) make_steps();
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      SPDLD_TRY(sample.check_wanted());
      make_room(made++);
      SPDLD_TRY(
          steps_[i]->run(sound_, scratch_, KeyedRng(mix64(sample.key, task_.steps[i].draw_key))));
    }
    if (frees_) scratch_.values = std::vector<float>();
    return 0;
  }

  // The samples that a call gave back, as AudioReader::read().
  Result<std::uint64_t> take(const PackedRow& row, std::uint64_t room_bytes) {
    if (row.view.empty()) return error(Code::kDataLoss, "came back from 'python' without samples");
    if (row.view.size() > room_bytes) return row.view.size();
    const std::size_t count = row.view.size() / sizeof(float);
    sound_.sample_rate = task_.decoded.sample_rate;
    sound_.renew(task_.decoded.channels, 0,
                 static_cast<std::int64_t>(count) / task_.decoded.channels);
    std::memcpy(sound_.values.data(), row.view.data(), row.view.size());
    return 0;
  }

  // Finds the memory that it takes to make the row of the sound that was read: of all pairs of a
  // sound and what is made of it, the largest one; with what is kept beside them. Sets made_bytes_.
  // An error: a step makes nothing of such a sound, or the row is over its bound.
  Result<std::uint64_t> plan(int rate, int channels, const RowOutput& out) {
    made_bytes_.clear();
    std::uint64_t largest = bytes_of(sound_);
    std::uint64_t last = largest;
    const auto make = [&](std::uint64_t bytes) {
      made_bytes_.push_back(bytes);
      largest = std::max(largest, last + bytes);
      last = bytes;
    };
    std::uint64_t beside = reader_.kept_bytes();
    AudioFormat most{.sample_rate = sound_.sample_rate,
                     .channels = sound_.channels,
                     .max_length = sound_.length};
    // Known until something resamples.
    AudioFormat exact = most;
    exact.length = sound_.length;
    if (rate != sound_.sample_rate || channels != sound_.channels) {
      beside += resampler_.filter_bytes(sound_.sample_rate, rate);
      most.channels = channels;
      if (rate != sound_.sample_rate) {
        most.max_length = Resampler::most_length(sound_.length, sound_.sample_rate, rate);
        most.sample_rate = rate;
        exact.length = -1;
      }
      make(most.most_bytes());
    }
    std::uint64_t tables = 0;
    for (const AudioTask::Step& step : task_.steps) {
      beside += step.op->step_bytes(most);
      tables += step.op->step_bytes({.sample_rate = most.sample_rate, .channels = most.channels});
      const int before = most.sample_rate;
      SPDLD_ASSIGN(most, step.op->output(most));
      if (most.sample_rate != before) exact.length = -1;
      if (exact.length >= 0) {
        SPDLD_ASSIGN(exact, step.op->output(exact));
      }
      make(most.most_bytes());
    }
    table_bytes_ = std::max(table_bytes_, tables);
    if (exact.length >= 0) SPDLD_TRY(out.check(Shape(most, exact.length).extents()));
    const std::uint64_t row = out.resize_bytes(Shape(most, most.max_length).extents());
    return std::max(largest, last + row) + beside;
  }

  void make_steps() {
    std::vector<std::unique_ptr<AudioStep>> steps;
    for (const AudioTask::Step& step : task_.steps) steps.push_back(step.op->make_step(step.in));
    steps_ = std::move(steps);
  }

  // Before the sound that made_bytes_[i] is of is made: of large ones no more is held than what a
  // step is given and what it makes of that.
  void make_room(std::size_t i) {
    if (!frees_) return;
    if (bytes_of(scratch_) > made_bytes_[i]) scratch_.values = std::vector<float>();
    // Shrinking copies, so that both are there for a moment: not to save a little.
    const std::size_t held = sound_.values.size();
    if (i > 0 && sound_.values.capacity() - held > held / 16) sound_.values.shrink_to_fit();
  }

  // Clips have one form when their source has indexed them. A file that was changed may have
  // another one.
  Status check_kind(int rate, int channels) const {
    const AudioFormat& known = task_.decoded;
    if (known.sample_rate > 0 && rate != known.sample_rate)
      return differs("its sample rate", rate, known.sample_rate);
    if (known.channels > 0 && channels != known.channels)
      return differs("its number of channels", channels, known.channels);
    return {};
  }
  Status check_length() const {
    const std::int64_t known = task_.decoded.length;
    if (known < 0 || sound_.length == known) return {};
    return differs("its number of samples", sound_.length, known);
  }
  static Status differs(const char* what, std::int64_t is, std::int64_t others) {
    return {Code::kDataLoss, std::string(what) + " is " + std::to_string(is) +
                                 ", and that of the others " + std::to_string(others) +
                                 ": it was changed since it was indexed"};
  }

  Result<std::uint64_t> store(RowOutput& out) {
    const Shape shape({.channels = sound_.channels, .bins = sound_.bins}, sound_.length);
    SPDLD_ASSIGN(std::byte* const to, out.resize(shape.extents()));
    const auto count = static_cast<std::size_t>(sound_.channels * sound_.row_values());
    if (count > 0) std::memcpy(to, sound_.values.data(), count * sizeof(float));
    return 0;
  }

  const AudioTask& task_;
  AudioReader reader_;
  Resampler resampler_;
  std::vector<std::unique_ptr<AudioStep>> steps_;  // made for the first row
  std::uint64_t table_bytes_ = 0;                  // that they keep
  Sound sound_;
  Sound scratch_;
  // Of the row at hand: what each sound that is made takes; whether these are large.
  std::vector<std::uint64_t> made_bytes_;
  bool frees_ = false;
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
  const int most_channels = made.channels > 0 ? made.channels : options.max_channels;
  tensor.shape.push_back(made.channels > 0 ? made.channels : -1);
  if (made.is_spectrum()) tensor.shape.push_back(made.bins);
  tensor.shape.push_back(made.length);
  const std::int64_t most_length = made.length >= 0 ? made.length : made.max_length;
  if (!is_fixed && most_length >= 0) {
    AudioFormat longest = made;
    longest.channels = most_channels;
    longest.max_length = most_length;
    tensor.max_row_bytes = longest.most_bytes();
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
  task_->largest_known_pair =
      std::max(task_->largest_known_pair, format_.known_bytes() + made.known_bytes());
  format_ = made;
  return {};
}

std::unique_ptr<AudioChain> chain_of_samples(const Field& array) {
  const std::vector<std::int64_t>& shape = array.tensor.shape;
  auto task = std::make_unique<AudioTask>();
  task->given = array.index;
  task->decoded.sample_rate = array.sample_rate;
  task->decoded.channels = shape.size() == 1 ? 1 : static_cast<int>(shape.front());
  task->decoded.length = task->decoded.max_length = shape.back();
  return std::make_unique<AudioChain>(std::move(task));
}

Result<std::unique_ptr<FieldTask>> AudioChain::finish(const std::string& name) {
  task_->name = name;
  task_->set_tensor(format_);
  return std::move(task_);
}

}  // namespace spdld::media
