// SPDX-License-Identifier: Apache-2.0
// What one image costs after its decoder: rows in the cache, resized, cropped, converted and laid
// out into a row of a batch. The filters' tables are made anew for each image, as random crops
// have it, except in Validation, where they repeat. And what a sound of some seconds at 16 kHz, one
// channel, costs from samples to spectra; `fourier_alone` is the floor of log_mel: windows,
// transforms and powers of the same frames, of which nothing is kept.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "op/audio.h"
#include "transform/image/image_pass.h"
#include "transform/ops.h"
#include "transform/sound/spectrum_kernels.h"

namespace spdld::transform {
namespace {

constexpr Size kSource{500, 375};
constexpr Size kOutput{224, 224};

std::vector<std::uint8_t> noise(Size size, int channels) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size.width * size.height * channels));
  KeyedRng rng(1);
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(rng.next());
  return pixels;
}

PixelFormat format_of(DType dtype) {
  if (dtype == DType::kUInt8) return {};
  return {.dtype = dtype,
          .scale = 1.0F / 255.0F,
          .normalized = true,
          .mean = {0.485F, 0.456F, 0.406F},
          .std = {0.229F, 0.224F, 0.225F}};
}

class Worker {
 public:
  Worker(Size source, DType dtype, Layout layout)
      : width_(source.width),
        pixels_(noise(source, 3)),
        target_{.format = format_of(dtype), .layout = layout} {
    out_.resize(static_cast<std::size_t>(kOutput.width * kOutput.height * 3) *
                wire::dtype_bytes(dtype));
    target_.data = out_.data();
  }

  void run(const Geometry& geometry) {
    const Rect region = pass_.begin(geometry, 3, target_);
    const std::uint8_t* row =
        pixels_.data() + (static_cast<std::ptrdiff_t>(region.y) * width_ + region.x) * 3;
    for (int y = 0; y < region.height; ++y, row += width_ * 3) pass_.row(y, row);
    pass_.finish();
    benchmark::ClobberMemory();
  }

 private:
  int width_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::byte> out_;
  ImagePass pass_;
  ImageTarget target_;
};

// A crop of this size, one pixel more or less from image to image.
void crop_and_resize(benchmark::State& state, Size crop, DType dtype, Layout layout,
                     Interpolation interpolation) {
  Worker worker(kSource, dtype, layout);
  int turn = 0;
  for (auto _ : state) {
    turn ^= 1;
    worker.run({.crop = {turn, turn, crop.width - turn, crop.height - turn},
                .scaled = kOutput,
                .window = {0, 0, kOutput.width, kOutput.height},
                .flip = turn == 1,
                .interpolation = interpolation});
  }
}

void validation(benchmark::State& state, DType dtype) {
  Worker worker(kSource, dtype, Layout::kNCHW);
  const Geometry geometry{.crop = {0, 0, kSource.width, kSource.height},
                          .scaled = {341, 256},
                          .window = {58, 16, kOutput.width, kOutput.height}};
  for (auto _ : state) worker.run(geometry);
}

void crop_only(benchmark::State& state, DType dtype) {
  Worker worker(kSource, dtype, Layout::kNCHW);
  Geometry geometry = Geometry::identity(kSource);
  for (auto _ : state) {
    geometry.window = {130, 70, kOutput.width, kOutput.height};
    geometry.flip = !geometry.flip;
    worker.run(geometry);
  }
}

constexpr Size kAverage{290, 270};  // of random_resized_crop over ImageNet
constexpr auto kLinear = Interpolation::kBilinear;

BENCHMARK_CAPTURE(crop_and_resize, average_uint8, kAverage, DType::kUInt8, Layout::kNCHW, kLinear);
BENCHMARK_CAPTURE(crop_and_resize, average_uint8_nhwc, kAverage, DType::kUInt8, Layout::kNHWC,
                  kLinear);
BENCHMARK_CAPTURE(crop_and_resize, average_float32, kAverage, DType::kFloat32, Layout::kNCHW,
                  kLinear);
BENCHMARK_CAPTURE(crop_and_resize, average_float16, kAverage, DType::kFloat16, Layout::kNCHW,
                  kLinear);
BENCHMARK_CAPTURE(crop_and_resize, average_bfloat16, kAverage, DType::kBFloat16, Layout::kNCHW,
                  kLinear);
