// SPDX-License-Identifier: Apache-2.0
#include "media/audio/decode_audio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "media/audio/resample_op.h"
#include "media/audio/resampler.h"
#include "op/audio.h"
#include "tests/unit/media/audio/sound_reference.h"
#include "tests/unit/media/audio/wav_maker.h"
#include "tests/unit/media/container/media_maker.h"
#include "tests/unit/op/fake_sample.h"

namespace spdld::media::test {
namespace {

using spdld::testing::FakeOutput;
using spdld::testing::FakeSample;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Values = std::map<std::string, ParamValue>;

constexpr std::uint64_t kRoom = std::uint64_t{1} << 30;

Values decode_params(Values more) {
  more.insert({{"field", std::string("audio")},
               {"stream", std::string("best")},
               {"max_seconds", 600.0},
               {"max_channels", std::int64_t{8}}});
  return more;
}

Values resample_params(std::int64_t rate) {
  return {{"sample_rate", rate},
          {"filter_size", std::int64_t{32}},
          {"phase_shift", std::int64_t{10}},
          {"linear_interp", true},
          {"exact_rational", true},
          {"cutoff", 0.97},
          {"filter_type", std::string("kaiser")},
          {"kaiser_beta", 9.0}};
}

// Adds a number that it draws to each sample.
class AddDraw final : public AudioOp {
 public:
  AddDraw() : AudioOp(std::vector<std::string>()) {}
  Result<AudioFormat> output(const AudioFormat& in) const override { return in; }
  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    class Step final : public AudioStep {
     public:
      Status run(Sound& sound, Sound&, KeyedRng rng) override {
        const auto drawn = static_cast<float>(rng.uniform());
        for (float& value : sound.channel(0)) value += drawn;
        return {};
      }
    };
    return std::make_unique<Step>();
  }
};

// Three rows for each channel, and one frame for ten samples.
class Spectrum final : public AudioOp {
 public:
  Spectrum() : AudioOp(std::vector<std::string>()) {}
  Result<AudioFormat> output(const AudioFormat& in) const override {
    AudioFormat out = in;
    out.bins = 3;
    if (in.length >= 0) out.length = in.length / 10;
    if (in.max_length >= 0) out.max_length = in.max_length / 10;
    return out;
  }
  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    class Step final : public AudioStep {
     public:
      Status run(Sound& sound, Sound& scratch, KeyedRng) override {
        scratch.reshape(sound.channels, 3, sound.length / 10);
        std::fill(scratch.values.begin(), scratch.values.end(), 2.0F);
        std::swap(sound, scratch);
        return {};
      }
    };
    return std::make_unique<Step>();
  }
};

// A thousand rows for each sample; whether it was made to make them.
class Flood final : public AudioOp {
 public:
  explicit Flood(bool& was_run) : AudioOp(std::vector<std::string>()), was_run_(was_run) {}
  Result<AudioFormat> output(const AudioFormat& in) const override {
    AudioFormat out = in;
    out.bins = 1000;
    return out;
  }
  std::unique_ptr<AudioStep> make_step(const AudioFormat&) const override {
    class Step final : public AudioStep {
     public:
      explicit Step(bool& was_run) : was_run_(was_run) {}
      Status run(Sound& sound, Sound& scratch, KeyedRng) override {
        was_run_ = true;
        scratch.renew(sound.channels, 1000, sound.length);
        std::swap(sound, scratch);
        return {};
      }

     private:
      bool& was_run_;
    };
    return std::make_unique<Step>(was_run_);
  }

 private:
  bool& was_run_;
};

// A pipeline of decode_audio and what follows it.
struct Pipeline {
  explicit Pipeline(Values params = {}, std::optional<ClipShape> clip = {}) {
    table.fields().front().clip = clip;
    auto made = decode_audio_op().make(Params(decode_params(std::move(params))));
    EXPECT_TRUE(made) << made.error().message();
    planned = add(*std::move(made), "decode_audio");
  }

  Status add(std::unique_ptr<Op> op, const std::string& name) {
    ops.push_back(std::move(op));
    return ops.back()->plan(
        table, {.name = name, .text = "", .draw_key = mix64(name_key(name), ops.size())}, doubt);
  }

  void finish() {
    task = *table.find("audio")->chain->finish("audio");
    worker = task->make_worker();
  }
  const TensorSpec& tensor() const { return task->tensors().front(); }

