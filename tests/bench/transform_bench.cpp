// SPDX-License-Identifier: Apache-2.0
// What one image costs after its decoder: rows in the cache, resized, cropped, converted and laid
// out into a row of a batch. The filters' tables are made anew for each image, as random crops
// have it, except in Validation, where they repeat.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "transform/image_pass.h"

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

}  // namespace
}  // namespace spdld::transform