BENCHMARK_CAPTURE(crop_and_resize, average_bicubic, kAverage, DType::kUInt8, Layout::kNCHW,
                  Interpolation::kBicubic);
BENCHMARK_CAPTURE(crop_and_resize, whole_uint8, kSource, DType::kUInt8, Layout::kNCHW, kLinear);
BENCHMARK_CAPTURE(crop_and_resize, whole_float32, kSource, DType::kFloat32, Layout::kNCHW, kLinear);
BENCHMARK_CAPTURE(crop_and_resize, enlarged_uint8, (Size{120, 100}), DType::kUInt8, Layout::kNCHW,
                  kLinear);
BENCHMARK_CAPTURE(validation, float32, DType::kFloat32);
BENCHMARK_CAPTURE(crop_only, uint8, DType::kUInt8);
BENCHMARK_CAPTURE(crop_only, float32, DType::kFloat32);

constexpr int kRate = 16000;

Sound noise_of(std::int64_t seconds) {
  Sound sound;
  sound.sample_rate = kRate;
  sound.reshape(1, 0, seconds * kRate);
  KeyedRng rng(1);
  for (float& sample : sound.values) sample = static_cast<float>(rng.uniform(-0.5, 0.5));
  return sound;
}

std::unique_ptr<Op> made(const std::string& name, std::map<std::string, ParamValue> values) {
  const Registry registry(ops());
  const OpInfo& info = *registry.find(name);
  for (const ParamInfo& param : info.params) {
    if (param.default_value) values.try_emplace(param.name, *param.default_value);
  }
  auto op = info.make(Params(std::move(values)));
  SPDLD_CHECK(op.has_value());
  return *std::move(op);
}

// The sound is made anew for each run, which is not counted.
void audio(benchmark::State& state, const std::string& name,
           const std::map<std::string, ParamValue>& values) {
  const Sound sound = noise_of(state.range(0));
  Sound changed;
  Sound scratch;
  const std::unique_ptr<Op> op = made(name, values);
  const AudioFormat in{.sample_rate = kRate, .channels = 1, .length = sound.length};
  const auto step = dynamic_cast<const AudioOp&>(*op).make_step(in);
  for (auto _ : state) {
    state.PauseTiming();
    changed = sound;
    state.ResumeTiming();
    SPDLD_CHECK(step->run(changed, scratch, KeyedRng(1)).ok());
    benchmark::ClobberMemory();
  }
}

void fourier_alone(benchmark::State& state) {
  SpectrumPlan plan = spectrum_plan({.n_fft = 400, .win_length = 400, .hop_length = 160});
  plan.bands.push_back({});  // of no bins
  const Sound sound = noise_of(state.range(0));
  const auto lanes = static_cast<std::int64_t>(frame_lanes());
  struct alignas(64) Lanes {
    float values[kMaxFrames];
  };
  std::vector<Lanes> scratch(frame_scratch(plan.fourier) / kMaxFrames);
  Lanes out;
  float largest = 0;
  for (auto _ : state) {
    // As many frames as log_mel's, but for those at the ends, which lie over the sound.
    for (std::int64_t frame = 0; frame < sound.length / 160; frame += lanes) {
      const std::int64_t first = std::min(frame * 160, sound.length - lanes * 160 - 400);
      SPDLD_CHECK(transform_frames(plan, sound.values.data() + first, 160,
                                   static_cast<std::size_t>(lanes), scratch[0].values, out.values,
                                   kMaxFrames, largest));
    }
    benchmark::ClobberMemory();
  }
}

BENCHMARK(fourier_alone)->Arg(10)->Arg(30)->Unit(benchmark::kMicrosecond);
#define SPDLD_AUDIO(...) BENCHMARK_CAPTURE(audio, __VA_ARGS__)->Unit(benchmark::kMicrosecond)
SPDLD_AUDIO(log_mel, "log_mel", {})->Arg(10)->Arg(30);
SPDLD_AUDIO(mel_spectrogram, "mel_spectrogram", {})->Arg(10);
SPDLD_AUDIO(mfcc, "mfcc", {})->Arg(10);
SPDLD_AUDIO(speed, "speed_perturbation", {{"factors", std::vector<double>{0.9}}})->Arg(10);
SPDLD_AUDIO(add_noise, "add_noise", {{"snr", std::vector<double>{20}}})->Arg(10);

}  // namespace
}  // namespace spdld::transform