  Status run(const std::vector<std::byte>& bytes, std::uint64_t key = 0) {
    sample.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    sample.key = key;
    output = std::make_unique<FakeOutput>(*task, std::uint64_t{1} << 28);
    const Result<std::uint64_t> done = worker->run(sample, output->outputs(), kRoom);
    if (!done) return done.error();
    EXPECT_EQ(*done, 0U);
    return {};
  }
  std::vector<float> row() const {
    const auto bytes = output->bytes(0);
    std::vector<float> values(bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  static std::vector<Field> fields() {
    std::vector<Field> fields(1);
    fields[0].name = "audio";
    return fields;
  }

  FieldTable table{fields(), nullptr};
  std::vector<std::unique_ptr<Op>> ops;
  Status planned;
  std::string doubt;
  std::unique_ptr<FieldTask> task;
  std::unique_ptr<FieldWorker> worker;
  FakeSample sample;
  std::unique_ptr<FakeOutput> output;
};

TEST(DecodeAudio, DeliversChannelsAndSamplesThatDiffer) {
  Pipeline pipeline;
  pipeline.finish();
  EXPECT_EQ(pipeline.tensor().kind, FieldKind::kRagged);
  EXPECT_EQ(pipeline.tensor().dtype, DType::kFloat32);
  EXPECT_THAT(pipeline.tensor().shape, ElementsAre(-1, -1));
  EXPECT_EQ(pipeline.tensor().max_row_bytes, 0U);
  ASSERT_TRUE(pipeline.run(make_wav({})).ok());
  EXPECT_THAT(pipeline.output->shape(0), ElementsAre(1, 3));
  EXPECT_THAT(pipeline.row(), ElementsAre(0x1p-15F, 0x2p-15F, 0x3p-15F));
}

TEST(DecodeAudio, BoundsRowsByTheLongestSound) {
  Pipeline pipeline(
      {{"sample_rate", std::int64_t{16000}}, {"channels", std::int64_t{2}}, {"max_seconds", 10.0}});
  pipeline.finish();
  EXPECT_THAT(pipeline.tensor().shape, ElementsAre(2, -1));
  EXPECT_EQ(pipeline.tensor().max_row_bytes, (160000U + 2) * 2 * 4);
}

TEST(DecodeAudio, BringsFilesToOneRateAndNumberOfChannels) {
  const MediaMaker maker;
  Pipeline pipeline({{"sample_rate", std::int64_t{16000}}, {"channels", std::int64_t{1}}});
  pipeline.finish();
  for (const auto& [make, name, rate] : std::vector<std::tuple<std::string, std::string, int>>{
           {"-ac 2 -c:a pcm_s16le", "a.wav", 44100},
           {"-ac 2 -c:a flac", "a.flac", 48000},
           {"-c:a libmp3lame", "a.mp3", 16000},
           {"-ac 2 -c:a aac", "a.m4a", 22050}}) {
    ASSERT_TRUE(pipeline.run(maker.make(some_sound(1, rate) + make, name)).ok()) << name;
    const std::vector<float> expected =
        ffmpeg_samples(maker, name, 1, "-af aresample=16000:ochl=mono:rematrix_maxval=1");
    const std::vector<float> row = pipeline.row();
    ASSERT_EQ(row.size(), expected.size()) << name;
    for (std::size_t i = 0; i < row.size(); ++i) ASSERT_NEAR(row[i], expected[i], 1e-6) << name;
  }
}

TEST(DecodeAudio, GivesStepsTheDrawsOfTheirStage) {
  Pipeline pipeline;
  ASSERT_TRUE(pipeline.add(std::make_unique<AddDraw>(), "add").ok());
  ASSERT_TRUE(pipeline.add(std::make_unique<AddDraw>(), "add").ok());
  pipeline.finish();
  ASSERT_TRUE(pipeline.run(make_wav({}), 77).ok());
  const auto drawn = [&](std::uint64_t stage) {
    return static_cast<float>(KeyedRng(mix64(77, mix64(name_key("add"), stage))).uniform());
  };
  EXPECT_EQ(pipeline.row().front(), 0x1p-15F + drawn(2) + drawn(3));
}

TEST(DecodeAudio, DeliversSpectraWithTheirBins) {
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.sample_rate = 8000;
  clip.channels = 2;
  clip.samples = clip.max_samples = 400;
  Pipeline fixed({}, clip);
  ASSERT_TRUE(fixed.add(std::make_unique<Spectrum>(), "spectrum").ok());
  fixed.finish();
  EXPECT_EQ(fixed.tensor().kind, FieldKind::kDense);
  EXPECT_THAT(fixed.tensor().shape, ElementsAre(2, 3, 40));

  Pipeline ragged;
  ASSERT_TRUE(ragged.add(std::make_unique<Spectrum>(), "spectrum").ok());
  ragged.finish();
  EXPECT_THAT(ragged.tensor().shape, ElementsAre(-1, 3, -1));
  ASSERT_TRUE(ragged.run(make_wav({.data = std::string(200, '\1')})).ok());
  EXPECT_THAT(ragged.output->shape(0), ElementsAre(1, 3, 10));
  EXPECT_EQ(ragged.row(), std::vector<float>(30, 2.0F));
}

TEST(DecodeAudio, StacksClipsOfOneLength) {
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.sample_rate = 44100;
  clip.channels = 2;
  clip.samples = clip.max_samples = 44100;
  Pipeline whole({}, clip);
  whole.finish();
  EXPECT_EQ(whole.tensor().kind, FieldKind::kDense);
  EXPECT_THAT(whole.tensor().shape, ElementsAre(2, 44100));
  Pipeline resampled({{"sample_rate", std::int64_t{16000}}, {"channels", std::int64_t{1}}}, clip);
  resampled.finish();
  EXPECT_THAT(resampled.tensor().shape, ElementsAre(1, 16000));
}

TEST(DecodeAudio, BoundsRowsOfSeveralRatesByTheirSeconds) {
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.channels = 1;
  clip.max_samples = 88200;
  clip.max_seconds = 2;
  Pipeline pipeline({{"sample_rate", std::int64_t{16000}}}, clip);
  pipeline.finish();
  EXPECT_THAT(pipeline.tensor().shape, ElementsAre(1, -1));
  EXPECT_EQ(pipeline.tensor().max_row_bytes, (2 * 16000 + 2) * sizeof(float));
}

TEST(DecodeAudio, BoundsWholeFilesByTheLongest) {
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.sample_rate = 8000;
  clip.channels = 1;
  clip.max_samples = 80'000;
  clip.max_seconds = 10;
  clip.is_whole = true;
  Pipeline own({}, clip);
  own.finish();
  EXPECT_EQ(own.doubt, "");
  EXPECT_THAT(own.tensor().shape, ElementsAre(1, -1));
  EXPECT_EQ(own.tensor().max_row_bytes, 80'000 * sizeof(float));
  EXPECT_EQ(own.tensor().bounded_by, "");
  Pipeline resampled({{"sample_rate", std::int64_t{16000}}}, clip);
  resampled.finish();
  EXPECT_EQ(resampled.tensor().max_row_bytes / sizeof(float),
            static_cast<std::uint64_t>(Resampler::most_length(80'000, 8000, 16000)));
}

TEST(DecodeAudio, DoubtsWholeFilesLongerThanMaxSeconds) {
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.sample_rate = 8000;
  clip.channels = 1;
  clip.max_samples = 84'000;
  clip.max_seconds = 10.5;
  clip.is_whole = true;
  Pipeline pipeline({{"max_seconds", 10.0}}, clip);
  pipeline.finish();
  EXPECT_EQ(pipeline.doubt,
            "the longest file lasts 10.5 s, and sound of more than max_seconds, which is 10, is an "
            "error of its item: raise that, or leave such files out by 'max_seconds' of "
            "source.windows");
  EXPECT_EQ(pipeline.tensor().max_row_bytes, (80'000 + 2) * sizeof(float));
  EXPECT_EQ(pipeline.tensor().bounded_by, "decode_audio.max_seconds");
}

TEST(DecodeAudio, StacksWindowsOfSeveralRatesThatBecomeOfOneLength) {
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.channels = 1;
  clip.max_seconds = 1;
  for (const int rate : {8000, 11025, 16000, 22050, 32000, 44100, 48000}) {
    clip.of_rates.push_back({.sample_rate = rate, .samples = rate});
    clip.max_samples = rate;
  }
  Pipeline pipeline({{"sample_rate", std::int64_t{16000}}}, clip);
  ASSERT_TRUE(pipeline.add(std::make_unique<Spectrum>(), "spectrum").ok());
  pipeline.finish();
  EXPECT_EQ(pipeline.tensor().kind, FieldKind::kDense);
  EXPECT_THAT(pipeline.tensor().shape, ElementsAre(1, 3, 1600));
  // Every one of them comes out as long as it was said.
  for (const ClipShape::OfRate& of_rate : clip.of_rates) {
    const std::string data(static_cast<std::size_t>(of_rate.samples) * 2, '\1');
    const Status done = pipeline.run(
        make_wav({.rate = static_cast<std::uint32_t>(of_rate.sample_rate), .data = data}));
    EXPECT_TRUE(done.ok()) << of_rate.sample_rate << ": " << done.message();
  }
}

TEST(DecodeAudio, StacksWindowsOfSeveralRatesAfterResample) {
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.channels = 1;
  clip.of_rates = {{.sample_rate = 8000, .samples = 4000},
                   {.sample_rate = 48000, .samples = 24000}};
  Pipeline pipeline({}, clip);
  auto resample = resample_op().make(Params(resample_params(16000)));
  ASSERT_TRUE(resample);
  ASSERT_TRUE(pipeline.add(*std::move(resample), "resample").ok());
  pipeline.finish();
  EXPECT_THAT(pipeline.tensor().shape, ElementsAre(1, 8000));
}

TEST(DecodeAudio, LeavesWindowsRaggedThatBecomeOfSeveralLengths) {
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.channels = 1;
  clip.max_samples = 24000;
  clip.max_seconds = 0.5;
  clip.of_rates = {{.sample_rate = 8000, .samples = 4000},
                   {.sample_rate = 48000, .samples = 23000}};
  Pipeline resampled({{"sample_rate", std::int64_t{16000}}}, clip);
  resampled.finish();
  EXPECT_EQ(resampled.tensor().kind, FieldKind::kRagged);
  EXPECT_THAT(resampled.tensor().shape, ElementsAre(1, -1));
  EXPECT_EQ(resampled.tensor().max_row_bytes, 8000 * sizeof(float));
  Pipeline own({}, clip);
  own.finish();
  EXPECT_THAT(own.tensor().shape, ElementsAre(1, -1)) << "each at its own rate";
}

TEST(DecodeAudio, RefusesAClipThatIsNotAsItWasIndexed) {
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.sample_rate = 8000;
  clip.channels = 1;
  clip.samples = clip.max_samples = 4;
  Pipeline pipeline({}, clip);
  pipeline.finish();
  const auto refusal = [&](const WavRecipe& recipe) {
    const Status refused = pipeline.run(make_wav(recipe));
    EXPECT_EQ(refused.code(), Code::kDataLoss);
    return refused.message();
  };
  EXPECT_EQ(refusal({}),
            "its field 'audio': its number of samples is 3, and that of the others 4: it was "
            "changed since it was indexed");
  EXPECT_THAT(refusal({.rate = 16000}), HasSubstr("its sample rate is 16000"));
  EXPECT_THAT(refusal({.channels = 3, .frame_bytes = 6}), HasSubstr("its number of channels is 3"));
}

TEST(DecodeAudio, SaysWhichFieldIsDamaged) {
  Pipeline pipeline;
  pipeline.finish();
  const Status refused = pipeline.run(make_wav({.data_bytes = 1000}));
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_EQ(refused.message(),
            "its field 'audio': corrupt WAV: it is cut off: its header promises 1000 bytes of "
            "samples, and 6 follow");
}

TEST(DecodeAudio, AsksForMemoryBeforeItTakesIt) {
  Pipeline pipeline({{"sample_rate", std::int64_t{48000}}});
  pipeline.finish();
  const auto bytes = make_wav({.data = std::string(200000, '\1')});
  pipeline.sample.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  FakeOutput output(*pipeline.task, std::uint64_t{1} << 28);
  const auto asked = pipeline.worker->run(pipeline.sample, output.outputs(), 1'000'000);
  ASSERT_TRUE(asked);
  EXPECT_GT(*asked, 600'000U * 4);
  const auto done = pipeline.worker->run(pipeline.sample, output.outputs(), *asked);
  ASSERT_TRUE(done);
  EXPECT_EQ(*done, 0U);
  EXPECT_LE(pipeline.worker->kept_bytes(), *asked + (2U << 20));
}

TEST(DecodeAudio, AsksForTheLargestPairOfNeighbours) {
  bool was_run = false;
  Pipeline pipeline;
  ASSERT_TRUE(pipeline.add(std::make_unique<Flood>(was_run), "flood").ok());
  ASSERT_TRUE(pipeline.add(std::make_unique<AddDraw>(), "add").ok());
  pipeline.finish();
  const auto bytes = make_wav({.data = std::string(20000, '\1')});  // 10000 samples
  pipeline.sample.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  FakeOutput output(*pipeline.task, std::uint64_t{1} << 28);
  constexpr std::uint64_t kFlood = 10000 * 1000 * sizeof(float);
  const auto asked = pipeline.worker->run(pipeline.sample, output.outputs(), 2 * kFlood);
  ASSERT_TRUE(asked);
  EXPECT_FALSE(was_run);
  // The sound that is added to and what it becomes, and no third one.
  EXPECT_GT(*asked, 2 * kFlood);
  EXPECT_LT(*asked, 2 * kFlood + (32U << 20));
  const auto done = pipeline.worker->run(pipeline.sample, output.outputs(), *asked);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(*done, 0U);
  EXPECT_TRUE(was_run);
  EXPECT_LE(pipeline.worker->kept_bytes(), *asked);
}

TEST(DecodeAudio, MakesNoRowThatIsOverItsBound) {
  bool was_run = false;
  Pipeline pipeline;
  ASSERT_TRUE(pipeline.add(std::make_unique<Flood>(was_run), "flood").ok());
  pipeline.finish();
  const auto bytes = make_wav({.data = std::string(2000, '\1')});
  pipeline.sample.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  FakeOutput output(*pipeline.task, 3'999'999);
  const auto refused = pipeline.worker->run(pipeline.sample, output.outputs(), kRoom);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(),
              StartsWith("its field 'audio' takes 4000000 bytes, and a row of it may take"));
  EXPECT_FALSE(was_run);
  EXPECT_TRUE(pipeline.run(bytes).ok());
}

TEST(DecodeAudio, KnowsTheMemoryOfClipsOfOneLength) {
  bool was_run = false;
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.sample_rate = 8000;
  clip.channels = 2;
  clip.samples = clip.max_samples = 400;
  Pipeline pipeline({}, clip);
  ASSERT_TRUE(pipeline.add(std::make_unique<Flood>(was_run), "flood").ok());
  pipeline.finish();
  EXPECT_EQ(pipeline.task->known_bytes(), 2 * 400 * 1001 * sizeof(float));
  Pipeline any;
  ASSERT_TRUE(any.add(std::make_unique<Flood>(was_run), "flood").ok());
  any.finish();
  EXPECT_EQ(any.task->known_bytes(), 0U);
}

TEST(DecodeAudio, RefusesFieldsThatAreClipsOfVideo) {
  const Pipeline pipeline({}, ClipShape{});
  EXPECT_EQ(pipeline.planned.code(), Code::kInvalidArgument);
  EXPECT_THAT(pipeline.planned.message(), HasSubstr("is clips of video, so use 'decode_video"));
}

TEST(DecodeAudio, RefusesAStreamOfClips) {
  const Pipeline pipeline({{"stream", std::string("eng")}},
                          ClipShape{.kind = StreamInfo::Kind::kAudio});
  EXPECT_THAT(pipeline.planned.message(), HasSubstr("leave 'stream' out"));
  const auto made =
      decode_audio_op().make(Params(decode_params({{"stream", std::string("first")}})));
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), HasSubstr("stream is 'first', and is 'best', a number"));
}

TEST(ResampleOp, ResamplesWhatDecodeAudioGives) {
  const MediaMaker maker;
  Pipeline pipeline;
  ASSERT_TRUE(pipeline.add(*resample_op().make(Params(resample_params(16000))), "resample").ok());
  pipeline.finish();
  ASSERT_TRUE(pipeline.run(maker.make(some_sound(1, 44100) + "-ac 2", "a.wav")).ok());
  EXPECT_EQ(pipeline.row(), ffmpeg_samples(maker, "a.wav", 2, "-af aresample=16000"));
}

TEST(ResampleOp, KnowsTheLengthOfClips) {
  ClipShape clip{.kind = StreamInfo::Kind::kAudio};
  clip.sample_rate = 48000;
  clip.channels = 1;
  clip.samples = clip.max_samples = 48000;
  Pipeline pipeline({}, clip);
  ASSERT_TRUE(pipeline.add(*resample_op().make(Params(resample_params(16000))), "resample").ok());
  pipeline.finish();
  EXPECT_THAT(pipeline.tensor().shape, ElementsAre(1, 16000));
}

TEST(ResampleOp, RefusesSpectraAndFieldsThatAreNoSound) {
  Pipeline pipeline;
  ASSERT_TRUE(pipeline.add(std::make_unique<Spectrum>(), "spectrum").ok());
  const Status spectrum =
      pipeline.add(*resample_op().make(Params(resample_params(16000))), "resample");
  EXPECT_EQ(spectrum.code(), Code::kInvalidArgument);
  EXPECT_THAT(spectrum.message(), HasSubstr("put 'resample' before that"));
  FieldTable table(Pipeline::fields(), nullptr);
  std::string doubt;
  const auto op = *resample_op().make(Params(resample_params(16000)));
  const Status undecoded = op->plan(table, {.name = "resample", .text = ""}, doubt);
  EXPECT_THAT(undecoded.message(), HasSubstr("put 'decode_audio' before it"));
}

}  // namespace
}  // namespace spdld::media::test
